// Package pinfacts is what is kept of a pin, and what follows from it. It is pure data: it reads and writes no rows.
//
// A pin lives from its creation to its deletion, or that of the board that it is on. All history comes before all live facts
// in the order of facts, whenever it arrives, so what a live fact does to a pin depends on whether history has it already: a
// creation of a living pin is ignored, a move of a pin that is not there, too. Until no history can matter any more, which is
// after a live deletion or the end of all backfills, the live facts are kept:
//
//	first backfilled creation ─┐
//	                           ├─► State: lives or not, on which board, as what was created
//	live facts, oldest first ──┘
//	                           └─► PossibleBoards: the boards whose deletion is a fact about the pin
//
// A projection that needs pins folds them on its own, and keeps a [Row] of each in a row of its own.
package pinfacts

import (
	"bytes"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Creation is what a pin_created says.
type Creation struct {
	Time        events.Micros
	Board, Item string
	// Repin: it names the pin that it repeats.
	Repin bool
	// RepinPin is the id of that pin; empty means that it is not kept. It is kept of history only, where it decides which of two
	// at one time is first. Whose pin it is, is not kept: nothing of what a user has may name another.
	RepinPin   string
	Attributes []byte
}

// CreationOf returns what an event of kind pin_created says.
func CreationOf(ev *events.Event) *Creation {
	c := &Creation{Time: ev.Time, Board: ev.Board, Item: ev.Item, Repin: ev.RepinPin != "", Attributes: ev.Attributes}
	if ev.Backfill {
		c.RepinPin = ev.RepinPin
	}
	return c
}

// event returns the event again, to compare backfills by.
func (c *Creation) event(owner, pin string) *events.Event {
	return &events.Event{
		Kind: events.PinCreated, Backfill: true, Time: c.Time, User: owner, Pin: pin, Board: c.Board, Item: c.Item,
		RepinPin: c.RepinPin, Attributes: c.Attributes,
	}
}

// Before reports whether one backfilled creation of a pin comes before another in the order of facts.
func (c *Creation) Before(other *Creation, owner, pin string) bool {
	if c.Time != other.Time {
		return c.Time < other.Time
	}
	return bytes.Compare(c.event(owner, pin).Canonical(), other.event(owner, pin).Canonical()) < 0
}

// Fact is a live fact about a pin.
type Fact struct {
	Kind  Kind
	At    events.Micros
	Board string
	// Made is the content of a creation.
	Made *Creation
}

// Kind is a kind of live facts.
type Kind uint8

// The kinds of live facts. A deletion is none: it closes the history of the pin.
const (
	Created Kind = iota + 1
	Moved
	// BoardGone: the board was deleted, with the pins that were on it.
	BoardGone
)

// Row is what is kept of a pin: the facts from which its state follows, whenever history arrives.
type Row struct {
	// History is the first backfilled creation; nil once the history is closed.
	History *Creation
	// HistoryClosed: no history counts, because a live fact ended the pin, or because there can be none any more.
	HistoryClosed bool
	// Live are the live facts, oldest first: once the history is closed, at most one creation and one move. A creation of a pin that
	// lives is kept, too: history on a board that was deleted before it would make it count.
	Live []Fact
}

// State is a pin as it is: Made is nil where it does not live.
type State struct {
	Made  *Creation
	Board string
}

// State runs the facts in their order.
func (r *Row) State() (s State) {
	if r.History != nil {
		s = State{r.History, r.History.Board}
	}
	for i := range r.Live {
		f := &r.Live[i]
		switch {
		case f.Kind == Created && s.Made == nil:
			s = State{f.Made, f.Board}
		case f.Kind == Moved && s.Made != nil:
			s.Board = f.Board
		case f.Kind == BoardGone && s.Board == f.Board:
			s = State{}
		}
	}
	return s
}

// PossibleBoards are the boards on which the pin might be, in no order, as far as live facts can tell: what history came or comes
// decides which. The one that it is on is among them. The deletion of one of them is a fact about the pin.
func (r *Row) PossibleBoards() []string {
	var boards []string
	if r.History != nil {
		boards = append(boards, r.History.Board)
	}
	for i := range r.Live {
		switch f := &r.Live[i]; f.Kind {
		case Created:
			if !slices.Contains(boards, f.Board) {
				boards = append(boards, f.Board)
			}
		case Moved:
			boards = append(boards[:0], f.Board)
		case BoardGone:
			boards = slices.DeleteFunc(boards, func(b string) bool { return b == f.Board })
		}
	}
	return boards
}

// MaxLive bounds the facts that are kept for history. The history of a pin that was created or moved again and again
// without having been deleted itself must be closed.
const MaxLive = 64

// Add adds a live fact.
func (r *Row) Add(f Fact) {
	moved := func(back int) bool { return len(r.Live) >= back && r.Live[len(r.Live)-back].Kind == Moved }
	if f.Kind == Moved && moved(1) {
		last := &r.Live[len(r.Live)-1]
		if last.Board == f.Board {
			return // it is there already
		}
		// Of several moves the first reports when the pin left the board of its history, the second if the first was to that
		// board, and the last where it is.
		if moved(2) && moved(3) {
			*last = f
			return
		}
	}
	r.Live = append(r.Live, f)
}

// AddGone adds that a board was deleted before it was known that the pin was on it.
func (r *Row) AddGone(at events.Micros, board string) {
	i := 0
	for i < len(r.Live) && r.Live[i].At < at {
		i++
	}
	if i == len(r.Live) || r.Live[i].At != at {
		r.Live = slices.Insert(r.Live, i, Fact{Kind: BoardGone, At: at, Board: board})
	}
}

// CloseHistory forgets what only history would need: the pin is in this state since at, or was before.
func (r *Row) CloseHistory(s State, at events.Micros) {
	*r = Row{HistoryClosed: true}
	if s.Made == nil {
		return
	}
	made := *s.Made
	made.RepinPin = ""
	r.Live = []Fact{{Kind: Created, At: at, Board: made.Board, Made: &made}}
	if s.Board != s.Made.Board {
		r.Live = append(r.Live, Fact{Kind: Moved, At: at, Board: s.Board})
	}
}
