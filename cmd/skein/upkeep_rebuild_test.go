package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/operation"
)

// TestRebuildBehindVerification: a verification in the way of a rebuild is waited for, however it ends: it fails for the damage that
// the rebuild is to heal. Which of the two is first is not told, so it is tried again and again.
func TestRebuildBehindVerification(t *testing.T) {
	t.Parallel()
	var service *app
	_, stop := startApp(t, t.TempDir(), slog.New(slog.DiscardHandler), func(o *appOptions) {
		o.works = func(a *app) works { service = a; return a.works() }
	})
	defer stop()
	for range 20 {
		began, let := make(chan struct{}), make(chan struct{})
		work := func(context.Context, *replay.Progress) (string, error) {
			close(began)
			<-let
			return "", errors.New("it is damaged")
		}
		if _, err := service.operations.Do(operation.Verify, "graph", nil, work); err != nil {
			t.Fatal(err)
		}
		<-began
		ended := make(chan error)
		go func() { ended <- service.rebuildUnasked(t.Context(), service.store("graph")) }()
		close(let)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
}
