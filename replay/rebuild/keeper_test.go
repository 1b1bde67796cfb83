package rebuild_test

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/rebuild"
)

// An automatic rebuild changes to new settings while the old generation answers.
func TestKeeperRebuildsOutdatedProjection(t *testing.T) {
	w := newTestLog(t)
	last := w.publish(100)
	settings := inbox.DefaultSettings()
	newInbox := func() projections.Projection { return inbox.New(settings) }
	fs := vfs.NewMem()

	settings.Threshold = 500
	l := w.openLive(newInbox, store.Options{FS: fs})
	if err := l.WaitFor(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	settings = inbox.DefaultSettings()
	l = w.openLive(newInbox, store.Options{FS: fs})
	if st := l.Status(); st.State != store.Outdated || st.Cursor.Seq != last || !st.Answers() {
		t.Errorf("got the status %+v, expected an outdated store that answers", st)
	}

	stopReading := w.startReading(l)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	var why error
	k := rebuild.Supervisor{Live: l, Adopt: true, Rebuild: func(ctx context.Context, cause error) error {
		why = cause
		_, err := rebuild.Rebuild(ctx, l, w.subscribeKinds, rebuild.Options{})
		return err
	}}
	go func() { done <- k.Run(ctx) }()

	for {
		changed := l.Changed()
		if st := l.Status(); st.Generation == 2 && st.State == store.Ready {
			break
		}
		<-changed
	}

	stopReading()
	cancel()
	if err := <-done; err != nil || !errors.Is(why, live.ErrOutdated) {
		t.Errorf("got %v after a rebuild because of %v, expected ErrOutdated as the cause", err, why)
	}

	w.checkRows(l, w.publish(1))
}
