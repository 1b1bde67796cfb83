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

// counting is a reader that counts point reads and the rows that iterators pass.
type counting struct {
	projections.Reader
	gets, rows int
}

func (c *counting) Get(key []byte) ([]byte, bool, error) {
	c.gets++
	return c.Reader.Get(key)
}

func (c *counting) Iter(lower, upper []byte) projections.Iterator {
	return &countingIterator{c.Reader.Iter(lower, upper), c}
}

type countingIterator struct {
	projections.Iterator
	c *counting
}

func (i *countingIterator) Next() bool { i.c.rows++; return i.Iterator.Next() }

// TestMutualsReadOneRowPerFollowee demands that the common followers of a viewer with few followees
// and a user with many followers take one point read for each followee and one for the viewer.
func TestMutualsReadOneRowPerFollowee(t *testing.T) {
	s := &eventHistory{}
	for i := range 2000 {
		s.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprintf("fan%d", i), Peer: "star"})
	}
	const followees = 30
	for i := range followees {
		s.add(events.Event{Kind: events.UserFollowed, User: "viewer", Peer: fmt.Sprintf("fan%d", i*100)})
	}
	v, err := mustFold(t, store.Bounds{}, s.list).View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	c := &counting{Reader: v}
	l := graph.List{Kind: graph.Mutuals, User: "viewer", Peer: "star"}
	page, next, err := graph.NewQueries(c).List(context.Background(), l, nil, 1000)
	if err != nil || next != nil || len(page) != 20 {
		t.Fatalf("got %d mutuals, next %x: %v, want 20 and no next page", len(page), next, err)
	}
	if c.gets > followees+1 || c.rows > followees+2 {
		t.Errorf("%d point reads and %d rows for %d followees, want at most %d and %d", c.gets, c.rows, followees, followees+1, followees+2)
	}
}

// TestPageReadsItsOwnRowsOnly demands that a page reads its own rows, however long the list is.
func TestPageReadsItsOwnRowsOnly(t *testing.T) {
	s := &eventHistory{}
	for i := range 3000 {
		s.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprintf("fan%d", i), Peer: "star"})
	}
	v, err := mustFold(t, store.Bounds{}, s.list).View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, kind := range []graph.ListKind{graph.Followers, graph.BoardFollowers} {
		c := &counting{Reader: v}
		page, next, err := graph.NewQueries(c).List(context.Background(), graph.List{Kind: kind, User: "star"}, nil, 50)
		if err != nil || next == nil || len(page) != 50 {
			t.Fatalf("got %d entries, next %x: %v, want 50 and a next page", len(page), next, err)
		}
		if c.rows > 53 || c.gets > 1 {
			t.Errorf("list %d: %d rows and %d point reads for a page of 50, want at most 53 and 1", kind, c.rows, c.gets)
		}
	}
}
