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
type eventHistory struct{ list []events.Event }

func (s *eventHistory) add(ev events.Event) {
	n := len(s.list) + 1
	ev.Seq = uint64(n)
	ev.Time = histories.Start + events.Micros(n)*1_000_000
	s.list = append(s.list, ev)
}

// mustFold folds events into a store in memory.
func mustFold(t *testing.T, bounds store.Bounds, list []events.Event) *store.Store {
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
	if err := s.Fold(histories.Envelopes(list)); err != nil {
		t.Fatal(err)
	}
	return s
}

// readRows returns every row of the projection, with keys and values in hexadecimal.
func readRows(t *testing.T, s *store.Store) map[string]string {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	all := map[string]string{}
	it := v.Iter([]byte{0}, nil)
	for it.Next() {
		if projections.IsRuntimeKey(it.Key()) {
			continue
		}
		all[fmt.Sprintf("%x", it.Key())] = fmt.Sprintf("%x", it.Value())
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// makeStarWithFans returns the events of a user, star, with n fans: some follow explicitly, some by
// board, some exclude a board, some have unfollowed, and some are blocked and mute the star.
func makeStarWithFans(n int) *eventHistory {
	s := &eventHistory{}
	for i := range n {
		fan := fmt.Sprintf("fan%d", i)
		s.add(events.Event{Kind: events.UserFollowed, User: fan, Peer: "star"})
		switch i % 6 {
		case 0:
			s.add(events.Event{Kind: events.BoardUnfollowed, User: fan, Peer: "star", Board: "art"})
		case 1:
			s.add(events.Event{Kind: events.UserUnfollowed, User: fan, Peer: "star"})
			s.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "star", Board: "art"})
		case 2:
			s.add(events.Event{Kind: events.UserUnfollowed, User: fan, Peer: "star"})
		case 3:
			s.add(events.Event{Kind: events.UserBlocked, User: "star", Peer: fan})
			s.add(events.Event{Kind: events.UserMuted, User: fan, Peer: "star"})
		case 4:
			s.add(events.Event{Kind: events.BoardFollowed, User: fan, Peer: "star", Board: ""})
			s.add(events.Event{Kind: events.UserFollowed, User: "star", Peer: fan})
		}
	}
	return s
}

// TestErasedUserLeavesNoRow demands that, after the deletion of a user, no row has the user's id
// (I12), and that the remaining rows are those of a log in which the others only ever dealt with
// each other.
func TestErasedUserLeavesNoRow(t *testing.T) {
	s := makeStarWithFans(600)
	s.add(events.Event{Kind: events.UserFollowed, User: "fan0", Peer: "fan1"})
	s.add(events.Event{Kind: events.UserDeleted, User: "star"})
	id := fmt.Sprintf("%x", events.AppendID(nil, "star"))
	got := readRows(t, mustFold(t, store.Bounds{}, s.list))
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
		t.Errorf("%d tombstones, want 1", tombstones)
	}
	want := readRows(t, mustFold(t, store.Bounds{}, s.list[len(s.list)-2:len(s.list)-1]))
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
			s := makeStarWithFans(3000)
			s.add(end)
			s.add(events.Event{Kind: events.UserFollowed, User: "fan0", Peer: "star"})

			atOnce := readRows(t, mustFold(t, store.Bounds{BatchBytes: 1 << 30}, s.list))
			inSteps := readRows(t, mustFold(t, store.Bounds{BatchBytes: 4 << 10}, s.list))
			if diff := cmp.Diff(atOnce, inSteps); diff != "" {
				t.Errorf("rows (-at once +in steps):\n%s", diff)
			}
		})
	}
}

// TestEdgesWithoutEffectAreDroppedAfterImports demands that, once all backfills are closed, an edge
// by which nothing holds is dropped when an event changes it.
func TestEdgesWithoutEffectAreDroppedAfterImports(t *testing.T) {
	s := &eventHistory{}
	s.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	s.add(events.Event{Kind: events.BoardUnfollowed, User: "ann", Peer: "bob", Board: "art"})
	s.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"})
	s.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "cid"})
	edges := func() (n int) {
		for key := range readRows(t, mustFold(t, store.Bounds{}, s.list)) {
			if slices.Contains([]string{"10", "11", "12", "1c", "24", "25", "26", "27"}, key[4:6]) {
				n++
			}
		}
		return n
	}
	if n := edges(); n != 11 { // at each end two edges and a board edge; three rows of regions, and two that lead to in-ends
		t.Fatalf("%d rows of edges before the imports are closed, want 11", n)
	}
	s.add(events.Event{Kind: events.BackfillClosed})
	s.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "bob"})
	s.add(events.Event{Kind: events.UserUnfollowed, User: "ann", Peer: "cid"})
	if n := edges(); n != 0 {
		t.Errorf("%d rows of edges after the imports are closed, want 0", n)
	}
}
