// Package ranks derives the counts of users and boards a second time, for tests. Its rules differ from those of the graph, so tests
// compare the two on every generated history.
//
// The graph keeps the latest fact of each kind and derives relations from them. Here every fact has one rank in the order of facts. A
// pair keeps the ranks of its latest follow and unfollow, and the edges to boards are sorted by rank. When one of these thresholds
// moves, exactly the edges between its old and its new value change. The two derivations share only the semantics
// (docs/semantics.md). The projection holds all partitions, and its rows cross them.
//
//	relations.go  events of pairs and boards; pairs.go, edges.go, boards.go: their rows
//	counts.go     rows of counts; query.go: the queries
//	erase.go      the deletion of a user
package ranks

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Ranks is the projection. It folds into one store, from one goroutine.
type Ranks struct {
	b  *projections.Batch
	ev *events.Event
	// key and value are scratch: the batch copies what it is given.
	key, value []byte
}

// New returns the projection.
func New() *Ranks { return &Ranks{} }

// Name returns "ranks".
func (*Ranks) Name() string { return "ranks" }

// Version is 1: no store of it outlives a test.
func (*Ranks) Version() uint32 { return 1 }

// Kinds returns all kinds that make or end relations and boards.
func (*Ranks) Kinds() []events.Kind {
	return []events.Kind{
		events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved,
		events.UserBlocked, events.UserUnblocked, events.UserDeleted,
	}
}

// Route delivers every event to all partitions.
func (*Ranks) Route(_ *events.Event, to *events.Partitions) { to.AddAll() }

// Apply folds one event. History of a deleted user no longer counts.
func (c *Ranks) Apply(ev events.Event, b *projections.Batch) error {
	c.b, c.ev = b, &ev
	if ev.Backfill {
		if closed, err := c.erased(ev.User, ev.Peer); err != nil || closed {
			return err
		}
	}
	switch ev.Kind {
	case events.UserFollowed, events.UserUnfollowed, events.UserBlocked, events.UserUnblocked:
		return c.between()
	case events.BoardFollowed, events.BoardUnfollowed:
		return c.ofBoard()
	case events.BoardCreated, events.PinCreated, events.PinMoved:
		_, err := c.mentioned(ev.User, ev.Board)
		return err
	case events.BoardDeleted:
		return c.boardDeleted()
	case events.UserDeleted:
		return c.erase()
	}
	return fmt.Errorf("ranks: event of kind %s, which it does not read", ev.Kind)
}
