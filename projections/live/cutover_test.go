package live_test

import (
	"context"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
)

// TestCutOverFollowsRunThatBeginsMeanwhile begins Run in the middle of a cut-over, and lets the old
// generation go ahead of the next one. The next generation must be folded, too, or the cut-over
// would wait for it in vain.
func TestCutOverFollowsRunThatBeginsMeanwhile(t *testing.T) {
	envs := tally.History(3, 200)
	log := storetest.NewLog(envs...)

	// The cut-over replaces the file of generations after the next generation has caught up with
	// the old one, and before it serves.
	var l *live.Live
	var isArmed atomic.Bool
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpRename && path.Dir(op.Path) == "data/tally" && isArmed.CompareAndSwap(true, false) {
			runLive(t, l, log.Subscribe)
			if err := l.WaitFor(t.Context(), envs[199].Seq()); err != nil {
				t.Errorf("the old generation: %v", err)
			}
		}
		return nil
	}))
	l = openLive(t, liveOptions(fs))
	if err := l.Serving().Fold(envs[:100]); err != nil {
		t.Fatal(err)
	}

	next := buildNext(t, l, envs[:100])
	isArmed.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := l.CutOver(ctx, next); err != nil {
		t.Fatal(err)
	}
	checkGenerations(t, l, 2, 1)
	conformance.RowsOf(t, l.Serving()).MustEqual(t, foldStraight(t, envs), "the second generation")
}

// hookedContext is a context that calls functions when a callee asks whether it has ended, and when
// a callee begins to wait for its end.
type hookedContext struct {
	context.Context

	onErr, onDone func()
}

func (c hookedContext) Err() error {
	c.onErr()
	return c.Context.Err()
}

func (c hookedContext) Done() <-chan struct{} {
	c.onDone()
	return c.Context.Done()
}

// TestGenerationWithViewsIsNotDeleted deletes the previous generation while a cut-over, which ends
// in the meantime, makes the generation of an open view the previous one. The view must be closed
// before the generation is deleted.
func TestGenerationWithViewsIsNotDeleted(t *testing.T) {
	envs := tally.History(3, 100)
	fs := vfs.NewMem()
	l := openLive(t, liveOptions(fs))
	if err := l.Serving().Fold(envs); err != nil {
		t.Fatal(err)
	}
	next := buildNext(t, l, envs)
	view, err := l.View()
	if err != nil {
		t.Fatal(err)
	}
	closeView := func() {
		if view != nil {
			if _, err := fs.Stat("data/tally/000001"); err != nil {
				t.Errorf("the generation of the open view: %v", err)
			}
			if err := view.Close(); err != nil {
				t.Error(err)
			}
			view = nil
		}
	}
	defer closeView()

	// The cut-over ends when DeletePrevious has begun, and found no generation that is being
	// closed.
	isCutOver := false
	ctx := hookedContext{
		Context: t.Context(),
		onErr: func() {
			if !isCutOver {
				isCutOver = true
				cutOver(t, l, next)
			}
		},
		onDone: closeView,
	}
	if err := l.DeletePrevious(ctx); err != nil {
		t.Fatal(err)
	}
	if view != nil {
		t.Error("DeletePrevious has returned while a view of the previous generation is open")
	}
	checkGenerations(t, l, 2, 0)
}
