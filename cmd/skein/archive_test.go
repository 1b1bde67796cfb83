package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/cmd/skein/internal/flags"
	"github.com/skein-feed/skein/cmd/skein/internal/service"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

// warningHandler calls a function when a warning or an error is logged.
type warningHandler struct {
	slog.Handler
	onWarning func()
}

func (w *warningHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warningHandler) Handle(context.Context, slog.Record) error {
	w.onWarning()
	return nil
}

// TestStartWaitsUntilTheLogIsIdentified demands that a service does not start until the log says
// whether it is the log that was archived. In this test, another log answers on the same port in
// the end.
func TestStartWaitsUntilTheLogIsIdentified(t *testing.T) {
	t.Parallel()
	ns := startNATS(t)
	at := ns.ClientURL()
	publishTo(t, at, "bob", "cid")
	dir := t.TempDir()
	archiveFrom(t, dir, eventlog.Config{URL: at})

	log, err := eventlog.Open(t.Context(), eventlog.Config{URL: at, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close(t.Context())

	archiveBucket, err := bucket.NewDir(filepath.Join(dir, flags.ArchiveDir))
	if err != nil {
		t.Fatal(err)
	}
	logArchive, err := archive.Open(t.Context(), archiveBucket, log.ID())
	if err != nil {
		t.Fatal(err)
	}
	log.SetArchive(logArchive)

	if err := service.CheckArchiveEnd(t.Context(), log, logArchive, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}

	// Stop the log. The check must wait and log a warning.
	ns.Shutdown()
	ns.WaitForShutdown()
	checkEnded := make(chan error, 1)
	warned := make(chan struct{})
	go func() {
		checkEnded <- service.CheckArchiveEnd(t.Context(), log, logArchive, slog.New(&warningHandler{Handler: slog.DiscardHandler, onWarning: func() { close(warned) }}))
	}()
	select {
	case <-warned:
	case err := <-checkEnded:
		t.Fatalf("the check ended with %v while the log did not answer", err)
	}

	// Start another log on the same port. The check must end with an error.
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	other, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	other.Start()
	t.Cleanup(func() { other.Shutdown(); other.WaitForShutdown() })
	if err := <-checkEnded; !errors.Is(err, events.ErrNoLog) && !errors.Is(err, events.ErrLogShorter) {
		t.Errorf("with another log: got %v, expected ErrNoLog or ErrLogShorter", err)
	}
}
