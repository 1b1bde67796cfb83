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

// applying is a tally that reports whether it is folding an event.
type applying struct {
	*tally.Tally
	now bool
}

func (a *applying) Apply(ev events.Event, b *projections.Batch) error {
	a.now = true
	defer func() { a.now = false }()
	return a.Tally.Apply(ev, b)
}

// TestLargeEventWaitsForTheDisk: while tables cannot be written, a fold waits with a bounded number of rows in memory,
// also inside a single event.
func TestLargeEventWaitsForTheDisk(t *testing.T) {
	items := make([]string, 100)
	for i := range items {
		items[i] = "item" + string(rune('0'+i/10)) + string(rune('0'+i%10))
	}
	envs := storetest.Envelopes([]events.Event{{Kind: events.Served, User: "ann", Items: items}})
	waits := make(chan struct{})
	folded := make(chan struct{})
	// The first table is written only when the fold waits, or has ended without.
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			select {
			case <-waits:
			case <-folded:
			}
		}
		return nil
	}))
	p := &applying{Tally: &tally.Tally{Copies: 50, Chunk: 7}}
	inside := false
	s := storetest.OpenTally(t, store.Options{
		FS: fs, Projection: p, Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10},
		Listener: store.Listener{Waited: sync.OnceFunc(func() {
			inside = p.now
			close(waits)
		})},
	})
	err := s.Fold(envs)
	close(folded)
	if err != nil {
		t.Fatal(err)
	}
	if !inside {
		t.Error("a single event was folded without waiting for the disk")
	}
	conformance.RowsOf(t, s).MustEqual(t, conformance.Straight(t, &tally.Tally{Copies: 50, Chunk: 7}, envs), "in the end")
}
