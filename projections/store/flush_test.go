package store_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// applyTracker is a tally that knows whether its Apply is running.
type applyTracker struct {
	*tally.Tally
	isApplying bool
}

func (a *applyTracker) Apply(ev events.Event, b *projections.Batch) error {
	a.isApplying = true
	defer func() { a.isApplying = false }()
	return a.Tally.Apply(ev, b)
}

// TestLargeEventWaitsForTheDisk checks that a fold waits while tables cannot be written, also
// inside a single event, so that memory stays bounded.
func TestLargeEventWaitsForTheDisk(t *testing.T) {
	items := make([]string, 100)
	for i := range items {
		items[i] = "item" + string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	envs := storetest.Envelopes([]events.Event{{Kind: events.Served, User: "ann", Items: items}})

	// The first table cannot be written before the fold waits, or has ended without waiting.
	waits := make(chan struct{})
	folded := make(chan struct{})
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			select {
			case <-waits:
			case <-folded:
			}
		}
		return nil
	}))

	p := &applyTracker{Tally: &tally.Tally{Copies: 50, Chunk: 7}}
	waitedInside := false
	s := storetest.OpenTally(t, store.Options{
		FS: fs, Projection: p, Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10},
		Listener: store.Listener{Waited: sync.OnceFunc(func() {
			waitedInside = p.isApplying
			close(waits)
		})},
	})

	err := s.Fold(envs)
	close(folded)
	if err != nil {
		t.Fatal(err)
	}
	if !waitedInside {
		t.Error("a single event was folded without waiting for the disk, want a wait inside the event")
	}
	conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, &tally.Tally{Copies: 50, Chunk: 7}, envs), "in the end")
}
