package inbox

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// pin is a pin while one event changes it: its facts, and what followed from them before.
type pin struct {
	owner, id string
	row       pinfacts.Row
	before    pinfacts.State
	// possibleBoards are the boards, before the event, on which the pin is not but would be if late history said so. The deletion of such
	// a board is a fact about the pin, and finds it by a row for each.
	possibleBoards []string
}

func (f *Inbox) readPin(owner, id string) (*pin, error) {
	p := &pin{owner: owner, id: id}
	row, ok, err := f.b.Get(projections.AppendKey(f.key[:0], tagPin, owner, id))
	if err != nil || !ok {
		return p, err
	}
	if p.row, err = decodePin(row, id); err != nil {
		return nil, err
	}
	p.before = p.row.State()
	p.possibleBoards = possibleBoardsOf(&p.row, p.before)
	return p, nil
}

func decodePin(row []byte, id string) (pinfacts.Row, error) {
	p, err := pinfacts.Decode(row, id)
	if err != nil {
		return p, errRow("pin", row)
	}
	return p, nil
}

// firstGone returns the time of the first live deletion of a board; 0 means that there was none.
func (f *Inbox) firstGone(owner, board string) (events.Micros, error) {
	row, ok, err := f.b.Get(projections.AppendKey(f.key[:0], tagBoardDeleted, owner, board))
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errRow("board deletion", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// possibleBoardsOf returns the boards where a pin is not but might be.
func possibleBoardsOf(r *pinfacts.Row, s pinfacts.State) []string {
	if r.HistoryClosed {
		return nil
	}
	return slices.DeleteFunc(r.PossibleBoards(), func(b string) bool { return s.Made != nil && b == s.Board })
}

func (f *Inbox) pinCreated() error {
	ev := f.ev
	if ev.Backfill {
		if erased, err := f.graph.Erased(*ev, f.b, ev.User); err != nil || erased {
			return err
		}
	}
	exists, err := f.graph.Pinned(*ev, f.b)
	if err != nil || !exists && !ev.Backfill {
		return err
	}
	if err := f.pushCreated(); err != nil || !f.b.Holds(ev.User) {
		return err
	}
	p, err := f.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}
	made := pinfacts.CreationOf(ev)
	switch {
	case !ev.Backfill:
		p.row.Add(pinfacts.Fact{Kind: pinfacts.Created, At: ev.Time, Board: ev.Board, Made: made})
	case p.row.HistoryClosed, p.row.History != nil && !made.Before(p.row.History, p.owner, p.id):
		return nil
	default:
		// If the board was deleted since, the pin went with it, unless it had been moved. Later deletions of boards
		// where it might be stand among its facts.
		gone, err := f.firstGone(ev.User, ev.Board)
		if err != nil {
			return err
		}
		if p.row.History = made; gone != 0 {
			p.row.AddGone(gone, ev.Board)
		}
	}
	return f.writePin(p)
}

func (f *Inbox) pinMoved() error {
	ev := f.ev
	exists, err := f.graph.Pinned(*ev, f.b)
	if err != nil || !exists {
		return err
	}
	if err := f.pushMoved(); err != nil || !f.b.Holds(ev.User) {
		return err
	}
	p, err := f.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}
	if p.row.HistoryClosed && p.before.Made == nil {
		return nil
	}
	p.row.Add(pinfacts.Fact{Kind: pinfacts.Moved, At: ev.Time, Board: ev.Board})
	return f.writePin(p)
}

func (f *Inbox) pinDeleted() error {
	p, err := f.readPin(f.ev.User, f.ev.Pin)
	if err != nil {
		return err
	}
	p.row.CloseHistory(pinfacts.State{}, f.ev.Time)
	return f.writePin(p)
}

// boardDeleted ends the pins on a board, in steps. It also tells the pins that late history may still put there.
func (f *Inbox) boardDeleted() error {
	owner, board := f.ev.User, f.ev.Board
	if !f.b.Holds(owner) {
		return nil
	}
	end := func(id string) error {
		p, err := f.readPin(owner, id)
		if err != nil {
			return err
		}
		if !slices.Contains(p.row.PossibleBoards(), board) {
			return errRow("pin on another board", []byte(id))
		}
		p.row.Add(pinfacts.Fact{Kind: pinfacts.BoardGone, At: f.ev.Time, Board: board})
		return f.writePin(p)
	}
	err := f.drain(projections.AppendKey(nil, tagBoardOutbox, owner, board), func(rest []byte) error {
		_, id, err := cutOutbox(rest)
		if err != nil {
			return err
		}
		return end(id)
	})
	if err != nil {
		return err
	}
	err = f.drain(projections.AppendKey(nil, tagPossibleBoard, owner, board), func(rest []byte) error {
		id, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		return end(id)
	})
	if err != nil || f.b.BackfillsClosed() {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagBoardDeleted, owner, board)
	if known, err := f.has(f.key); err != nil || known {
		return err
	}
	f.b.Set(f.key, binary.BigEndian.AppendUint64(f.value[:0], uint64(f.ev.Time)))
	return nil
}

// writePin writes the facts of a pin, and turns the difference between what followed from them before and now into rows of outboxes and
// counts. Every kind of event ends here, so an outbox and its count cannot come apart (I7).
func (f *Inbox) writePin(p *pin) error {
	after := p.row.State()
	if p.row.HistoryClosed || f.b.BackfillsClosed() || len(p.row.Live) > pinfacts.MaxLive {
		p.row.CloseHistory(after, f.ev.Time)
	}
	f.writePossibleBoards(p, after)
	if err := f.writeOutboxes(p, after); err != nil {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagPin, p.owner, p.id)
	if after.Made == nil && p.row.HistoryClosed && f.b.BackfillsClosed() {
		f.b.Delete(f.key)
		return nil
	}
	f.value = p.row.Append(f.value[:0], p.id)
	f.b.Set(f.key, f.value)
	return nil
}

// writePossibleBoards writes the rows by which the deletion of a board finds the pins that might be on it.
func (f *Inbox) writePossibleBoards(p *pin, after pinfacts.State) {
	now := possibleBoardsOf(&p.row, after)
	for _, board := range p.possibleBoards {
		if !slices.Contains(now, board) {
			f.key = projections.AppendKey(f.key[:0], tagPossibleBoard, p.owner, board, p.id)
			f.b.Delete(f.key)
		}
	}
	for _, board := range now {
		if !slices.Contains(p.possibleBoards, board) {
			f.key = projections.AppendKey(f.key[:0], tagPossibleBoard, p.owner, board, p.id)
			f.b.Set(f.key, nil)
		}
	}
}

// writeOutboxes moves a pin to where it now belongs in the outboxes of its owner and board, with their counts.
func (f *Inbox) writeOutboxes(p *pin, after pinfacts.State) error {
	was, is := p.before.Made != nil, after.Made != nil
	if was && is && p.before.Board == after.Board && p.before.Made.Time == after.Made.Time {
		return nil
	}
	f.outboxChanged(p.owner)
	if was {
		f.key = outboxKey(f.key[:0], p.owner, p.before.Made.Time, p.id)
		f.b.Delete(f.key)
		f.key = boardOutboxKey(f.key[:0], p.owner, p.before.Board, p.before.Made.Time, p.id)
		f.b.Delete(f.key)
		if err := f.countPins(p.owner, p.before.Board, -1); err != nil {
			return err
		}
	}
	if is {
		f.key = outboxKey(f.key[:0], p.owner, after.Made.Time, p.id)
		f.b.Set(f.key, []byte(after.Board))
		f.key = boardOutboxKey(f.key[:0], p.owner, after.Board, after.Made.Time, p.id)
		f.b.Set(f.key, nil)
		return f.countPins(p.owner, after.Board, 1)
	}
	return nil
}

// countPins adds to the number of pins of a user and of a board (I7).
func (f *Inbox) countPins(owner, board string, delta int64) error {
	for _, key := range [][]byte{projections.AppendKey(nil, tagPinCount, owner), projections.AppendKey(nil, tagBoardPinCount, owner, board)} {
		n, err := readCount(f.b, key)
		if err != nil {
			return err
		}
		if n += delta; n < 0 {
			return errRow("count below zero", key)
		}
		f.value = f.value[:0]
		if n > 0 {
			f.value = binary.AppendUvarint(f.value, uint64(n))
		}
		f.put(key, f.value)
	}
	return nil
}

func readCount(r projections.Reader, key []byte) (int64, error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	v, n := binary.Uvarint(row)
	if n != len(row) || v == 0 || v > 1<<62 {
		return 0, errRow("count", row)
	}
	return int64(v), nil
}
