package live_test

import (
	"errors"
	"path"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
)

// TestFailedSyncOfCutOverKeepsOldGeneration checks a cut-over whose last sync fails. The file of
// generations names the next generation by then, which the failed cut-over deletes. So the file must
// name the old generation again, or the next start would begin an empty store.
func TestFailedSyncOfCutOverKeepsOldGeneration(t *testing.T) {
	envs := tally.History(7, 300)
	errSync := errors.New("sync fails")

	// Fail the first sync of the directory after the file of generations was replaced.
	const dir = "data/tally"
	var isArmed, wasReplaced atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch {
		case isArmed.Load() && op.Kind == errorfs.OpRename && path.Dir(op.Path) == dir:
			wasReplaced.Store(true)
		case isArmed.Load() && wasReplaced.Load() && op.Kind == errorfs.OpFileSync && op.Path == dir:
			isArmed.Store(false)
			return errSync
		}
		return nil
	}))

	o := withDir(liveOptions(fs))
	o.New = newTally
	l, err := live.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Serving().Fold(envs); err != nil {
		t.Fatal(err)
	}
	want := conformance.RowsOf(t, l.Serving())
	next := buildNext(t, l, envs)
	isArmed.Store(true)
	if _, err := l.CutOver(t.Context(), next); !errors.Is(err, errSync) {
		t.Fatalf("cut over: got error %v, want %v", err, errSync)
	}
	closeLive(t, l)

	reopened := openLive(t, liveOptions(fs))
	conformance.RowsOf(t, reopened.Serving()).MustEqual(t, want, "reopened")
}
