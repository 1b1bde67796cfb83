package graph_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// TestFollowingListIsStoredOnlyWhileLong demands that the list of a user's follows is stored from
// the first edge beyond the threshold until half of the threshold is left, and that it reads the
// same throughout.
func TestFollowingListIsStoredOnlyWhileLong(t *testing.T) {
	history := &eventHistory{}
	addFollowEvent := func(kind events.Kind, peer int) {
		history.add(events.Event{Kind: kind, User: "ann", Peer: fmt.Sprintf("peer%04d", peer)})
	}
	s := mustFoldIntoStore(t, store.Bounds{}, nil)
	folded := 0

	// foldAndExpect folds the events that were added since its last call. Then ann must follow the
	// peers from first up to, but without, end, in falling order, and the list must have as many
	// stored rows as wantRows.
	foldAndExpect := func(situation string, first, end, wantRows int) {
		t.Helper()
		if err := s.Fold(histories.Envelopes(history.events)[folded:]); err != nil {
			t.Fatalf("%s: %v", situation, err)
		}
		folded = len(history.events)

		rows := 0
		for key := range mustReadRows(t, s) {
			if key[4:6] == "13" && strings.Contains(key, fmt.Sprintf("%x", "ann\x00")) {
				rows++
			}
		}
		if rows != wantRows {
			t.Errorf("%s: the list of %d users has %d stored rows, want %d", situation, end-first, rows, wantRows)
		}

		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		reader := &countingReader{Reader: v}
		list := graph.List{Kind: graph.FollowingExplicit, User: "ann"}
		var got []string
		var after graph.PageCursor
		for {
			page, next, err := graph.NewQueries(reader).List(context.Background(), list, after, 100)
			if err != nil {
				t.Fatalf("%s: %v", situation, err)
			}
			for _, entry := range page {
				got = append(got, entry.User)
			}
			if reader.pointReads > 1 || reader.rows > graph.DefaultShortList+1 {
				t.Errorf("%s: a page took %d rows and %d point reads, want at most %d and 1",
					situation, reader.rows, reader.pointReads, graph.DefaultShortList+1)
			}
			reader.pointReads = 0
			reader.rows = 0
			if next == nil {
				break
			}
			after = next
		}

		var want []string
		for peer := end - 1; peer >= first; peer-- {
			want = append(want, fmt.Sprintf("peer%04d", peer))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the list (-want +got):\n%s", situation, cmp.Diff(want, got))
		}
	}

	for i := range graph.DefaultShortList {
		addFollowEvent(events.UserFollowed, i)
	}
	foldAndExpect("at the threshold", 0, graph.DefaultShortList, 0)

	addFollowEvent(events.UserFollowed, graph.DefaultShortList)
	foldAndExpect("above the threshold", 0, graph.DefaultShortList+1, graph.DefaultShortList+1)

	// The edge stays after the unfollow, because late history may arrive.
	addFollowEvent(events.UserUnfollowed, 0)
	foldAndExpect("after an unfollow", 1, graph.DefaultShortList+1, graph.DefaultShortList)

	for i := 1; i <= graph.DefaultShortList/2; i++ {
		history.add(events.Event{Kind: events.UserDeleted, User: fmt.Sprintf("peer%04d", i)})
	}
	foldAndExpect("with more than half of the threshold",
		graph.DefaultShortList/2+1, graph.DefaultShortList+1, graph.DefaultShortList/2)

	history.add(events.Event{Kind: events.UserDeleted, User: "peer0000"})
	foldAndExpect("with half of the threshold", graph.DefaultShortList/2+1, graph.DefaultShortList+1, 0)

	addFollowEvent(events.UserFollowed, graph.DefaultShortList+1)
	foldAndExpect("with one more", graph.DefaultShortList/2+1, graph.DefaultShortList+2, 0)

	history.add(events.Event{Kind: events.UserDeleted, User: "ann"})
	foldAndExpect("after the deletion of ann", 0, 0, 0)
}

// TestPageOfFewFollowsDoesNotReadManyMutes demands that a user who follows few others but has muted
// many has a stored list, so that a page does not read the mutes.
func TestPageOfFewFollowsDoesNotReadManyMutes(t *testing.T) {
	history := &eventHistory{}
	for i := range 3 * graph.DefaultShortList {
		history.add(events.Event{Kind: events.UserMuted, User: "ann", Peer: fmt.Sprintf("peer%d", i)})
	}
	history.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	v := mustView(t, mustFoldIntoStore(t, store.Bounds{}, history.events))

	reader := &countingReader{Reader: v}
	list := graph.List{Kind: graph.FollowingExplicit, User: "ann"}
	page, next, err := graph.NewQueries(reader).List(context.Background(), list, nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(page) != 1 || next != nil {
		t.Errorf("got %v, next %x, want one follow and no next page", page, next)
	}
	if reader.rows > 2 {
		t.Errorf("the page read %d rows, want at most 2", reader.rows)
	}
}
