package inbox

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// pinUpdate is a pin while one event changes it. It has the facts about the pin, which the event
// changes, and what followed from them before.
type pinUpdate struct {
	owner, id   string
	row         pinstore.Row
	stateBefore pinstore.State
	// possibleBoardsBefore are the boards, before the event, on which the pin is not but would be
	// if late history said so. The deletion of such a board is a fact about the pin, and finds the
	// pin by a row for each board.
	possibleBoardsBefore []string
	// repinOwnersBefore are the owners, before the event, of the pins that the pin repeats by any
	// of its facts. The deletion of such an owner finds the pin by a row for each owner.
	repinOwnersBefore []string
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
	p.repinOwnersBefore = p.row.RepinOwners()
	return p, nil
}

func decodePin(row []byte, id string) (pinstore.Row, error) {
	p, err := pinstore.Decode(row, id)
	if err != nil {
		return p, errRow("pin", row)
	}
	return p, nil
}

// firstBoardDeletion returns the time of the first live deletion of a board, or 0 if there was
// none.
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

// otherPossibleBoards returns the boards where a pin is not but might be, depending on history that
// may still come.
func otherPossibleBoards(r *pinstore.Row, s pinstore.State) []string {
	if r.HistoryClosed {
		return nil
	}
	return slices.DeleteFunc(r.PossibleBoards(), func(b string) bool { return s.Creation != nil && b == s.Board })
}

// createPin folds a pin_created: it tells the inboxes of this store, and at the home of the owner it
// adds the creation to the facts of the pin.
func (f *Inbox) createPin() error {
	ev := f.ev

	// All history comes before the deletion of its user, so a backfill about a deleted user is void.
	// If the owner of the repeated pin was deleted, the pin stays without the name of that user.
	repinOwnerErased := false
	if ev.Backfill {
		if erased, err := f.graph.IsErased(*ev, f.batch, ev.User); err != nil || erased {
			return err
		}
		if ev.RepinUser != "" {
			erased, err := f.graph.IsErased(*ev, f.batch, ev.RepinUser)
			if err != nil {
				return err
			}
			repinOwnerErased = erased
		}
	}

	// A live creation on a deleted board is void. A backfill comes before the deletion.
	boardExists, err := f.graph.ApplyPin(*ev, f.batch)
	if err != nil || !boardExists && !ev.Backfill {
		return err
	}

	// Readers may be in any partition, but the facts are at the home of the owner.
	if err := f.pushCreatedPin(); err != nil || !f.batch.Holds(ev.User) {
		return err
	}

	p, err := f.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}
	creation := pinstore.CreationOf(ev)
	if repinOwnerErased {
		creation.ForgetRepinOwner(true) // every deletion is later than history
	}

	if !ev.Backfill {
		p.row.Add(pinstore.Fact{Kind: pinstore.FactCreated, At: ev.Time, Board: ev.Board, Creation: creation})
		return f.writePin(p)
	}

	// Of several backfilled creations only the first in the order of facts counts.
	if p.row.HistoryClosed || p.row.History != nil && !creation.Before(p.row.History, p.owner, p.id) {
		return nil
	}
	p.row.History = creation

	// If the board was deleted since, the pin went with it, unless the pin had been moved. Later
	// deletions of boards where the pin might be are among its facts already.
	deleted, err := f.firstBoardDeletion(ev.User, ev.Board)
	if err != nil {
		return err
	}
	if deleted != 0 {
		p.row.AddBoardDeletion(deleted, ev.Board)
	}
	return f.writePin(p)
}

// movePin folds a pin_moved. A move to a deleted board is void.
func (f *Inbox) movePin() error {
	ev := f.ev
	boardExists, err := f.graph.ApplyPin(*ev, f.batch)
	if err != nil || !boardExists {
		return err
	}
	if err := f.dropInboxesForMovedPin(); err != nil || !f.batch.Holds(ev.User) {
		return err
	}

	p, err := f.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}

	// A pin that does not live cannot be moved. If history may still come, the move is kept: with
	// it, the pin may have lived.
	if p.row.HistoryClosed && p.stateBefore.Creation == nil {
		return nil
	}
	p.row.Add(pinstore.Fact{Kind: pinstore.FactMoved, At: ev.Time, Board: ev.Board})
	return f.writePin(p)
}

// editPin replaces the attributes of a pin. No list depends on them, so no inbox changes.
func (f *Inbox) editPin() error {
	p, err := f.readPin(f.ev.User, f.ev.Pin)
	if err != nil {
		return err
	}

	// A pin that does not live cannot be edited. If history may still come, the edit is kept: with
	// it, the pin may have lived.
	if p.stateBefore.Creation == nil && (p.row.HistoryClosed || f.batch.BackfillsClosed()) {
		return nil
	}
	p.row.Edit = &pinstore.Edit{At: f.ev.Time, Attributes: f.ev.Attributes}
	return f.writePin(p)
}

// deletePin folds a pin_deleted. No history can make the pin live again, because all history comes
// before this event.
func (f *Inbox) deletePin() error {
	p, err := f.readPin(f.ev.User, f.ev.Pin)
	if err != nil {
		return err
	}
	p.row.CloseHistory(pinstore.State{}, f.ev.Time)
	return f.writePin(p)
}

// deleteBoard ends the pins on a board, in steps. It also adds the deletion to the facts of pins
// that late history may still put on the board.
func (f *Inbox) deleteBoard() error {
	owner, board := f.ev.User, f.ev.Board
	if !f.batch.Holds(owner) {
		return nil
	}

	// addDeletion removes the row by which the pin was found, because the board is no possible
	// board of the pin any more.
	addDeletion := func(id string) error {
		p, err := f.readPin(owner, id)
		if err != nil {
			return err
		}
		if !slices.Contains(p.row.PossibleBoards(), board) {
			return errRow("pin on another board", []byte(id))
		}
		p.row.Add(pinstore.Fact{Kind: pinstore.FactBoardDeleted, At: f.ev.Time, Board: board})
		return f.writePin(p)
	}

	// The outbox of the board has the pins that are on it.
	err := f.batch.EraseRows(projections.AppendKey(nil, tagBoardOutbox, owner, board), func(rest []byte) error {
		_, id, err := cutOutboxKey(rest)
		if err != nil {
			return err
		}
		return addDeletion(id)
	})
	if err != nil {
		return err
	}

	// These rows have the pins that only late history would put on it.
	err = f.batch.EraseRows(projections.AppendKey(nil, tagPossibleBoard, owner, board), func(rest []byte) error {
		id, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		return addDeletion(id)
	})
	if err != nil || f.batch.BackfillsClosed() {
		return err
	}

	// Late history may bring pins of the board that have no row yet. For them the first deletion is
	// kept.
	f.key = projections.AppendKey(f.key[:0], tagBoardDeleted, owner, board)
	known, err := f.hasRow(f.key)
	if err != nil || known {
		return err
	}
	f.batch.Set(f.key, binary.BigEndian.AppendUint64(f.value[:0], uint64(f.ev.Time)))
	return nil
}

// writePin writes the facts of a pin, and the rows that follow from them and have changed: those of
// outboxes, counts and possible boards. Every event that changes a pin ends here, so an outbox and
// its count cannot disagree (I7).
func (f *Inbox) writePin(p *pinUpdate) error {
	after := p.row.State()

	// Facts that only late history would need are dropped once no history can matter, or once there
	// are too many.
	if p.row.HistoryClosed || f.batch.BackfillsClosed() || len(p.row.Live) > pinstore.MaxLiveFacts {
		p.row.CloseHistory(after, f.ev.Time)
	}

	f.writePossibleBoards(p, after)
	f.writeRepinOwners(p)
	if err := f.writeOutboxes(p, after); err != nil {
		return err
	}

	// The row of a pin that does not live only keeps out history, which cannot come once all
	// backfills are closed.
	f.key = projections.AppendKey(f.key[:0], tagPin, p.owner, p.id)
	if after.Creation == nil && p.row.HistoryClosed && f.batch.BackfillsClosed() {
		f.batch.Delete(f.key)
		return nil
	}
	f.value = p.row.Append(f.value[:0], p.id)
	f.batch.Set(f.key, f.value)
	return nil
}

// writePossibleBoards writes the rows by which the deletion of a board finds the pins that might be
// on it.
func (f *Inbox) writePossibleBoards(p *pinUpdate, after pinstore.State) {
	boardsAfter := otherPossibleBoards(&p.row, after)
	for _, board := range p.possibleBoardsBefore {
		if !slices.Contains(boardsAfter, board) {
			f.key = projections.AppendKey(f.key[:0], tagPossibleBoard, p.owner, board, p.id)
			f.batch.Delete(f.key)
		}
	}
	for _, board := range boardsAfter {
		if !slices.Contains(p.possibleBoardsBefore, board) {
			f.key = projections.AppendKey(f.key[:0], tagPossibleBoard, p.owner, board, p.id)
			f.batch.Set(f.key, nil)
		}
	}
}

// writeRepinOwners writes the rows by which the deletion of a user finds the pins that repeat a pin
// of that user.
func (f *Inbox) writeRepinOwners(p *pinUpdate) {
	ownersAfter := p.row.RepinOwners()
	for _, owner := range p.repinOwnersBefore {
		if !slices.Contains(ownersAfter, owner) {
			f.key = repinOfKey(f.key[:0], owner, p.owner, p.id)
			f.batch.Delete(f.key)
		}
	}
	for _, owner := range ownersAfter {
		if !slices.Contains(p.repinOwnersBefore, owner) {
			f.key = repinOfKey(f.key[:0], owner, p.owner, p.id)
			f.batch.Set(f.key, nil)
		}
	}
}

// writeOutboxes moves a pin from its place in the outboxes of its owner and board to the place that
// follows from the new state, and updates their counts.
func (f *Inbox) writeOutboxes(p *pinUpdate, after pinstore.State) error {
	before := p.stateBefore
	lived := before.Creation != nil
	lives := after.Creation != nil
	isAtSamePlace := lived && lives && before.Board == after.Board && before.Creation.Time == after.Creation.Time
	if isAtSamePlace {
		return nil
	}

	// Pages must not use what they have cached of the outboxes of the owner.
	f.invalidateOutboxes(p.owner)
	if lived {
		f.key = outboxKey(f.key[:0], p.owner, before.Creation.Time, p.id)
		f.batch.Delete(f.key)
		f.key = boardOutboxKey(f.key[:0], p.owner, before.Board, before.Creation.Time, p.id)
		f.batch.Delete(f.key)
		if err := f.addToPinCounts(p.owner, before.Board, -1); err != nil {
			return err
		}
	}
	if lives {
		f.key = outboxKey(f.key[:0], p.owner, after.Creation.Time, p.id)
		f.batch.Set(f.key, []byte(after.Board))
		f.key = boardOutboxKey(f.key[:0], p.owner, after.Board, after.Creation.Time, p.id)
		f.batch.Set(f.key, nil)
		return f.addToPinCounts(p.owner, after.Board, 1)
	}
	return nil
}

// addToPinCounts adds delta to the number of pins of a user and to that of a board (I7).
func (f *Inbox) addToPinCounts(owner, board string, delta int64) error {
	keys := [][]byte{
		projections.AppendKey(nil, tagPinCount, owner),
		projections.AppendKey(nil, tagBoardPinCount, owner, board),
	}
	for _, key := range keys {
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

// readCount returns the count in a row, or 0 if there is no row.
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
