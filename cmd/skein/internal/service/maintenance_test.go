package service

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// TestRebuildWaitsForFailingVerification: a rebuild that finds a verification under way waits for
// its end and returns no error, even if the verification fails. It may well fail, because of the
// same damage that the rebuild is to repair. The verification can also end before the rebuild asks,
// so the test tries several times.
func TestRebuildWaitsForFailingVerification(t *testing.T) {
	t.Parallel()
	service, _ := mustRunService(t, t.TempDir())
	for range 20 {
		began := make(chan struct{})
		finish := make(chan struct{})
		verification := func(context.Context, *replay.Progress) (string, error) {
			close(began)
			<-finish
			return "", errors.New("the store is damaged")
		}
		if _, err := service.Operations.Start(operation.Verify, "graph", nil, verification); err != nil {
			t.Fatal(err)
		}
		<-began

		ended := make(chan error)
		go func() { ended <- service.rebuildAsOperation(t.Context(), service.Store("graph")) }()
		close(finish)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}

// mustRunService runs a service on a data directory, until the returned function is called or the
// test ends. It returns when the service is ready. Each of the functions changes the options.
func mustRunService(t *testing.T, dir string, change ...func(*Options)) (*Service, func()) {
	t.Helper()
	o := Options{
		Log:    eventlog.Config{Dir: filepath.Join(dir, LogDir)},
		Dir:    dir,
		Memory: Memory{Cache: 16 << 20, Queries: 1 << 20},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&o)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}

	// The context of the test ends before its cleanups, and would stop the service too early.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready := make(chan struct{})
	ended := make(chan error, 1)
	reportReady := func() error {
		close(ready)
		return nil
	}
	go func() { ended <- s.Run(ctx, l, reportReady) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, s.Close(context.WithoutCancel(ctx))); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	<-ready
	return s, stop
}
