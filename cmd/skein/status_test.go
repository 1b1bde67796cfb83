package main

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"testing"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// printStatus runs `skein status` against a service.
func printStatus(api *command.Client) (code int, out string) {
	code, out, errOut := runInProcess("status", "--server", api.URL)
	return code, out + errOut
}

// checkLines checks that each pattern matches a line of the text.
func checkLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !regexp.MustCompile("(?m)" + line).MatchString(text) {
			t.Errorf("%q is not in\n%s", line, text)
		}
	}
}

// TestStatusIsPrintedInOneWrite keeps `skein status | grep -q` from ending the command by SIGPIPE.
func TestStatusIsPrintedInOneWrite(t *testing.T) {
	t.Parallel()
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(*service.Options) {})
	defer stop()
	var out writeCounter
	var errOut bytes.Buffer
	if code := run([]string{"status", "--server", api.URL}, &command.Streams{Out: &out, Err: &errOut}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	if out.writes != 1 {
		t.Errorf("%d bytes were written in %d pieces, expected 1", out.Len(), out.writes)
	}
}

// TestStatusReportsUnreachableLog demands that the status prints what is known without the log, and
// that its exit code tells scripts of the problem.
func TestStatusReportsUnreachableLog(t *testing.T) {
	t.Parallel()
	ns := startNATS(t)
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *service.Options) {
		o.Log = eventlog.Config{URL: ns.ClientURL()}
	})
	defer stop()
	mustPublish(t, api, userFollowed("ann", "bob"))
	if code, text := printStatus(api); code != exitOK {
		t.Errorf("%d\n%s", code, text)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	code, text := printStatus(api)
	if code != exitFailed {
		t.Errorf("exit code %d", code)
	}
	checkLines(t, text, "^log [0-9a-f]{32}, epoch 1$", "^  does not answer: ", "^  the last envelope that is known is 1$", "^graph +ready ")
}

// TestStatusShowsRunningOperations demands that each running operation is a line of the status,
// until it ends.
func TestStatusShowsRunningOperations(t *testing.T) {
	t.Parallel()
	var running *service.Service
	api, stop := startService(t, t.TempDir(), slog.New(slog.DiscardHandler), func(serviceOptions *service.Options) {
		serviceOptions.OfferedOperations = func(app *service.Service) service.OfferedOperations { running = app; return app.OfferedOperations() }
	})
	defer stop()
	started, finish := make(chan struct{}), make(chan struct{})
	op, err := running.Operations.Start(operation.Rebuild, "graph", nil, func(_ context.Context, p *replay.Progress) (string, error) {
		p.StartPhase(replay.Reading, "envelopes", 40)
		p.Add(10)
		close(started)
		<-finish
		return "", nil
	})
	if err != nil {
		t.Fatal(err)
	}
	<-started
	line := `^rebuild of graph \(operation ` + regexp.QuoteMeta(op.ID) + `\): `
	_, text := printStatus(api)
	checkLines(t, text, line+"running, reading 10 of 40 envelopes")
	close(finish)
	if err := running.Operations.Watch(t.Context(), op.ID, func(operation.Info) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, text = printStatus(api); regexp.MustCompile("(?m)" + line).MatchString(text) {
		t.Errorf("the status still shows the operation that has ended:\n%s", text)
	}
}
