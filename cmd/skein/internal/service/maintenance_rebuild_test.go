package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// TestRebuildBehindVerification: a verification in the way of a rebuild is waited for, however it ends: it fails for the damage that
// the rebuild is to heal. Which of the two is first is not told, so it is tried again and again.
func TestRebuildBehindVerification(t *testing.T) {
	t.Parallel()
	service := mustRunService(t, t.TempDir())
	for range 20 {
		began, let := make(chan struct{}), make(chan struct{})
		verification := func(context.Context, *replay.Progress) (string, error) {
			close(began)
			<-let
			return "", errors.New("it is damaged")
		}
		if _, err := service.Operations.Start(operation.Verify, "graph", nil, verification); err != nil {
			t.Fatal(err)
		}
		<-began
		ended := make(chan error)
		go func() { ended <- service.rebuildAsOperation(t.Context(), service.Store("graph")) }()
		close(let)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// running runs the service on a data directory until the test ends.
func mustRunService(t *testing.T, dir string) *Service {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(t.Context(), Options{
		Log: eventlog.Config{Dir: filepath.Join(dir, LogDir)}, Dir: dir, Memory: Memory{Cache: 16 << 20, Queries: 1 << 20},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- a.Run(ctx, l, func() error { close(ready); return nil }) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, a.Close(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	})
	<-ready
	return a
}
