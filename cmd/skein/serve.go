package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/gateway"
	"github.com/skein-feed/skein/gateway/console"
	"github.com/skein-feed/skein/gateway/pagetoken"
)

// defaultListen is the default address of the service, and of its clients.
const defaultListen = "127.0.0.1:7411"

type serveCmd struct {
	Data      string `help:"Directory of the log and the stores (./skein-data)." default:"./skein-data" type:"path" placeholder:"DIR"`
	Ephemeral bool   `help:"For tests: use a temporary directory, which is removed at the end, and a free port."`

	Listen         string `help:"Address to listen on; by default 127.0.0.1:7411, or a free port with --ephemeral." placeholder:"HOST:PORT"`
	ListenAnywhere bool   `help:"Allow calls from other machines without TLS and tokens. Whoever reaches the port can read and write everything."`
	NoConsole      bool   `help:"Do not serve the console at /console. It is served only if callers need tokens or --listen is a loopback address."`
	PortFile       string `help:"Write the port to this file when the service is ready." type:"path" placeholder:"FILE"`

	accessFlags     `embed:""`
	flags.NATSFlags `embed:""`
	nodeFlags       `embed:""`

	LogMaxBytes     flags.ByteSize `help:"Size of the log at which Publish is refused; 0 means 80 % of the disk that is free when the log is created." default:"0"`
	DiskReserve     flags.ByteSize `help:"Refuse Publish while less disk than this is free; 0 means a tenth of the disk, at most 1 GiB." default:"0"`
	Memory          memorySetting  `help:"Memory of the process: a size, a share of the machine, or auto: half of the machine, at most 1GiB." default:"auto"`
	BlockCacheBytes memorySetting  `help:"Memory for blocks of rows that are in use: a size, a share of --memory, or auto, which is a quarter." default:"auto"`
	QueryCacheBytes memorySetting  `help:"Memory for follows, outboxes and inboxes: a size, a share of --memory, or auto (a sixteenth)." default:"auto"`
	FolloweeCap     int            `help:"How many users a user may follow; -1 means no limit. Imported history is not limited." default:"10000"`
	MaxConnections  int            `help:"Open connections, half of them from one address; 0 means 10000, or fewer if the limit of files is low." default:"0"`
	ShedAfter       time.Duration  `help:"Refuse a part of the calls while calls wait longer than this for a processor; 0 refuses none." default:"500ms"`
	CallerRate      float64        `help:"How many calls per second each caller may make on average; 0 means any number." default:"0"`
	CallerBurst     int            `help:"How many calls a caller may make at once after a pause; 0 means --caller-rate." default:"0"`
	CallerInFlight  int            `help:"How many calls, streams included, each caller may have in progress; 0 means any number." default:"0"`
	PageTokenKeys   string         `help:"File with the keys that sign page tokens and calls between nodes." type:"path" placeholder:"FILE"`
	DrainDelay      time.Duration  `help:"After the signal to stop, accept calls for this time while /readyz says that the service is not ready." default:"0s"`
	ShutdownTimeout time.Duration  `help:"How long calls in progress may take after that." default:"30s"`

	Pprof string `help:"Serve profiles of the process at this loopback address, such as 127.0.0.1:6060." placeholder:"HOST:PORT"`

	Check bool `help:"Do not start: print which stores a start would rebuild, why, how long that would take, and how much disk it needs."`

	maintenanceFlags `embed:""`
	flags.FoldFlags  `embed:""`
	flags.LogFlags   `embed:""`
	traceFlags       `embed:""`
}

// Help is shown below the flags.
func (*serveCmd) Help() string {
	return `Without --tokens or --jwks, any caller that reaches the port can do everything. So the service listens only on loopback, unless it
has TLS (--tls-cert, --tls-key) and authenticates callers (--tokens, --jwks), or --listen-anywhere says that a proxy in front of it does both.
Without --tokens and --jwks the service answers only calls whose Host is localhost, a loopback address, or one of --allowed-hosts: otherwise a
web page could reach it by a name that resolves to 127.0.0.1. In a browser, only the service's own console and pages of
--cors-origin may call it. The service reads all these files again when they change. See docs/access.md; skein token new makes tokens.

--nats takes the URLs of a cluster, nats://a:4222,nats://b:4222. Several processes that use the same cluster, each with a data
directory of its own, are interchangeable: each of them serves any position and any page token.

--page-token-keys names a file with keys, id:base64,id:base64. The first key signs, and all verify. Without the file, the key follows from
the id of the log: damaged tokens are detected, but whoever knows that id can forge them. Nodes and routers with --tokens or --jwks
need such a file, and all of them the same, because they authenticate each other with these keys.

The flags --feed-…, --heat-… and --seen-… decide what stores contain. A store that was built with other values does not follow the log
any more: it answers from its last position, and skein status says which flag differs. Start with the old values, or rebuild the store.

After SIGINT or SIGTERM the service accepts no new calls, finishes those in progress, syncs its stores and ends. A second signal
ends the process at once, which loses nothing that was acknowledged.`
}

// checkLimits returns an error for a limit that cannot be.
func (c *serveCmd) checkLimits() error {
	if c.CallerRate < 0 || c.CallerBurst < 0 || c.CallerInFlight < 0 {
		return command.Usagef("--caller-rate, --caller-burst and --caller-in-flight must not be negative")
	}
	if c.MaxConnections < 0 || c.ShedAfter < 0 {
		return command.Usagef("--max-connections and --shed-after must not be negative")
	}
	return nil
}

// checkNodeKeys returns an error for a node or router that authenticates callers but has no
// --page-token-keys. Nodes authenticate each other with these keys. The default key follows from
// the id of the log, so a caller who learns the id could call nodes as if it were one.
func (c *serveCmd) checkNodeKeys() error {
	if c.Node == "" && !c.Router || !c.authenticates() || c.PageTokenKeys != "" {
		return nil
	}
	return command.Usagef("--node and --router with --tokens or --jwks need --page-token-keys FILE: nodes authenticate each other with " +
		"these keys, and without them every caller who learns the id of the log could pass as a node and read private lists. Give all nodes " +
		"the same file with ID:BASE64, at least 16 random bytes, such as: echo \"k1:$(openssl rand -base64 32)\"")
}

// Run serves until a signal.
func (c *serveCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	if c.Listen == "" {
		c.Listen = defaultListen
		if c.Ephemeral {
			c.Listen = "127.0.0.1:0"
		}
	}
	if err := cmp.Or(c.checkListen(ctx), c.checkLimits(), c.checkNodeKeys()); err != nil {
		return err
	}

	logger := c.Logger(std.Err)
	o, err := c.serviceOptions(logger)
	if err != nil {
		return err
	}
	o.Console, err = c.servesConsole(ctx)
	if err != nil {
		return command.Usagef("--listen: %w", err)
	}
	c.warnAboutFlags(logger)
	if c.Check {
		return c.printRebuildPlan(ctx, o, std)
	}

	if c.Ephemeral {
		dir, err := os.MkdirTemp("", "skein-ephemeral-*")
		if err != nil {
			return err
		}
		o.Dir = dir
		if c.NATS == "" {
			o.Log.Dir = filepath.Join(dir, service.LogDir)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	o.Maintenance, err = c.maintenanceOptions(ctx, o.Dir, c.NATS != "")
	if err != nil {
		return err
	}
	if err := checkWritable(&o.Maintenance); err != nil {
		return err
	}
	o.Node, err = c.nodeConfig(ctx, c)
	if err != nil {
		return err
	}

	if c.PortFile != "" {
		// A script that waits for the file must not read the port of an earlier process.
		if err := os.Remove(c.PortFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("--port-file: %w", err)
		}
	}
	// The service listens before it opens its stores, which can take long, so that it fails at once
	// if the port is taken.
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w", err)
	}
	tracer, endTraces, err := c.openTracing(ctx, logger)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer endTraces(context.WithoutCancel(ctx))
	o.Tracer = tracer
	o.Pprof, err = listenPprof(ctx, c.Pprof)
	if err != nil {
		return errors.Join(err, l.Close())
	}

	service.RaiseMaxProcs()
	debug.SetMemoryLimit(min(o.Memory.Limit, debug.SetMemoryLimit(-1))) // GOMEMLIMIT may set a lower limit
	o.Abandon = func(err error) {
		logger.Error("ending this process at once", "error", err)
		os.Exit(exitFailed)
	}
	a, err := service.OpenOn(ctx, l, o)
	if err != nil {
		return errors.Join(err, l.Close(), closePprof(o.Pprof))
	}

	url := c.scheme() + l.Addr().String()
	logger.Info("serving", "url", url, "data", o.Dir, "version", version().Version, "access", c.authenticates(), "console", o.Console)
	defer context.AfterFunc(ctx, func() { logger.Info("stopping") })()
	err = a.Run(ctx, l, func() error {
		if failed := a.Failed(); len(failed) > 0 {
			logger.Warn("serving without the projections that have failed", "projections", failed)
		} else {
			logger.Info("ready", "url", url)
		}
		if c.LogFormat == "text" { // a program that reads JSON from this stream cannot read a line for people
			std.Sayf("%s", describeAddress(url, o.Console))
		}
		return c.writePort(l)
	})
	return errors.Join(err, a.Close(context.WithoutCancel(ctx)))
}

// describeAddress returns a line that tells a person where the service is.
func describeAddress(url string, withConsole bool) string {
	line := "skein serves at " + url
	if withConsole {
		line += ", the console at " + url + console.Path
	}
	return line
}

// printRebuildPlan prints which stores a start would rebuild, for --check. It returns an error if
// there are any.
func (c *serveCmd) printRebuildPlan(ctx context.Context, o service.Options, std *command.Streams) (err error) {
	if c.NATS == "" && c.Archive == "" {
		// Opening the archive would create the directory.
		if _, err := os.Stat(o.Dir); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintln(std.Out, service.NoLogMessage)
			return nil
		}
	}

	o.Maintenance, err = c.maintenanceOptions(ctx, o.Dir, c.NATS != "")
	if err != nil {
		return err
	}
	rebuilds, err := service.Check(ctx, o, std.Out)
	if err == nil && rebuilds > 0 {
		err = command.ErrSilent
	}
	return err
}

// warnAboutFlags logs combinations of flags that are allowed, but seldom intended.
func (c *serveCmd) warnAboutFlags(logger *slog.Logger) {
	if c.authenticates() && !c.hasTLS() {
		logger.Warn("callers send tokens without TLS: whoever sees the traffic can use the tokens")
	}
	if c.ListenAnywhere && !c.authenticates() && len(c.AllowedHosts) == 0 {
		logger.Warn("without --tokens, --jwks and --allowed-hosts the service answers only calls to localhost")
	}
}

// serviceOptions returns the options that follow from the flags alone. It reads the files of the
// flags, and opens nothing.
func (c *serveCmd) serviceOptions(logger *slog.Logger) (service.Options, error) {
	available := availableMemory(machineMemory(), "/")
	total, err := totalMemory(c.Memory, available)
	if err != nil {
		return service.Options{}, err
	}
	if !c.Memory.given && available == 0 {
		logger.Warn("the memory of this machine is not known: --memory sets how much to use", "memory", flags.ByteSize(total).String())
	}
	memory, err := planMemory(total, version().Static, c.BlockCacheBytes, c.QueryCacheBytes, c.RebuildMemory)
	if err != nil {
		return service.Options{}, err
	}

	files := openFileLimit()
	connections, err := connectionLimit(c.MaxConnections, files)
	if err != nil {
		return service.Options{}, err
	}
	if c.MaxConnections == 0 && connections < defaultConnections {
		logger.Warn("this process may open few files, so it accepts fewer connections than by default: raise the limit of open files (ulimit -n)",
			"open-files", files, "connections", connections, "default-connections", defaultConnections)
	}

	o := service.Options{
		Dir: c.Data, Memory: memory, Logger: logger, Version: version().Version,
		DiskReserve: int64(c.DiskReserve),
		Limits: gateway.Limits{
			Connections: connections, ShedAfter: cmp.Or(c.ShedAfter, -1),
			CallerRate: c.CallerRate, CallerBurst: c.CallerBurst, CallerInFlight: c.CallerInFlight,
			Followees: c.FolloweeCap, DrainDelay: c.DrainDelay, ShutdownTimeout: c.ShutdownTimeout,
			RequestBytes: int(memory.Requests), FeedWatches: maxFeedWatchStreams(total),
		},
		Log: c.Config(filepath.Join(c.Data, service.LogDir)),
	}
	o.Log.MaxBytes = int64(c.LogMaxBytes)
	o.Log.Logger = logger
	o.Log.ListenOnSocket = o.Log.Dir != "" // skein replay prepare of another version reads the log through this socket
	o.Settings, err = c.Settings()
	if err != nil {
		return o, err
	}
	o.Access, err = c.openAccess(logger)
	if err != nil {
		return o, err
	}
	o.Access.NodeCertificates, err = c.nodeCertificates(logger)
	if err != nil {
		return o, err
	}
	if c.PageTokenKeys != "" {
		text, err := os.ReadFile(c.PageTokenKeys)
		if err != nil {
			return o, fmt.Errorf("--page-token-keys: %w", err)
		}
		o.Keys, err = pagetoken.ParseKeyRing(strings.TrimSpace(string(text)))
		if err != nil {
			return o, fmt.Errorf("--page-token-keys %s: %w", c.PageTokenKeys, err)
		}
	}
	return o, nil
}
