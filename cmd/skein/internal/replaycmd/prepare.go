package replaycmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/embedded"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/rebuild"
)

// baseMemory is the memory that the command takes in addition to that of the build: for the program
// itself, and for the part of the log that it reads.
const baseMemory = 128 << 20

type prepareCmd struct {
	command.ClientFlags `embed:""`
	flags.NATSFlags     `embed:""`
	flags.ArchiveFlags  `embed:""`
	flags.FoldFlags     `embed:""`

	Projections []string       `arg:"" name:"projection" optional:"" help:"Projections to prepare; by default all that the service folds differently."`
	Data        string         `help:"Data directory of the running service." default:"./skein-data" type:"path" placeholder:"DIR"`
	Share       float64        `help:"Share of one CPU core that the command may use, above 0 and at most 1." default:"0.5"`
	Memory      flags.ByteSize `name:"rebuild-memory" help:"Memory of a build, from 16MiB to 4GiB." default:"512MiB"`
}

// Help is shown below the flags.
func (prepareCmd) Help() string {
	return "Run this command of the new version, or with the new --feed-, --heat- and --seen- settings, on the machine of the running service. It " +
		"builds the stores that the new version would have to rebuild, beside those that serve, and ends. Then stop the service and start the " +
		"new version, which continues the prepared stores. If you do not start it soon, run the command again to fold what the log got since. " +
		"If you go back to the previous version, it continues its own stores."
}

// Run builds the stores of the projections that the running service folds differently from this
// program, one after the other.
func (c *prepareCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	settings, err := c.Settings()
	if err != nil {
		return err
	}
	if c.Share <= 0 || c.Share > 1 {
		return command.Usagef("--share must be above 0 and at most 1, is %v", c.Share)
	}
	if c.Memory < rebuild.LeastMemory || c.Memory > rebuild.MostMemory {
		return command.Usagef("--rebuild-memory must be from 16MiB to 4GiB, is %v", c.Memory)
	}
	// The service runs on the same machine, so the command must not take more memory than it was
	// given.
	debug.SetMemoryLimit(int64(c.Memory) + baseMemory)

	status, err := command.Call(ctx, &c.ClientFlags, c.Client().Admin().GetStatus, &skeinv1.GetStatusRequest{PageSize: 1})
	if err != nil {
		return err
	}
	targets, err := c.findTargets(settings, status, std)
	if err != nil || len(targets) == 0 {
		return err
	}

	log, err := c.openLog(ctx)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.CloseTimeout)
		defer cancel()
		err = errors.Join(err, log.Close(closing))
	}()
	if id := log.ID(); fmt.Sprintf("%x", id[:]) != status.GetLog().GetLogId() {
		return fmt.Errorf("--data has the log %x, but the service at %s has the log %s", id[:], c.Server, status.GetLog().GetLogId())
	}
	// The stream may have only the recent part of the log. Attach makes the archive supply the rest.
	if _, err := c.Attach(ctx, c.Data, log); err != nil {
		return err
	}

	// The hub runs until it is closed, also after a signal, so that a build that is being
	// interrupted ends in order.
	hub := eventlog.NewHub(log, eventlog.HubOptions{})
	hubEnded := make(chan error, 1)
	hubCtx := context.WithoutCancel(ctx)
	go func() { hubEnded <- hub.Run(hubCtx) }()
	defer func() {
		hub.Close()
		err = errors.Join(err, <-hubEnded)
	}()

	for _, target := range targets {
		target.Log = log.ID()
		target.Epoch = func(ctx context.Context) (uint32, error) {
			// The log learns of a new epoch only when it asks the stream for its head.
			_, err := log.Head(ctx)
			return log.Epoch(), err
		}
		if err := c.prepareProjection(ctx, std, target, log, hub, status); err != nil {
			return err
		}
	}
	std.Sayf("stop the service, and start this version with the same settings: it continues what was prepared")
	return nil
}

// findTargets returns the projections to prepare: those that the running service does not have, or
// that have another fingerprint there than in this program. A fingerprint stands for the version
// and the settings of a fold.
func (c *prepareCmd) findTargets(
	settings all.Settings, status *skeinv1.GetStatusResponse, std *command.Streams,
) (targets []rebuild.Target, err error) {
	stores := filepath.Join(c.Data, service.StoresDir)
	if _, err := os.Stat(stores); err != nil {
		return nil, fmt.Errorf("--data: there are no stores: %w", err)
	}

	var names []string // of all projections, for the error about an unknown one
	for _, newProjection := range all.Constructors(settings) {
		p := newProjection()
		names = append(names, p.Name())
		if len(c.Projections) > 0 && !slices.Contains(c.Projections, p.Name()) {
			continue
		}

		held, err := live.PartitionsOnDisk(vfs.Default, stores, p.Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name(), err)
		}
		fingerprint := projections.FingerprintOfPartitions(p, held).String()
		isSame := func(s *skeinv1.ProjectionStatus) bool {
			return s.GetName() == p.Name() && s.GetFingerprint() == fingerprint
		}
		if slices.ContainsFunc(status.GetProjections(), isSame) {
			std.Sayf("%s: nothing to prepare, the running service folds it in the same way", p.Name())
			continue
		}
		targets = append(targets, rebuild.Target{New: newProjection, Dir: stores, Partitions: held})
	}

	for _, name := range c.Projections {
		if !slices.Contains(names, name) {
			return nil, command.Usagef("there is no projection %q, only %v", name, names)
		}
	}
	return targets, nil
}

// openLog opens the log of the running service: on its NATS servers, or through the socket in its
// data directory.
func (c *prepareCmd) openLog(ctx context.Context) (*eventlog.Log, error) {
	config := c.Config("")
	config.Existing = true
	config.Logger = slog.New(slog.DiscardHandler)
	if c.NATS == "" {
		config.Socket = filepath.Join(c.Data, service.LogDir, embedded.SocketFile)
		if _, err := os.Stat(config.Socket); err != nil {
			return nil, fmt.Errorf("--data: the log of the running service cannot be reached: %w", err)
		}
	}
	return eventlog.Open(ctx, config)
}

// prepareProjection builds the store of one projection from the log, and prints a report.
func (c *prepareCmd) prepareProjection(
	ctx context.Context, std *command.Streams, target rebuild.Target, log *eventlog.Log, hub *eventlog.Hub, status *skeinv1.GetStatusResponse,
) error {
	subscribe := func(from events.Cursor, kinds events.KindSet) (store.Subscription, error) {
		if from == (events.Cursor{}) {
			from = log.Start() // a new store, whose cursor names no log yet
		}
		sub, err := hub.SubscribeKinds(from, kinds)
		if err != nil {
			return nil, err
		}
		return service.NewSubscription(sub, hub), nil
	}

	name := target.New().Name()
	var progress replay.Progress
	stopProgress := command.ShowPhases(std.Err, "prepare "+name, &progress)
	report, err := rebuild.Prepare(ctx, target, subscribe, rebuild.Options{
		Pace:     replay.Pace{Share: c.Share},
		Memory:   int(c.Memory),
		LogBytes: status.GetLog().GetBytes(),
		Progress: &progress,
	})
	stopProgress()
	if err != nil {
		return err
	}
	std.Sayf("%s: %s", name, report)
	return nil
}
