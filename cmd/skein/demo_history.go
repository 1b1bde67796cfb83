package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// lateProjection is the projection that the service of showAddedNotifications gets after a year.
const lateProjection = "notifications"

// popularUser is the user whose notifications showAddedNotifications prints: the first of people,
// to whom most of the year's events happen.
const popularUser = "greta"

// countOfBusyBell is the badge of a user who has not seen more groups of notifications than the
// service counts.
const countOfBusyBell = "100+"

// showAddedNotifications shows how a service gets a projection with its whole history. A second
// service, which has no notifications, as one of a version from before them, gets a year of events.
// Then skein replay prepare builds the notifications from its log while it runs, and the service is
// started again with all projections.
func (c *demoCmd) showAddedNotifications(ctx context.Context, std *command.Streams) (err error) {
	dir, err := os.MkdirTemp("", "skein-demo-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(std.Out, "\nA product gets notifications, and their history\n\n")

	err = c.serveShortly(ctx, std, service.Options{Dir: dir, Without: []string{lateProjection}}, func(ctx context.Context, url string) error {
		year := newYear()
		if err := year.publish(ctx, (&command.ClientFlags{Server: url}).Client()); err != nil {
			return err
		}
		fmt.Fprintf(std.Out, "A second service, at %s while this part lasts, has %d events of the last 365 days. It runs like a\n"+
			"version that had no notifications: the store of that projection is not on its disk, and the bell of %s does not work.\n",
			url, len(year.events), popularUser)
		err := runCommand(ctx, std, std.Out, "query", "count-notifications", popularUser, "--server", url)
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			return fmt.Errorf("query count-notifications does not fail without notifications: %w", err)
		}

		fmt.Fprintf(std.Out, "\nOne command of the present version builds the projection from the log, beside the running service.\n")
		return runCommand(ctx, std, std.Out, "replay", "prepare", "--data", dir, "--server", url)
	})
	if err != nil {
		return err
	}

	return c.serveShortly(ctx, std, service.Options{Dir: dir}, func(ctx context.Context, url string) error {
		fmt.Fprintf(std.Out, "\nThe service was stopped and started again as the present version. It continues what was prepared, and the bell has\n"+
			"a year of history.\n")
		if err := runCommand(ctx, std, std.Out, "replay", "status", lateProjection, "--server", url); err != nil {
			return err
		}

		var count, groups bytes.Buffer
		err := runCommand(ctx, std, io.MultiWriter(std.Out, &count), "query", "count-notifications", popularUser, "--server", url)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(count.String(), countOfBusyBell) {
			return fmt.Errorf("the badge of %s is %q, not %s", popularUser, count.String(), countOfBusyBell)
		}
		if err := runCommand(ctx, std, &groups, "query", "notifications", popularUser, "--all", "--server", url); err != nil {
			return err
		}
		printBothEnds(std.Out, groups.String())
		return nil
	})
}

// serveShortly is serve on a free port, for a service that ends when show returns.
func (c *demoCmd) serveShortly(
	ctx context.Context, std *command.Streams, o service.Options, show func(ctx context.Context, url string) error,
) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	o.Log.ListenOnSocket = true // skein replay prepare reads the log through the socket
	return c.serve(ctx, std, l, o, func(ctx context.Context, url string, stop func()) error {
		if err := show(ctx, url); err != nil {
			return err
		}
		stop()
		return nil
	})
}

// runCommand prints a command line of skein to standard output, runs it in a process of its own,
// and writes all that it prints to out.
func runCommand(ctx context.Context, std *command.Streams, out io.Writer, args ...string) error {
	fmt.Fprintf(std.Out, "$ %s %s\n", selfCommand(), strings.Join(args, " "))
	path, err := programPath()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = append([]string{os.Args[0]}, args...)
	cmd.Stdout = out
	cmd.Stderr = out
	// The variables that set flags are meant for a service of the user, and not for those of the
	// demo.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SKEIN_") })
	return cmd.Run()
}

// endLines is how many lines printBothEnds prints of each end.
const endLines = 4

// printBothEnds prints the first and the last lines of a text, and how many lines are between them.
func printBothEnds(w io.Writer, text string) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if between := len(lines) - 2*endLines; between > 0 {
		lines = slices.Concat(lines[:endLines], []string{fmt.Sprintf("… %d more lines …", between)}, lines[len(lines)-endLines:])
	}
	fmt.Fprintln(w, strings.Join(lines, "\n"))
}

// newYear returns a world of the last 365 days: each has some new pins, reactions to and re-pins of
// the newest ones, and follows. Users at the beginning of the list of people are more popular.
func newYear() *world {
	const (
		days             = 365
		pinsPerDay       = 2
		reactionsPerDay  = 14
		repinsPerDay     = 2
		followsPerDay    = 2
		pinsThatAreFound = 10 // the newest pins, to which users react
	)
	w := newEmptyWorld()
	user := func() string { return people[w.rng.IntN(len(people))] }
	popular := func() string {
		r := w.rng.Float64()
		return people[int(r*r*float64(len(people)))]
	}

	var pins []*skeinv1.Pin
	for day := days; day > 0; day-- {
		for n := range pinsPerDay {
			pin := &skeinv1.Pin{OwnerId: popular(), PinId: fmt.Sprintf("pin-%d", len(pins)+1)}
			w.addEvent(w.daysAgo(day).Add(time.Duration(n)*time.Minute), pinCreated(pin.GetOwnerId(), "", pin.GetPinId()))
			pins = append(pins, pin)
		}
		later := func() time.Time { return w.daysAgo(day).Add(time.Duration(10+w.rng.IntN(23*60)) * time.Minute) }
		found := pins[max(0, len(pins)-pinsThatAreFound):]
		for n := range reactionsPerDay + repinsPerDay {
			pin := found[w.rng.IntN(len(found))]
			if n < reactionsPerDay {
				w.addEvent(later(), reactedTo(user(), pin.GetOwnerId(), pin.GetPinId(), ""))
			} else {
				w.addEvent(later(), repinCreated(user(), pin.GetOwnerId(), pin.GetPinId()))
			}
		}
		for range followsPerDay {
			if follower, followed := user(), popular(); follower != followed {
				w.addEvent(later(), userFollowed(follower, followed))
			}
		}
	}
	w.numberEvents()
	return w
}
