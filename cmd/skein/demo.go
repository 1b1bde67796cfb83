package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/gateway/console"
)

type demoCmd struct {
	// The variable is not SKEIN_PORT, which Kubernetes sets to a URL if a Service is named skein.
	Port     int    `help:"Port on this machine; when it is taken, a free one." default:"7411" env:"SKEIN_DEMO_PORT"`
	Exit     bool   `help:"End after the tour instead of serving on."`
	LogLevel string `help:"The least level of log messages: ${enum}." enum:"debug,info,warn,error" default:"warn"`
}

// Run serves a small world from a temporary directory, and prints a tour of it.
func (c *demoCmd) Run(ctx context.Context, std *command.Streams) (err error) {
	dir, err := os.MkdirTemp("", "skein-demo-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := c.listen(ctx)
	if err != nil {
		return err
	}
	return c.serve(ctx, std, l, service.Options{Dir: dir, Console: true}, func(ctx context.Context, url string, stop func()) error {
		if err := c.show(ctx, std, url, dir); err != nil {
			return err
		}
		if c.Exit {
			stop()
		}
		return nil
	})
}

// serve runs a service of the demo, to whose options serve adds those that all services of the demo
// have. It calls show once the service is ready, and returns when ctx ends or show has called stop.
func (c *demoCmd) serve(
	ctx context.Context, std *command.Streams, l net.Listener, o service.Options, show func(ctx context.Context, url string, stop func()) error,
) error {
	archive, err := bucket.NewDir(filepath.Join(o.Dir, flags.ArchiveDir))
	if err != nil {
		return errors.Join(err, l.Close())
	}
	logFlags := flags.LogFlags{LogFormat: "text", LogLevel: c.LogLevel}
	o.Log.Dir = filepath.Join(o.Dir, service.LogDir)
	o.Memory = service.Memory{Cache: 64 << 20, Queries: 1 << 20}
	o.Logger = logFlags.Logger(std.Err)
	o.Version = version().Version
	o.Maintenance = service.MaintenanceOptions{Archive: archive, AuditShare: 0.05, AutoRebuild: true}
	a, err := service.Open(ctx, o)
	if err != nil {
		return errors.Join(err, l.Close())
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	err = a.Run(ctx, l, func() error {
		if err := show(ctx, "http://"+l.Addr().String(), stop); err != nil && ctx.Err() == nil {
			return err
		}
		return nil
	})
	return errors.Join(err, a.Close(context.WithoutCancel(ctx)))
}

// listen listens on the port, or on a free one if it is taken, so that a second demo can run beside
// the first.
func (c *demoCmd) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port)))
	if err != nil {
		l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	return l, err
}

// show publishes the world, and walks the tour.
func (c *demoCmd) show(ctx context.Context, std *command.Streams, url, dir string) error {
	fmt.Fprintf(std.Out, "skein demo: a service at %s, with its data in %s\n", url, dir)
	api := (&command.ClientFlags{Server: url}).Client()
	w := newWorld()
	if err := w.publish(ctx, api); err != nil {
		return fmt.Errorf("the demo's world: %w", err)
	}
	fmt.Fprintf(std.Out, "A small world is in it: %d users, %d boards, %d pins, %d facts, the oldest two years old.\n"+
		"Every line that begins with $ below is a call that was just made; try them, and others.\n",
		len(people), len(demoBoards), len(demoPins), len(w.events))
	t := &tour{url: url, http: api.HTTP, out: std.Out}
	if err := t.makeAllCalls(ctx); err != nil {
		return fmt.Errorf("the tour: %w", err)
	}
	if err := c.showAddedNotifications(ctx, std); err != nil {
		return fmt.Errorf("the history of notifications: %w", err)
	}
	self := selfCommand()
	fmt.Fprintf(std.Out, "\nThe same from a terminal of your own, in another window:\n\n"+
		"  %s query feed ada --server %s\n  %s status --server %s\n\n", self, url, self, url)
	if !c.Exit {
		fmt.Fprintf(std.Out, "Two phones, in a browser: %s%s#/phones?left=ada&right=greta\n", url, console.Path)
		fmt.Fprintf(std.Out, "The console around them: %s%s\n", url, console.Path)
		fmt.Fprintf(std.Out, "Serving %s until you press Ctrl-C; then %s is removed.\n", url, dir)
	}
	return nil
}

// selfCommand returns the command by which the user has started the program: go run, whose binary
// is in a temporary directory, or its name.
func selfCommand() string {
	if path, err := os.Executable(); err == nil && strings.Contains(path, "go-build") {
		if version().Static { // in another window Go would compile everything again, with cgo
			return "CGO_ENABLED=0 go run ./cmd/skein"
		}
		return "go run ./cmd/skein"
	}
	return "skein"
}
