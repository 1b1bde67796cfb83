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
	Ephemeral bool   `help:"For tests: a temporary directory that is removed at the end, and a free port."`

	Listen         string `help:"Address to listen on: 127.0.0.1:7411 by default, a free port with --ephemeral." placeholder:"HOST:PORT"`
	ListenAnywhere bool   `help:"Allow other machines without TLS and tokens: who reaches the port reads and writes everything."`
	NoConsole      bool   `help:"Do not serve the console at /console. It is there if callers need tokens, or --listen is on loopback."`
	PortFile       string `help:"Write the port to this file when the service is ready." type:"path" placeholder:"FILE"`

	accessFlags     `embed:""`
	flags.NATSFlags `embed:""`
	nodeFlags       `embed:""`

	LogMaxBytes     flags.ByteSize `help:"Size at which the log refuses more; 0 means 80 % of the disk that is free at first." default:"0"`
	DiskReserve     flags.ByteSize `help:"Disk kept free: with less, Publish is refused; 0 means a tenth of it, at most 1 GiB." default:"0"`
	Memory          memorySetting  `help:"Memory of the process: a size, a share of the machine, or auto: half, at most 1GiB." default:"auto"`
	BlockCacheBytes memorySetting  `help:"Memory for rows in use: a size, a share of --memory, or auto: a quarter." default:"auto"`
	QueryCacheBytes memorySetting  `help:"Memory for follows, outboxes and inboxes: the same, or auto: 1/16; 0 means none." default:"auto"`
	FolloweeCap     int            `help:"How many users one may follow; -1 means no limit. Imported history is not limited." default:"10000"`
	MaxConnections  int            `help:"Connections that may be open, half from one address; 0 means 10000, or what open files allow." default:"0"`
	ShedAfter       time.Duration  `help:"Refuse a part of the calls while calls wait longer than this for a processor; 0 disables it." default:"500ms"`
	CallerRate      float64        `help:"Calls that each caller may make a second, over time; 0 means any number." default:"0"`
	CallerBurst     int            `help:"Calls that a caller who was silent may make at once; 0 means those of a second." default:"0"`
	CallerInFlight  int            `help:"Calls that each caller may have under way, streams among them; 0 means any number." default:"0"`
	PageTokenKeys   string         `help:"Keys that sign page tokens and calls between nodes. By default, one of the log's own." type:"path" placeholder:"FILE"`
	DrainDelay      time.Duration  `help:"After the signal to stop, continue to take calls for so long while /readyz says no." default:"0s"`
	ShutdownTimeout time.Duration  `help:"How long calls under way may take after that." default:"30s"`

	Pprof string `help:"Serve profiles of the process at this address of this machine, as 127.0.0.1:6060." placeholder:"HOST:PORT"`

	Check bool `help:"Change and serve nothing: tell which stores would be rebuilt, why, how long that takes, and how much disk."`

	maintenanceFlags `embed:""`
	flags.FoldFlags  `embed:""`
	flags.LogFlags   `embed:""`
	traceFlags       `embed:""`
}

// Help is shown below the flags.
func (*serveCmd) Help() string {
	return `Without --tokens or --jwks a caller that reaches the port may do everything. So the service binds to loopback, unless
it has TLS (--tls-cert, --tls-key) and authenticates callers (--tokens, --jwks), or --listen-anywhere says that something before
it does both. Even then it answers only calls whose Host is localhost, a loopback address, or one of --allowed-hosts, because a
web page can have its own name mean 127.0.0.1; and only its own console and pages of --cors-origin. All these files are read
again when they change. docs/access.md has more, and skein token new makes tokens.

--nats takes the URLs of a cluster, nats://a:4222,nats://b:4222. Several processes with one cluster and data
directories of their own are interchangeable: any of them serves any position and any page.

--page-token-keys names a file with keys as id:base64,id:base64: the first signs, all verify. The log's own key tells
damaged tokens, but whoever knows the id of the log can forge them. Nodes and routers with --tokens or --jwks need such
a file, the same for all, because they prove themselves to each other with these keys.

The flags --feed-…, --heat-… and --seen-… decide what is stored: a store that was built with other values goes no further and
answers from where it stands, and skein status names what differs. Start with the old values, or have it rebuilt.

SIGINT or SIGTERM stops in order: no new calls, those under way finish, what was accepted is on disk. A second one ends
the process at once, which loses nothing that was acknowledged.`
}

func (c *serveCmd) checkLimits() error {
	if c.CallerRate < 0 || c.CallerBurst < 0 || c.CallerInFlight < 0 {
		return command.Usagef("--caller-rate, --caller-burst and --caller-in-flight must not be negative")
	}
	if c.MaxConnections < 0 || c.ShedAfter < 0 {
		return command.Usagef("--max-connections and --shed-after must not be negative")
	}
	return nil
}

// checkNodeKeys refuses a part of a cluster that authenticates callers, but has no keys of its own. Nodes prove themselves to each other with
// the keys of page tokens. The default key follows from the id of the log, so any caller could make that proof.
func (c *serveCmd) checkNodeKeys() error {
	if c.Node == "" && !c.Router || !c.authenticates() || c.PageTokenKeys != "" {
		return nil
	}
	return command.Usagef("--node and --router with --tokens or --jwks need --page-token-keys FILE: nodes prove themselves to each other with " +
		"these keys, and without them every caller who learns the id of the log could do so and read private lists. Give all nodes the same " +
		"file with ID:BASE64, at least 16 random bytes, such as: echo \"k1:$(openssl rand -base64 32)\"")
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
	if o.Console, err = c.servesConsole(ctx); err != nil {
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
	if o.Maintenance, err = c.maintenanceFlags.maintenanceOptions(ctx, o.Dir, c.NATS != ""); err != nil {
		return err
	}
	if err := checkWritable(&o.Maintenance); err != nil {
		return err
	}
	if o.Node, err = c.nodeConfig(ctx, c); err != nil {
		return err
	}
	if c.PortFile != "" {
		// A script that waits for the file must not read the port of an earlier process.
		if err := os.Remove(c.PortFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("--port-file: %w", err)
		}
	}
	// The service listens before it opens the stores, so that a port that is taken fails at once.
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
	if o.Pprof, err = listenPprof(ctx, c.Pprof); err != nil {
		return errors.Join(err, l.Close())
	}
	service.RaiseMaxProcs()
	debug.SetMemoryLimit(min(o.Memory.Limit, debug.SetMemoryLimit(-1))) // GOMEMLIMIT may set a lower limit
	o.Abandon = func(err error) {
		logger.Error("this process ends at once", "error", err)
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
			logger.Warn("serving without what has failed", "projections", failed)
		} else {
			logger.Info("ready", "url", url)
		}
		if c.LogFormat == "text" { // a line for people would disturb what reads JSON
			std.Sayf("%s", describeAddress(url, o.Console))
		}
		return c.writePort(l)
	})
	return errors.Join(err, a.Close(context.WithoutCancel(ctx)))
}

// servingLine tells a person where the service is.
func describeAddress(url string, withConsole bool) string {
	line := "skein serves at " + url
	if withConsole {
		line += ", the console at " + url + console.Path
	}
	return line
}

// printRebuildPlan reports what a start would do, and returns an error if it would rebuild a store.
func (c *serveCmd) printRebuildPlan(ctx context.Context, o service.Options, std *command.Streams) (err error) {
	if c.NATS == "" && c.Archive == "" {
		if _, err := os.Stat(o.Dir); errors.Is(err, os.ErrNotExist) { // opening the archive would create the directory
			fmt.Fprintln(std.Out, service.NoLogMessage)
			return nil
		}
	}
	if o.Maintenance, err = c.maintenanceFlags.maintenanceOptions(ctx, o.Dir, c.NATS != ""); err != nil {
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
		logger.Warn("tokens without TLS: whoever sees the traffic can use them")
	}
	if c.ListenAnywhere && !c.authenticates() && len(c.AllowedHosts) == 0 {
		logger.Warn("without --tokens and --jwks only calls to localhost are answered: --allowed-hosts names other hosts")
	}
}

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
		logger.Warn("this process may open few files, so it takes fewer connections: raise the limit of open files (ulimit -n)",
			"open-files", files, "connections", connections, "connections-otherwise", defaultConnections)
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
	o.Log.MaxBytes, o.Log.Logger = int64(c.LogMaxBytes), logger
	o.Log.ListenOnSocket = o.Log.Dir != "" // for skein replay prepare of another version
	if o.Settings, err = c.Settings(); err != nil {
		return o, err
	}
	if o.Access, err = c.openAccess(logger); err != nil {
		return o, err
	}
	if o.Access.NodeCertificates, err = c.nodeCertificates(logger); err != nil {
		return o, err
	}
	if c.PageTokenKeys != "" {
		text, err := os.ReadFile(c.PageTokenKeys)
		if err != nil {
			return o, fmt.Errorf("--page-token-keys: %w", err)
		}
		if o.Keys, err = pagetoken.ParseKeyRing(strings.TrimSpace(string(text))); err != nil {
			return o, fmt.Errorf("--page-token-keys %s: %w", c.PageTokenKeys, err)
		}
	}
	return o, nil
}
