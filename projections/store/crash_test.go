package store_test

import (
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// TestCrashLeavesPrefixOfLog cuts the power at every write to the file system. The store has no
// write-ahead log, so it must be at the end of a commit that was flushed, whatever the sizes of
// batches and memtables.
func TestCrashLeavesPrefixOfLog(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 12
	}
	for name, bounds := range map[string]store.Bounds{
		"a commit for each step":          {BatchBytes: 1, FlushBytes: 8 << 10},
		"several commits in a memtable":   {BatchBytes: 1 << 10, FlushBytes: 16 << 10},
		"batches larger than a memtable":  {BatchBytes: 32 << 10, FlushBytes: 4 << 10},
		"no flush before Flush is called": {},
	} {
		t.Run(name, func(t *testing.T) {
			counts := conformance.CheckCrashes(t, newTally, tally.History(4, n), bounds)
			t.Logf("%+v", counts)
		})
	}
}

// TestCrashInLargeEventLeavesPrefixOfLog cuts the power while events are folded that are much
// larger than a batch and a memtable together.
func TestCrashInLargeEventLeavesPrefixOfLog(t *testing.T) {
	items := make([]string, 50)
	for i := range items {
		items[i] = "item" + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	lists := [][]events.Event{
		{
			{Kind: events.Played, User: "ann", Item: "x"}, // folded twice, it would count twice
			{Kind: events.Served, User: "ann", Items: items},
			storetest.Follow("ann", "cid"),
		},
		storetest.One(events.Event{Kind: events.Reacted, User: "ann", Item: "x"}),
		{
			{Kind: events.Played, User: "ann", Item: "x"},
			{Kind: events.Played, User: "ann", Item: "x", Backfill: true, Source: "old", Offset: 3},
			{Kind: events.Served, User: "ann", Items: items, Backfill: true, Source: "old", Offset: 7, Time: 5},
			{Kind: events.Played, User: "ann", Item: "x", Backfill: true, Source: "old", Offset: 4},
			{Kind: events.Played, User: "ann", Item: "x", Backfill: true, Source: "old", Offset: 4},
		},
		{{Kind: events.UserDeleted, User: "ann"}, storetest.Follow("ann", "dan")},
	}

	bounds := store.Bounds{BatchBytes: 1 << 10, FlushBytes: 8 << 10}
	counts := conformance.CheckCrashes(t, newTally, storetest.Envelopes(lists...), bounds)
	t.Logf("%+v", counts)
	if counts.ImagesInsideEnvelope == 0 {
		t.Errorf("got %+v, want a crash inside an event", counts)
	}
}

// TestCrashWhileRecoveringLeavesPrefixOfLog cuts the power again while the rest of the log is
// folded after a first power cut.
func TestCrashWhileRecoveringLeavesPrefixOfLog(t *testing.T) {
	n := 12
	if testing.Short() {
		n = 4
	}
	bounds := store.Bounds{BatchBytes: 200, FlushBytes: 4 << 10}
	conformance.CheckCrashesDuringRecovery(t, newTally, tally.History(9, n), bounds)
}
