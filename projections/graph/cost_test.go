package graph_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/store"
)

// countingReader is a reader that counts point reads, and the rows to which iterators move.
type countingReader struct {
	projections.Reader
	pointReads, rows int
}

func (r *countingReader) Get(key []byte) ([]byte, bool, error) {
	r.pointReads++
	return r.Reader.Get(key)
}

func (r *countingReader) Iter(lower, upper []byte) projections.Iterator {
	return &countingIterator{r.Reader.Iter(lower, upper), r}
}

type countingIterator struct {
	projections.Iterator
	reader *countingReader
}

func (i *countingIterator) Next() bool {
	i.reader.rows++
	return i.Iterator.Next()
}

// TestMutualsReadOneRowPerFollowee demands that the common followers of a viewer with few followees
// and a user with many followers take one point read for each followee and one for the viewer.
func TestMutualsReadOneRowPerFollowee(t *testing.T) {
	history := &eventHistory{}
	for i := range 2000 {
		history.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprintf("fan%d", i), Peer: "star"})
	}
	const followees = 30
	for i := range followees {
		history.add(events.Event{Kind: events.UserFollowed, User: "viewer", Peer: fmt.Sprintf("fan%d", i*100)})
	}
	v := mustView(t, mustFoldIntoStore(t, store.Bounds{}, history.events))

	reader := &countingReader{Reader: v}
	mutuals := graph.List{Kind: graph.Mutuals, User: "viewer", Peer: "star"}
	page, next, err := graph.NewQueries(reader).List(context.Background(), mutuals, nil, 1000)
	if err != nil || next != nil || len(page) != 20 {
		t.Fatalf("got %d mutuals, next %x: %v, want 20 and no next page", len(page), next, err)
	}
	if reader.pointReads > followees+1 || reader.rows > followees+2 {
		t.Errorf("got %d point reads and %d rows for %d followees, want at most %d and %d",
			reader.pointReads, reader.rows, followees, followees+1, followees+2)
	}
}

// TestPageReadsItsOwnRowsOnly demands that a page reads its own rows, however long the list is.
func TestPageReadsItsOwnRowsOnly(t *testing.T) {
	history := &eventHistory{}
	for i := range 3000 {
		history.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprintf("fan%d", i), Peer: "star"})
	}
	v := mustView(t, mustFoldIntoStore(t, store.Bounds{}, history.events))

	for _, kind := range []graph.ListKind{graph.Followers, graph.BoardFollowers} {
		reader := &countingReader{Reader: v}
		list := graph.List{Kind: kind, User: "star"}
		page, next, err := graph.NewQueries(reader).List(context.Background(), list, nil, 50)
		if err != nil || next == nil || len(page) != 50 {
			t.Fatalf("list %d: got %d entries, next %x: %v, want 50 and a next page", kind, len(page), next, err)
		}
		if reader.rows > 53 || reader.pointReads > 1 {
			t.Errorf("list %d: got %d rows and %d point reads for a page of 50, want at most 53 and 1",
				kind, reader.rows, reader.pointReads)
		}
	}
}
