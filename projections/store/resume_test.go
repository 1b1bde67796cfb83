package store_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// TestResumeInsideEnvelope checks that after a crash inside a large event, the events before it in
// the envelope are not folded again. A play would be counted twice.
func TestResumeInsideEnvelope(t *testing.T) {
	items := make([]string, 100)
	for i := range items {
		items[i] = "item" + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	envs := storetest.Envelopes([]events.Event{
		{Kind: events.Played, User: "ann", Item: "x"},
		{Kind: events.Served, User: "ann", Items: items},
		storetest.Follow("ann", "cid"),
	})

	// When the fold reaches the third event, it has written about ten memtables, in several
	// commits. The first flush has some of them, so it ends inside the second event.
	fs := vfs.NewCrashableMem()
	flushed := make(chan struct{}, 1000)
	var crashed *vfs.MemFS
	observed := &observedTally{tally.New(), func() {}}
	eventCount := 0
	observed.beforeApply = func() {
		eventCount++
		if eventCount < 3 {
			return
		}
		<-flushed
		crashed = fs.CrashClone(vfs.CrashCloneCfg{})
	}

	s, err := store.Open(store.Options{
		FS: fs, Dir: "data", Projection: observed, Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 4 << 10},
		Listener: store.Listener{Flushed: func(store.FlushInfo) { flushed <- struct{}{} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, s, envs)
	conformance.Close(t, s)

	reopened := conformance.Open(t, crashed, tally.New(), store.Bounds{})
	if _, err := reopened.View(); err == nil {
		t.Error("view inside an event: got no error, want one")
	}
	conformance.Fold(t, reopened, envs)
	conformance.RowsOf(t, reopened).MustEqual(t, foldStraight(t, envs), "resumed")
	conformance.Close(t, reopened)
}
