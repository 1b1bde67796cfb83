package graph_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// eventHistory collects live events, of one envelope each, a second apart.
type eventHistory struct{ events []events.Event }

// add adds an event, and sets its position and time.
func (h *eventHistory) add(ev events.Event) {
	n := len(h.events) + 1
	ev.Seq = uint64(n)
	ev.Time = histories.Start + events.Micros(n)*1_000_000
	h.events = append(h.events, ev)
}

// mustFoldIntoStore folds events into a new store in memory.
func mustFoldIntoStore(t *testing.T, bounds store.Bounds, history []events.Event) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{
		FS: vfs.NewMem(), Dir: "data", Projection: graph.New(), Bounds: bounds,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Fold(histories.Envelopes(history)); err != nil {
		t.Fatal(err)
	}
	return s
}

// mustReadRows returns every row of the projection: a map from keys to values, both in hexadecimal.
func mustReadRows(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()

	rows := map[string]string{}
	it := v.Iter([]byte{0}, nil)
	for it.Next() {
		if projections.IsRuntimeKey(it.Key()) {
			continue
		}
		rows[fmt.Sprintf("%x", it.Key())] = fmt.Sprintf("%x", it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// makeStarWithFans returns the events of a user, star, with n fans: some follow explicitly, some by
// board, some exclude a board, some have unfollowed, and some are blocked and mute the star.
func makeStarWithFans(n int) *eventHistory {
	history := &eventHistory{}
	for i := range n {
		fan := fmt.Sprintf("fan%d", i)
		history.add(events.Event{Kind: events.UserFollowed, User: fan, Peer: "star"})
		switch i % 6 {
		case 0:
			history.add(events.Event{Kind: events.BoardUnfollowed, User: fan, Peer: "star", Board: "art"})
		case 1:
			history.add(events.Event{Kind: events.UserUnfollowed, User: fan, Peer: "star"})
			history.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "star", Board: "art"})
		case 2:
			history.add(events.Event{Kind: events.UserUnfollowed, User: fan, Peer: "star"})
		case 3:
			history.add(events.Event{Kind: events.UserBlocked, User: "star", Peer: fan})
			history.add(events.Event{Kind: events.UserMuted, User: fan, Peer: "star"})
		case 4:
			history.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "star", Board: ""})
			history.add(events.Event{Kind: events.UserFollowed, User: "star", Peer: fan})
		}
	}
	return history
}

// TestErasedUserLeavesNoRow demands that, after the deletion of a user, no row has the user's id
// (I12), and that the remaining rows are those of a log in which the others only ever dealt with
// each other.
func TestErasedUserLeavesNoRow(t *testing.T) {
	history := makeStarWithFans(600)
	history.add(events.Event{Kind: events.UserFollowed, User: "fan0", Peer: "fan1"})
	history.add(events.Event{Kind: events.UserDeleted, User: "star"})
	got := mustReadRows(t, mustFoldIntoStore(t, store.Bounds{}, history.events))

	id := fmt.Sprintf("%x", events.AppendID(nil, "star"))
	tombstones := 0
	for key := range got {
		if strings.Contains(key, id) {
			t.Errorf("key %s has the id of the deleted user", key)
		}
		if key[4:6] == "22" {
			tombstones++
			delete(got, key)
		}
	}
	if tombstones != 1 {
		t.Errorf("got %d tombstones, want 1", tombstones)
	}

	// The last event but one is the only one that is not about the deleted user.
	last := len(history.events) - 1
	want := mustReadRows(t, mustFoldIntoStore(t, store.Bounds{}, history.events[last-1:last]))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestDeletionInStepsLeavesTheSameRows demands that a deletion that is committed in many steps
// leaves the same rows as one that is committed at once.
func TestDeletionInStepsLeavesTheSameRows(t *testing.T) {
	for _, end := range []events.Event{
		{Kind: events.UserDeleted, User: "star"},
		{Kind: events.BoardDeleted, User: "star", Board: "art"},
	} {
		t.Run(end.Kind.String(), func(t *testing.T) {
			history := makeStarWithFans(3000)
			history.add(end)
			history.add(events.Event{Kind: events.UserFollowed, User: "fan0", Peer: "star"})

			atOnce := mustReadRows(t, mustFoldIntoStore(t, store.Bounds{BatchBytes: 1 << 30}, history.events))
			inSteps := mustReadRows(t, mustFoldIntoStore(t, store.Bounds{BatchBytes: 4 << 10}, history.events))
			if diff := cmp.Diff(atOnce, inSteps); diff != "" {
				t.Errorf("rows (-at once +in steps):\n%s", diff)
			}
		})
	}
}

// TestEdgesWithoutEffectAreDroppedAfterImports demands that, once all backfills are closed, an edge
// by which nothing holds is dropped when an event changes it.
func TestEdgesWithoutEffectAreDroppedAfterImports(t *testing.T) {
	history := &eventHistory{}
	history.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	history.add(events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: "art"})
	history.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"})
	history.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "cid"})
	countEdgeRows := func() (rows int) {
		for key := range mustReadRows(t, mustFoldIntoStore(t, store.Bounds{}, history.events)) {
			if slices.Contains([]string{"10", "11", "12", "1c", "24", "25", "26", "27"}, key[4:6]) {
				rows++
			}
		}
		return rows
	}

	// There are two edges and a board edge at each end, three rows of regions, and two rows of
	// unlisted in-ends.
	if rows := countEdgeRows(); rows != 11 {
		t.Fatalf("got %d rows of edges before the imports are closed, want 11", rows)
	}

	history.add(events.Event{Kind: events.BackfillClosed})
	history.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"})
	history.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "cid"})
	if rows := countEdgeRows(); rows != 0 {
		t.Errorf("got %d rows of edges after the imports are closed, want 0", rows)
	}
}
