// Package ranks is a second derivation of who follows whom, for tests: the counts of users and boards, by other rules than those of the
// graph, so that each is held against the other on every history.
//
// The graph keeps the latest fact of each kind and derives relations. Here a fact has one rank in the order of facts, a pair keeps the
// ranks of its latest follow and unfollow, the edges to boards stand in the order of ranks, and when a threshold moves, exactly the
// edges between where it was and where it is change. What both share is the meaning (docs/semantics.md). It holds all partitions, and
// its rows cross them.
//
//	relations.go  what the events say: pairs.go, edges.go, boards.go
//	counts.go     what is counted; query.go: the questions
//	erase.go      the end of a user
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

// Kinds are all that make or end relations and boards.
func (*Ranks) Kinds() []events.Kind {
	return []events.Kind{
		events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved,
		events.UserBlocked, events.UserUnblocked, events.UserDeleted,
	}
}

// Route delivers everything to all.
func (*Ranks) Route(_ *events.Event, to *projections.Partitions) { to.AddAll() }

// Apply folds one event.
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
