package graph_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestFollowingListIsStoredOnlyWhileLong demands that the list of a user's follows is stored from
// the first edge beyond the threshold until half of the threshold is left, and that it reads the
// same throughout.
func TestFollowingListIsStoredOnlyWhileLong(t *testing.T) {
	s := &eventHistory{}
	addFollowEvent := func(peer int, kind events.Kind) {
		s.add(events.Event{Kind: kind, User: "ann", Peer: fmt.Sprintf("peer%04d", peer)})
	}
	for i := range graph.DefaultShortList {
		addFollowEvent(i, events.UserFollowed)
	}
	st := mustFold(t, store.Bounds{}, nil)
	done := 0
	// check folds the events that were added since its last call. The list must then have the users
	// from-to, the newest first, and as many stored rows as wantRows.
	check := func(when string, from, to, wantRows int) {
		t.Helper()
		if err := st.Fold(histories.Envelopes(s.list)[done:]); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		done = len(s.list)
		rows := 0
		for key := range readRows(t, st) {
			if key[4:6] == "13" && strings.Contains(key, fmt.Sprintf("%x", "ann\x00")) {
				rows++
			}
		}
		if rows != wantRows {
			t.Errorf("%s: the list of %d users has %d stored rows, want %d", when, to-from, rows, wantRows)
		}
		v, err := st.View()
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		c := &counting{Reader: v}
		var got []string
		var after graph.PageCursor
		for {
			page, next, err := graph.NewQueries(c).List(context.Background(), graph.List{Kind: graph.FollowingExplicit, User: "ann"}, after, 100)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			for _, e := range page {
				got = append(got, e.User)
			}
			if c.gets > 1 || c.rows > graph.DefaultShortList+1 {
				t.Errorf("%s: a page took %d rows and %d point reads, want at most %d and 1", when, c.rows, c.gets, graph.DefaultShortList+1)
			}
			c.gets = 0
			c.rows = 0
			if next == nil {
				break
			}
			after = next
		}
		first := fmt.Sprintf("peer%04d", to-1)
		last := fmt.Sprintf("peer%04d", from)
		if len(got) != to-from || len(got) > 0 && (got[0] != first || got[len(got)-1] != last) {
			t.Errorf("%s: the list has %d users, want %d from %s down to %s: %v", when, len(got), to-from, first, last, got)
		}
	}
	check("at the threshold", 0, graph.DefaultShortList, 0)
	addFollowEvent(graph.DefaultShortList, events.UserFollowed)
	check("above it", 0, graph.DefaultShortList+1, graph.DefaultShortList+1)
	addFollowEvent(0, events.UserUnfollowed)
	check("unfollowed: the edge stays, for late history", 1, graph.DefaultShortList+1, graph.DefaultShortList)
	for i := 1; i <= graph.DefaultShortList/2; i++ {
		s.add(events.Event{Kind: events.UserDeleted, User: fmt.Sprintf("peer%04d", i)})
	}
	check("with more than half", graph.DefaultShortList/2+1, graph.DefaultShortList+1, graph.DefaultShortList/2)
	s.add(events.Event{Kind: events.UserDeleted, User: "peer0000"})
	check("with half", graph.DefaultShortList/2+1, graph.DefaultShortList+1, 0)
	addFollowEvent(graph.DefaultShortList+1, events.UserFollowed)
	check("and one more", graph.DefaultShortList/2+1, graph.DefaultShortList+2, 0)
	s.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	check("deleted", 0, 0, 0)
}

// TestPageOfFewFollowsDoesNotReadManyMutes demands that a user who follows few others but has muted
// many has a stored list, so that a page does not read the mutes.
func TestPageOfFewFollowsDoesNotReadManyMutes(t *testing.T) {
	s := &eventHistory{}
	for i := range 3 * graph.DefaultShortList {
		s.add(events.Event{Kind: events.UserMuted, User: "ann", Peer: fmt.Sprintf("peer%d", i)})
	}
	s.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	v, err := mustFold(t, store.Bounds{}, s.list).View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	c := &counting{Reader: v}
	page, next, err := graph.NewQueries(c).List(context.Background(), graph.List{Kind: graph.FollowingExplicit, User: "ann"}, nil, 10)
	if err != nil || next != nil || len(page) != 1 || c.rows > 2 {
		t.Errorf("got %v with %d rows read, next %x: %v, want one follow, at most 2 rows and no next page", page, c.rows, next, err)
	}
}
