// Package pinstore has the facts that are kept about a pin, and derives the state of the pin from
// them. It reads and writes no rows.
//
// A pin lives from its creation to its deletion, or to the deletion of the board that it is on.
// History comes before all live facts in the order of facts, but it may arrive later. And what a
// live fact does depends on what was before it: the creation of a pin that lives is ignored, and so
// is the move of a pin that does not. So the live facts are kept until no history can matter any
// more, which is after a live deletion or when all backfills are closed:
//
//	first backfilled creation ─┐
//	                           ├─► State: whether the pin lives, on which board, from which creation
//	live facts, oldest first ──┘
//	                           └─► PossibleBoards: the boards whose deletion is a fact about the pin
//
// A projection that needs pins folds the facts itself, and keeps the [Row] of each pin in its own
// store.
package pinstore

import (
	"bytes"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Creation is the content of a pin_created event.
type Creation struct {
	Time        events.Micros
	Board, Item string
	// Repin is set if the event names a pin that the new one repeats.
	Repin bool
	// RepinOwner and RepinPin name that pin. RepinOwner is empty if the owner was deleted, or if
	// the projection does not keep it ([Creation.ForgetRepinOwner]). A projection that keeps it
	// must find the row again when that user is deleted.
	RepinOwner, RepinPin string
	Attributes           []byte
}

// CreationOf returns the content of a pin_created event.
func CreationOf(ev *events.Event) *Creation {
	return &Creation{
		Time: ev.Time, Board: ev.Board, Item: ev.Item, Repin: ev.RepinPin != "", RepinOwner: ev.RepinUser, RepinPin: ev.RepinPin,
		Attributes: ev.Attributes,
	}
}

// ForgetRepinOwner removes the name of the pin that the new one repeats. Of a backfilled creation
// the id of that pin stays, because it decides which of two creations with the same time is first.
func (c *Creation) ForgetRepinOwner(backfilled bool) {
	c.RepinOwner = ""
	if !backfilled {
		c.RepinPin = ""
	}
}

// backfillEvent returns the event of a backfilled creation as far as it is kept, to compare it with
// others.
func (c *Creation) backfillEvent(owner, pin string) *events.Event {
	return &events.Event{
		Kind: events.PinCreated, Backfill: true, Time: c.Time, User: owner, Pin: pin, Board: c.Board, Item: c.Item,
		RepinPin: c.RepinPin, Attributes: c.Attributes,
	}
}

// Before reports whether a backfilled creation comes before another one of the same pin in the
// order of facts.
func (c *Creation) Before(other *Creation, owner, pin string) bool {
	if c.Time != other.Time {
		return c.Time < other.Time
	}
	// Backfills of one time may arrive in any order, so their content decides.
	return bytes.Compare(c.backfillEvent(owner, pin).Canonical(), other.backfillEvent(owner, pin).Canonical()) < 0
}

// Fact is a live fact about a pin.
type Fact struct {
	Kind  FactKind
	At    events.Micros
	Board string
	// Creation is the content of a fact of kind FactCreated, and nil for others.
	Creation *Creation
}

// FactKind is the kind of a live fact.
type FactKind uint8

// The kinds of live facts. There is none for the deletion of the pin, because that closes the
// history of the pin instead.
const (
	FactCreated FactKind = iota + 1
	FactMoved
	// FactBoardDeleted means that the board was deleted, with the pins that were on it.
	FactBoardDeleted
)

// Edit is a live edit of a pin.
type Edit struct {
	At events.Micros
	// Attributes replace those of the creation.
	Attributes []byte
}

// Row has the facts that are kept about a pin. Its state follows from them, whenever history
// arrives.
type Row struct {
	// History is the first backfilled creation. It is nil if there was none, or once the history is
	// closed.
	History *Creation
	// HistoryClosed means that history is ignored, because a live fact ended the pin, because there
	// can be none any more, or because the pin has too many live facts.
	HistoryClosed bool
	// Live has the live facts, the oldest first. Once the history is closed, it has at most one
	// creation and one move. The creation of a pin that lives already is kept too: if history puts
	// the pin on a board that was deleted before that creation, then it counts.
	Live []Fact
	// Edit is the latest live edit, or nil if there was none. It is not among Live, because the
	// edits before it cannot matter: if the pin lived when it was edited last, this edit replaced
	// theirs, and if it did not live then, whatever they changed had ended.
	Edit *Edit
}

// State is the state of a pin.
type State struct {
	// Creation is the creation of the pin, or nil if the pin does not live.
	Creation *Creation
	Board    string
	// Edit is the latest edit of the pin since its creation, or nil if there was none.
	Edit *Edit
}

// Attributes returns the attributes of a pin that lives: those of its last edit or, without one,
// those of its creation.
func (s *State) Attributes() []byte {
	if s.Edit != nil {
		return s.Edit.Attributes
	}
	return s.Creation.Attributes
}

// Edited returns when the pin was last edited since its creation, or 0 if it was not.
func (s *State) Edited() events.Micros {
	if s.Edit != nil {
		return s.Edit.At
	}
	return 0
}

// RepinOwners returns the owners of the pins that the creations of the row repeat, each once, in no
// particular order.
func (r *Row) RepinOwners() []string {
	var owners []string
	add := func(c *Creation) {
		if c != nil && c.RepinOwner != "" && !slices.Contains(owners, c.RepinOwner) {
			owners = append(owners, c.RepinOwner)
		}
	}
	add(r.History)
	for i := range r.Live {
		add(r.Live[i].Creation)
	}
	return owners
}

// ForgetRepinOwner removes an owner who was deleted from the creations that repeat a pin of that
// user.
func (r *Row) ForgetRepinOwner(owner string) {
	if r.History != nil && r.History.RepinOwner == owner {
		r.History.ForgetRepinOwner(true)
	}
	for i := range r.Live {
		if c := r.Live[i].Creation; c != nil && c.RepinOwner == owner {
			c.ForgetRepinOwner(false)
		}
	}
}

// State derives the state of the pin by applying its facts in order.
func (r *Row) State() (s State) {
	if r.History != nil {
		s = State{Creation: r.History, Board: r.History.Board}
	}
	edit := r.Edit
	for i := range r.Live {
		f := &r.Live[i]
		// The edit takes its place among the facts by its time.
		if edit != nil && edit.At < f.At {
			s.applyEdit(edit)
			edit = nil
		}

		switch {
		case f.Kind == FactCreated && s.Creation == nil:
			s = State{Creation: f.Creation, Board: f.Board}
		case f.Kind == FactMoved && s.Creation != nil:
			s.Board = f.Board
		case f.Kind == FactBoardDeleted && s.Board == f.Board:
			s = State{}
		}
	}
	if edit != nil {
		s.applyEdit(edit)
	}
	return s
}

// applyEdit edits the pin if it lives.
func (s *State) applyEdit(edit *Edit) {
	if s.Creation != nil {
		s.Edit = edit
	}
}

// PossibleBoards returns the boards, in no particular order, on which the pin may be as far as live
// facts can tell. Which of them it is depends on history that has come or may still come. The
// current board is among them. The deletion of any of them is a fact about the pin.
func (r *Row) PossibleBoards() []string {
	var boards []string
	if r.History != nil {
		boards = append(boards, r.History.Board)
	}
	for i := range r.Live {
		switch f := &r.Live[i]; f.Kind {
		case FactCreated:
			if !slices.Contains(boards, f.Board) {
				boards = append(boards, f.Board)
			}
		case FactMoved:
			boards = append(boards[:0], f.Board)
		case FactBoardDeleted:
			boards = slices.DeleteFunc(boards, func(b string) bool { return b == f.Board })
		}
	}
	return boards
}

// MaxLiveFacts is how many live facts a row may have, so that no row grows without bound. The caller
// must close the history of a pin that has more: one that was created or moved again and again, and
// never deleted.
const MaxLiveFacts = 64

// Add adds a live fact, which must not be older than the others. It leaves out moves that cannot
// matter.
func (r *Row) Add(f Fact) {
	// isMove reports whether the fact that is so many places before the end is a move.
	isMove := func(back int) bool { return len(r.Live) >= back && r.Live[len(r.Live)-back].Kind == FactMoved }
	if f.Kind == FactMoved && isMove(1) {
		last := &r.Live[len(r.Live)-1]
		if last.Board == f.Board {
			return // the pin is on that board already
		}
		// Of several moves in a row, two matter. The last one says where the pin is. The first one
		// says from when on live facts alone tell its board, whatever its history (see
		// AddBoardDeletion).
		if isMove(2) {
			*last = f
			return
		}
	}
	r.Live = append(r.Live, f)
}

// AddBoardDeletion adds the deletion of a board at a time when it was not known that the pin was on
// the board. It puts the fact in its place by time.
//
// From its first move on, live facts tell the board of a pin, and the deletion of that board was
// added when it was folded. So AddBoardDeletion leaves out a deletion that comes after a move. If it
// added one there, the deletion might end a pin that was on another board at the time, because
// [Row.Add] has dropped the moves between the first and the last one.
func (r *Row) AddBoardDeletion(at events.Micros, board string) {
	i := 0 // the index of the first fact that is not older
	for i < len(r.Live) && r.Live[i].At < at {
		if r.Live[i].Kind == FactMoved {
			return
		}
		i++
	}
	// The times of live facts are unique, so a fact of this time is the same deletion. It was added
	// when it was folded, because the pin might have been on the board even without history.
	if i == len(r.Live) || r.Live[i].At != at {
		r.Live = slices.Insert(r.Live, i, Fact{Kind: FactBoardDeleted, At: at, Board: board})
	}
}

// CloseHistory drops the facts that only matter if history arrives. It keeps the state of the pin,
// as facts at the time at or, if the pin was edited, at the time of the edit. A state that does not
// live leaves no facts.
func (r *Row) CloseHistory(s State, at events.Micros) {
	*r = Row{HistoryClosed: true}
	if s.Creation == nil {
		return
	}

	creation := *s.Creation // a copy, because the caller may still use the state
	if creation.RepinOwner == "" {
		creation.RepinPin = "" // it only served to compare backfilled creations
	}
	if s.Edit != nil {
		r.Edit = s.Edit
		creation.Attributes = nil // the edit has replaced them
		at = s.Edit.At            // the edit must not come before the creation that it changes
	}

	r.Live = []Fact{{Kind: FactCreated, At: at, Board: creation.Board, Creation: &creation}}
	if s.Board != s.Creation.Board {
		r.Live = append(r.Live, Fact{Kind: FactMoved, At: at, Board: s.Board})
	}
}
