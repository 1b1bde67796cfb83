package inbox

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
)

// creation is what a pin_created says.
type creation struct {
	time        events.Micros
	board, item string
	// repinUser and repinPin are the pin that it re-pins; empty: none. They are kept of history only, where they decide
	// which of two at one time is first: nothing else of what a user has may name another.
	repinUser, repinPin string
	attributes          []byte
}

func creationOf(ev *events.Event) *creation {
	c := &creation{time: ev.Time, board: ev.Board, item: ev.Item, attributes: ev.Attributes}
	if ev.Backfill {
		c.repinUser, c.repinPin = ev.RepinUser, ev.RepinPin
	}
	return c
}

// event returns the event again, to compare backfills by.
func (c *creation) event(owner, pin string) *events.Event {
	return &events.Event{
		Kind: events.PinCreated, Backfill: true, Time: c.time, User: owner, Pin: pin, Board: c.board, Item: c.item,
		RepinUser: c.repinUser, RepinPin: c.repinPin, Attributes: c.attributes,
	}
}

// before tells whether one backfilled creation of a pin comes before another in the order of facts.
func (c *creation) before(other *creation, owner, pin string) bool {
	if c.time != other.time {
		return c.time < other.time
	}
	return bytes.Compare(c.event(owner, pin).Canonical(), other.event(owner, pin).Canonical()) < 0
}

// pinFact is a live fact about a pin.
type pinFact struct {
	kind  pinFactKind
	at    events.Micros
	board string
	// made is the content of a creation.
	made *creation
}

type pinFactKind uint8

const (
	factCreated pinFactKind = iota + 1
	factMoved
	// factBoardGone: the board was deleted, with the pins that were on it.
	factBoardGone
)

// pinRow is what is kept of a pin: the facts from which its state follows, whenever history arrives. All history comes
// before all live facts, so what a live fact does to a pin depends on whether history has it already: a creation of a
// living pin is ignored, a move of a pin that is not there, too. Until no history can matter any more, which is after a
// live deletion or the end of all backfills, the live facts are kept.
type pinRow struct {
	// history is the first backfilled creation; nil once settled.
	history *creation
	// settled: no history counts, because a live fact ended the pin, or because there can be none any more.
	settled bool
	// live are the live facts, oldest first. Settled, they are at most one creation and one move. A creation of a pin that
	// lives is kept, too: history on a board that was deleted before it would make it count.
	live []pinFact
}

// pinState is a pin as it is: made is nil where it does not live.
type pinState struct {
	made  *creation
	board string
}

// state runs the facts in their order.
func (r *pinRow) state() (s pinState) {
	if r.history != nil {
		s = pinState{r.history, r.history.board}
	}
	for i := range r.live {
		f := &r.live[i]
		switch {
		case f.kind == factCreated && s.made == nil:
			s = pinState{f.made, f.board}
		case f.kind == factMoved && s.made != nil:
			s.board = f.board
		case f.kind == factBoardGone && s.board == f.board:
			s = pinState{}
		}
	}
	return s
}

// places are the boards on which the pin might be, in no order, as far as live facts can tell: what history came or comes
// decides which. The deletion of one of them is a fact about the pin.
func (r *pinRow) places() []string {
	var boards []string
	if r.history != nil {
		boards = append(boards, r.history.board)
	}
	for i := range r.live {
		switch f := &r.live[i]; f.kind {
		case factCreated:
			if !slices.Contains(boards, f.board) {
				boards = append(boards, f.board)
			}
		case factMoved:
			boards = append(boards[:0], f.board)
		case factBoardGone:
			boards = slices.DeleteFunc(boards, func(b string) bool { return b == f.board })
		}
	}
	return boards
}

// maxLive bounds the facts that are kept for history. A pin that was created or moved again and again without having been
// deleted itself is settled.
const maxLive = 64

// add adds a live fact.
func (r *pinRow) add(f pinFact) {
	if n := len(r.live); n > 1 && f.kind == factMoved && r.live[n-1].kind == factMoved && r.live[n-2].kind == factMoved {
		// The first of several moves tells when the pin left the board of its history, the last where it is.
		r.live[n-1] = f
		return
	}
	r.live = append(r.live, f)
}

// addGone adds that a board was deleted before it was known that the pin was on it.
func (r *pinRow) addGone(at events.Micros, board string) {
	i := 0
	for i < len(r.live) && r.live[i].at < at {
		i++
	}
	if i == len(r.live) || r.live[i].at != at {
		r.live = slices.Insert(r.live, i, pinFact{kind: factBoardGone, at: at, board: board})
	}
}

// settle forgets what only history would need.
func (r *pinRow) settle(s pinState, at events.Micros) {
	*r = pinRow{settled: true}
	if s.made == nil {
		return
	}
	made := *s.made
	made.repinUser, made.repinPin = "", ""
	r.live = []pinFact{{kind: factCreated, at: at, board: made.board, made: &made}}
	if s.board != s.made.board {
		r.live = append(r.live, pinFact{kind: factMoved, at: at, board: s.board})
	}
}

// The row of a pin, in varints and length-prefixed bytes: flags (1 settled, 2 history), the history, then each live fact:
// kind, time, board, and of a creation the content.

const (
	flagSettled = 1 << iota
	flagHistory
	pinFlags = 2
)

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func (c *creation) append(dst []byte, pin string) []byte {
	dst = binary.AppendUvarint(dst, uint64(c.time))
	dst = appendText(dst, c.board)
	item := c.item
	if item == pin {
		item = ""
	}
	dst = appendText(dst, item)
	dst = appendText(dst, c.repinUser)
	if c.repinUser != "" {
		dst = appendText(dst, c.repinPin)
	}
	return appendText(dst, string(c.attributes))
}

func (r *pinRow) append(dst []byte, pin string) []byte {
	var flags uint64
	if r.settled {
		flags |= flagSettled
	}
	if r.history != nil {
		flags |= flagHistory
	}
	dst = binary.AppendUvarint(dst, flags)
	if r.history != nil {
		dst = r.history.append(dst, pin)
	}
	for i := range r.live {
		f := &r.live[i]
		dst = append(dst, byte(f.kind))
		dst = binary.AppendUvarint(dst, uint64(f.at))
		dst = appendText(dst, f.board)
		if f.kind == factCreated {
			dst = f.made.append(dst, pin)
		}
	}
	return dst
}

// rowReader reads varints and texts, and remembers whether all were there.
type rowReader struct {
	rest []byte
	bad  bool
}

func (r *rowReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *rowReader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *rowReader) text() string { return string(r.bytes()) }

func (r *rowReader) creation(pin string) *creation {
	c := &creation{time: events.Micros(r.uvarint()), board: r.text(), item: r.text()}
	if c.item == "" {
		c.item = pin
	}
	if c.repinUser = r.text(); c.repinUser != "" {
		c.repinPin = r.text()
	}
	if b := r.bytes(); len(b) > 0 {
		c.attributes = bytes.Clone(b)
	}
	return c
}

func decodePin(row []byte, pin string) (p pinRow, err error) {
	r := rowReader{rest: row}
	flags := r.uvarint()
	if flags >= 1<<pinFlags {
		return p, errRow("pin", row)
	}
	p.settled = flags&flagSettled != 0
	if flags&flagHistory != 0 {
		p.history = r.creation(pin)
	}
	for len(r.rest) > 0 && !r.bad {
		f := pinFact{kind: pinFactKind(r.rest[0])}
		r.rest = r.rest[1:]
		f.at, f.board = events.Micros(r.uvarint()), r.text()
		switch f.kind {
		case factCreated:
			f.made = r.creation(pin)
		case factMoved, factBoardGone:
		default:
			r.bad = true
		}
		p.live = append(p.live, f)
	}
	if r.bad {
		return pinRow{}, errRow("pin", row)
	}
	return p, nil
}
