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

// Enabled is part of [slog.Handler].
func (w *warningHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle is part of [slog.Handler].
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
	natsURL := ns.ClientURL()
	publishTo(t, natsURL, "bob", "cid")
	dir := t.TempDir()
	archiveFrom(t, dir, eventlog.Config{URL: natsURL})

	// While the log answers, the check finds that the log continues its archive.
	log, err := eventlog.Open(t.Context(), eventlog.Config{URL: natsURL, Logger: slog.New(slog.DiscardHandler)})
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
		t.Fatalf("CheckArchiveEnd with the archived log: got error %v, want none", err)
	}

	// Stop the log. The check must wait and log a warning.
	ns.Shutdown()
	ns.WaitForShutdown()
	checkEnded := make(chan error, 1)
	warned := make(chan struct{})
	logger := slog.New(&warningHandler{Handler: slog.DiscardHandler, onWarning: func() { close(warned) }})
	go func() { checkEnded <- service.CheckArchiveEnd(t.Context(), log, logArchive, logger) }()
	select {
	case <-warned:
	case err := <-checkEnded:
		t.Fatalf("CheckArchiveEnd without a log: got error %v, want it to wait", err)
	}

	// Start another log on the same port. The check must end with an error.
	parsedURL, err := url.Parse(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(parsedURL.Port())
	if err != nil {
		t.Fatal(err)
	}
	otherServer, err := natsserver.NewServer(&natsserver.Options{
		Host: "127.0.0.1", Port: port, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 40,
	})
	if err != nil {
		t.Fatal(err)
	}
	otherServer.Start()
	t.Cleanup(func() {
		otherServer.Shutdown()
		otherServer.WaitForShutdown()
	})
	if err := <-checkEnded; !errors.Is(err, events.ErrNoLog) && !errors.Is(err, events.ErrLogShorter) {
		t.Errorf("CheckArchiveEnd with another log: got error %v, want ErrNoLog or ErrLogShorter", err)
	}
}
