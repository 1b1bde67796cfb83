package rebuild_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// An automatic rebuild changes to new settings while the old generation answers.
func TestKeeperRebuildsOutdatedProjection(t *testing.T) {
	w := newTestLog(t)
	last := w.publish(100)
	fs := vfs.NewMem()

	// Build a store with other settings.
	l := w.openLive(newOutdatedInbox, store.Options{FS: fs})
	if err := l.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	l = w.openLive(newInbox, store.Options{FS: fs})
	if st := l.Status(); st.State != store.Outdated || st.Cursor.Seq != last || !st.Answers() {
		t.Errorf("got the status %+v, expected an outdated store that answers", st)
	}

	// Run the supervisor until the new generation serves.
	stopReading := w.startReading(l)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	var rebuildCause error
	supervisor := rebuild.Supervisor{Live: l, Adopt: true, Rebuild: func(ctx context.Context, cause error) error {
		rebuildCause = cause
		_, err := rebuild.Rebuild(ctx, l, w.subscribeKinds, rebuild.Options{})
		return err
	}}
	go func() { ended <- supervisor.Run(ctx) }()
	for {
		changed := l.Changed()
		if st := l.Status(); st.Generation == 2 && st.State == store.Ready {
			break
		}
		<-changed
	}

	stopReading()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v, expected no error", err)
	}
	if !errors.Is(rebuildCause, live.ErrOutdated) {
		t.Errorf("got a rebuild because of %v, expected %v", rebuildCause, live.ErrOutdated)
	}

	w.checkRows(l, w.publish(1))
}
