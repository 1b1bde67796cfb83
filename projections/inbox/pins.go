package inbox

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// pin is a pin while one event changes it: its facts, and what followed from them before.
type pinUpdate struct {
	owner, id   string
	row         pinfacts.Row
	stateBefore pinfacts.State
	// possibleBoards are the boards, before the event, on which the pin is not but would be if late history said so. The deletion of such
	// a board is a fact about the pin, and finds it by a row for each.
	possibleBoardsBefore []string
}

func (f *Inbox) readPin(owner, id string) (*pinUpdate, error) {
	p := &pinUpdate{owner: owner, id: id}
	row, ok, err := f.batch.Get(projections.AppendKey(f.key[:0], tagPin, owner, id))
	if err != nil || !ok {
		return p, err
	}
	if p.row, err = decodePin(row, id); err != nil {
		return nil, err
	}
	p.stateBefore = p.row.State()
	p.possibleBoardsBefore = otherPossibleBoards(&p.row, p.stateBefore)
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
func (f *Inbox) firstBoardDeletion(owner, board string) (events.Micros, error) {
	row, ok, err := f.batch.Get(projections.AppendKey(f.key[:0], tagBoardDeleted, owner, board))
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errRow("board deletion", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// possibleBoardsOf returns the boards where a pin is not but might be.
func otherPossibleBoards(r *pinfacts.Row, s pinfacts.State) []string {
	if r.HistoryClosed {
		return nil
	}
	return slices.DeleteFunc(r.PossibleBoards(), func(b string) bool { return s.Made != nil && b == s.Board })
}

func (f *Inbox) createPin() error {
	ev := f.ev
	if ev.Backfill {
		if erased, err := f.graph.Erased(*ev, f.batch, ev.User); err != nil || erased {
			return err
		}
	}
	exists, err := f.graph.Pinned(*ev, f.batch)
	if err != nil || !exists && !ev.Backfill {
		return err
	}
	if err := f.pushCreatedPin(); err != nil || !f.batch.Holds(ev.User) {
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
		gone, err := f.firstBoardDeletion(ev.User, ev.Board)
		if err != nil {
			return err
		}
		if p.row.History = made; gone != 0 {
			p.row.AddGone(gone, ev.Board)
		}
	}
	return f.writePin(p)
}

func (f *Inbox) movePin() error {
	ev := f.ev
	exists, err := f.graph.Pinned(*ev, f.batch)
	if err != nil || !exists {
		return err
	}
	if err := f.dropInboxesForMovedPin(); err != nil || !f.batch.Holds(ev.User) {
		return err
	}
	p, err := f.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}
	if p.row.HistoryClosed && p.stateBefore.Made == nil {
		return nil
	}
	p.row.Add(pinfacts.Fact{Kind: pinfacts.Moved, At: ev.Time, Board: ev.Board})
	return f.writePin(p)
}

func (f *Inbox) deletePin() error {
	p, err := f.readPin(f.ev.User, f.ev.Pin)
	if err != nil {
		return err
	}
	p.row.CloseHistory(pinfacts.State{}, f.ev.Time)
	return f.writePin(p)
}

// boardDeleted ends the pins on a board, in steps. It also tells the pins that late history may still put there.
func (f *Inbox) deleteBoard() error {
	owner, board := f.ev.User, f.ev.Board
	if !f.batch.Holds(owner) {
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
	err := f.eachRowInSteps(projections.AppendKey(nil, tagBoardOutbox, owner, board), func(rest []byte) error {
		_, id, err := cutOutboxKey(rest)
		if err != nil {
			return err
		}
		return end(id)
	})
	if err != nil {
		return err
	}
	err = f.eachRowInSteps(projections.AppendKey(nil, tagPossibleBoard, owner, board), func(rest []byte) error {
		id, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		return end(id)
	})
	if err != nil || f.batch.BackfillsClosed() {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagBoardDeleted, owner, board)
	if known, err := f.hasRow(f.key); err != nil || known {
		return err
	}
	f.batch.Set(f.key, binary.BigEndian.AppendUint64(f.value[:0], uint64(f.ev.Time)))
	return nil
}

// writePin writes the facts of a pin, and turns the difference between what followed from them before and now into rows of outboxes and
// counts. Every kind of event ends here, so an outbox and its count cannot come apart (I7).
func (f *Inbox) writePin(p *pinUpdate) error {
	after := p.row.State()
	if p.row.HistoryClosed || f.batch.BackfillsClosed() || len(p.row.Live) > pinfacts.MaxLive {
		p.row.CloseHistory(after, f.ev.Time)
	}
	f.writePossibleBoards(p, after)
	if err := f.writeOutboxes(p, after); err != nil {
		return err
	}
	f.key = projections.AppendKey(f.key[:0], tagPin, p.owner, p.id)
	if after.Made == nil && p.row.HistoryClosed && f.batch.BackfillsClosed() {
		f.batch.Delete(f.key)
		return nil
	}
	f.value = p.row.Append(f.value[:0], p.id)
	f.batch.Set(f.key, f.value)
	return nil
}

// writePossibleBoards writes the rows by which the deletion of a board finds the pins that might be on it.
func (f *Inbox) writePossibleBoards(p *pinUpdate, after pinfacts.State) {
	now := otherPossibleBoards(&p.row, after)
	for _, board := range p.possibleBoardsBefore {
		if !slices.Contains(now, board) {
			f.key = projections.AppendKey(f.key[:0], tagPossibleBoard, p.owner, board, p.id)
			f.batch.Delete(f.key)
		}
	}
	for _, board := range now {
		if !slices.Contains(p.possibleBoardsBefore, board) {
			f.key = projections.AppendKey(f.key[:0], tagPossibleBoard, p.owner, board, p.id)
			f.batch.Set(f.key, nil)
		}
	}
}

// writeOutboxes moves a pin to where it now belongs in the outboxes of its owner and board, with their counts.
func (f *Inbox) writeOutboxes(p *pinUpdate, after pinfacts.State) error {
	was, is := p.stateBefore.Made != nil, after.Made != nil
	if was && is && p.stateBefore.Board == after.Board && p.stateBefore.Made.Time == after.Made.Time {
		return nil
	}
	f.invalidateOutboxes(p.owner)
	if was {
		f.key = outboxKey(f.key[:0], p.owner, p.stateBefore.Made.Time, p.id)
		f.batch.Delete(f.key)
		f.key = boardOutboxKey(f.key[:0], p.owner, p.stateBefore.Board, p.stateBefore.Made.Time, p.id)
		f.batch.Delete(f.key)
		if err := f.addToPinCounts(p.owner, p.stateBefore.Board, -1); err != nil {
			return err
		}
	}
	if is {
		f.key = outboxKey(f.key[:0], p.owner, after.Made.Time, p.id)
		f.batch.Set(f.key, []byte(after.Board))
		f.key = boardOutboxKey(f.key[:0], p.owner, after.Board, after.Made.Time, p.id)
		f.batch.Set(f.key, nil)
		return f.addToPinCounts(p.owner, after.Board, 1)
	}
	return nil
}

// countPins adds to the number of pins of a user and of a board (I7).
func (f *Inbox) addToPinCounts(owner, board string, delta int64) error {
	for _, key := range [][]byte{projections.AppendKey(nil, tagPinCount, owner), projections.AppendKey(nil, tagBoardPinCount, owner, board)} {
		n, err := readCount(f.batch, key)
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
		f.setOrDelete(key, f.value)
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
