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

// TestResumeInsideEnvelope: a crash after a large event was committed in part, and some of that flushed. The events of
// the envelope before the slot in the checkpoint are not folded again: one that counts would count twice.
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
	fs := vfs.NewCrashableMem()
	// The fold has written some ten memtables, commit by commit, when it reaches the last event: whatever the first
	// flush holds of them ends inside the second.
	flushed := make(chan struct{}, 1000)
	var crashed *vfs.MemFS
	w := &watched{tally.New(), func() {}}
	seen := 0
	w.before = func() {
		if seen++; seen < 3 {
			return
		}
		<-flushed
		crashed = fs.CrashClone(vfs.CrashCloneCfg{})
	}
	s, err := store.Open(store.Options{
		FS: fs, Dir: "data", Projection: w, Bounds: store.Bounds{BatchBytes: 1 << 10, FlushBytes: 4 << 10},
		Listener: store.Listener{Flushed: func(store.FlushInfo) { flushed <- struct{}{} }},
	})
	if err != nil {
		t.Fatal(err)
	}
	conformance.Fold(t, s, envs)
	conformance.Close(t, s)

	again := conformance.Open(t, crashed, tally.New(), store.Bounds{})
	if _, err := again.View(); err == nil {
		t.Error("an event that is half folded can be seen")
	}
	conformance.Fold(t, again, envs)
	if diff := conformance.RowsOf(t, again).Diff(straight(t, envs)); diff != "" {
		t.Error(diff)
	}
	conformance.Close(t, again)
}
