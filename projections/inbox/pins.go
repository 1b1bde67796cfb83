package inbox

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// History is what an import publishes: backfilled events, all of which come before the live events
// in the order of facts. Late history is history that arrives after live events. It can change what
// the live events mean, so a pin keeps every fact that may matter then. The state of the pin is
// derived from its facts (package pinstore). Once its history is closed, the pin ignores history.

// pinUpdate is a pin while the fold of an event changes it. It has the facts about the pin, which
// the fold changes, and what followed from the facts before the event. writePin compares this with
// what follows from the changed facts.
type pinUpdate struct {
	owner, id string
	// row has the facts. It is empty if there is no row yet.
	row pinstore.Row
	// stateBefore is the state of the pin before the event. Its Creation is nil if the pin did not
	// live.
	stateBefore pinstore.State
	// possibleBoardsBefore are the boards on which the pin was not before the event, but on which
	// late history could have put it. The deletion of such a board is a fact about the pin. The pin
	// has a row for each of these boards (tagPossibleBoard), by which the deletion finds the pin.
	possibleBoardsBefore []string
	// repinOwnersBefore are the owners of all pins that any creation among the facts before the
	// event repeats. The pin has a row for each of these owners (tagRepinOf), by which the deletion
	// of the owner finds the pin.
	repinOwnersBefore []string
}

// readPin reads a pin that an event is about to change. The pin need not have a row.
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

// decodePin decodes the row of a pin.
func decodePin(row []byte, id string) (pinstore.Row, error) {
	p, err := pinstore.Decode(row, id)
	if err != nil {
		return p, errRow("pin", row)
	}
	return p, nil
}

// firstBoardDeletion returns the time of the first recorded deletion of a board, or 0 if there is
// none. deleteBoard records no deletion once all backfills are closed, because only backfills need
// the time.
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

// otherPossibleBoards returns the boards on which a pin in state s is not, but on which late
// history could put it.
func otherPossibleBoards(r *pinstore.Row, s pinstore.State) []string {
	if r.HistoryClosed {
		return nil
	}
	return slices.DeleteFunc(r.PossibleBoards(), func(board string) bool {
		return s.Creation != nil && board == s.Board
	})
}

// createPin folds a pin_created. In every partition, it delivers a live creation to the inboxes of
// readers; a backfilled one drops these inboxes. At the home of the owner, it adds the creation to
// the facts of the pin.
func (f *Inbox) createPin() error {
	ev := f.ev

	// All history comes before the deletion of a user, so a backfill about a deleted owner is void.
	// If only the owner of the repeated pin was deleted, the pin is created without that owner's
	// id.
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

	// A live creation on a deleted board is void. A backfilled one counts, because it comes before
	// the deletion of the board.
	boardExists, err := f.graph.ApplyPin(*ev, f.batch)
	if err != nil || !boardExists && !ev.Backfill {
		return err
	}

	// Readers may be in any partition, but the facts of the pin are at the home of the owner.
	if err := f.pushCreatedPin(); err != nil || !f.batch.Holds(ev.User) {
		return err
	}

	p, err := f.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}

	creation := pinstore.CreationOf(ev)
	if repinOwnerErased {
		creation.ForgetRepinOwner(true) // true: the creation is backfilled
	}

	if !ev.Backfill {
		p.row.Add(pinstore.Fact{
			Kind: pinstore.FactCreated, At: ev.Time, Board: ev.Board, Creation: creation,
		})
		return f.writePin(p)
	}

	// Of several backfilled creations, only the first in the order of facts counts, in whatever
	// order they arrive (I5).
	if p.row.HistoryClosed || p.row.History != nil && !creation.Before(p.row.History, p.owner, p.id) {
		return nil
	}
	p.row.History = creation

	// The board may have been deleted before this backfill arrived. Such a deletion ended the pin,
	// unless a live event had moved the pin to another board before. Add only the first deletion.
	// A later one matters only if a live fact had put the pin on the board again, and in that case
	// deleteBoard has added the later one to the facts already.
	deleted, err := f.firstBoardDeletion(ev.User, ev.Board)
	if err != nil {
		return err
	}
	if deleted != 0 {
		p.row.AddBoardDeletion(deleted, ev.Board)
	}
	return f.writePin(p)
}

// movePin folds a pin_moved. In every partition, it drops the inboxes of readers who follow the new
// board. At the home of the owner, it adds the move to the facts of the pin.
func (f *Inbox) movePin() error {
	ev := f.ev

	// A move to a deleted board is void.
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

	// A pin that does not live cannot be moved. But late history may still say that the pin lived
	// at the time of the move. So ignore the move only if the history of the pin is closed.
	if p.row.HistoryClosed && p.stateBefore.Creation == nil {
		return nil
	}
	p.row.Add(pinstore.Fact{Kind: pinstore.FactMoved, At: ev.Time, Board: ev.Board})
	return f.writePin(p)
}

// editPin folds a pin_edited, which replaces the attributes of a pin. No outbox or inbox depends on
// the attributes, so the event goes only to the home of the owner.
func (f *Inbox) editPin() error {
	p, err := f.readPin(f.ev.User, f.ev.Pin)
	if err != nil {
		return err
	}

	// A pin that does not live cannot be edited. But late history may still say that the pin lived
	// at the time of the edit. So ignore the edit only if no history of the pin can arrive.
	if p.stateBefore.Creation == nil && (p.row.HistoryClosed || f.batch.BackfillsClosed()) {
		return nil
	}
	p.row.Edit = &pinstore.Edit{At: f.ev.Time, Attributes: f.ev.Attributes}
	return f.writePin(p)
}

// deletePin folds a pin_deleted. An inbox keeps the sort key of the pin, and pages skip it.
func (f *Inbox) deletePin() error {
	p, err := f.readPin(f.ev.User, f.ev.Pin)
	if err != nil {
		return err
	}

	// All history comes before this event, so late history cannot make the pin live again.
	p.row.CloseHistory(pinstore.State{}, f.ev.Time)
	return f.writePin(p)
}

// deleteBoard folds a board_deleted, in steps ([projections.Batch.Step]). It adds the deletion to
// the facts of the pins on the board, which ends these pins. It also adds the deletion to the facts
// of the pins that late history may still put on the board.
func (f *Inbox) deleteBoard() error {
	owner := f.ev.User
	board := f.ev.Board

	// The event goes to all partitions, because the graph folds it, too. The pins are at the home
	// of the owner.
	if !f.batch.Holds(owner) {
		return nil
	}

	// EraseRows requires addDeletion to delete the row by which EraseRows has found the pin.
	// writePin deletes this row: after the deletion, the pin is not on the board, and late history
	// cannot put it there.
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

	// Pins on the board are found by the rows of the board's outbox.
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

	// Pins that late history may put on the board are found by the rows of possible boards.
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

	// Late history may also create pins on the board that no row names yet. createPin adds the
	// first deletion of the board to the facts of such a pin, so keep the time of this deletion.
	f.key = projections.AppendKey(f.key[:0], tagBoardDeleted, owner, board)
	known, err := f.hasRow(f.key)
	if err != nil || known {
		return err
	}
	f.batch.Set(f.key, binary.BigEndian.AppendUint64(f.value[:0], uint64(f.ev.Time)))
	return nil
}

// writePin writes the facts of a pin. It also writes or deletes the rows that follow from the
// facts, where they have changed: possible boards, owners of repeated pins, outboxes and counts.
// Every fold of an event that changes a pin ends here, except for the erasure of the owner
// (erasePin).
func (f *Inbox) writePin(p *pinUpdate) error {
	after := p.row.State()

	// Some facts are kept only for late history. Drop them if no history can matter any more. Also
	// drop them if the pin has too many facts; the pin then ignores history.
	if p.row.HistoryClosed || f.batch.BackfillsClosed() || len(p.row.Live) > pinstore.MaxLiveFacts {
		p.row.CloseHistory(after, f.ev.Time)
	}

	f.writePossibleBoards(p, after)
	f.writeRepinOwners(p)
	if err := f.writeOutboxes(p, after); err != nil {
		return err
	}

	// The row of a pin that does not live, and whose history is closed, has a single use: it keeps
	// late history from making the pin live. Once all backfills are closed, no history arrives, so
	// the row is deleted.
	f.key = projections.AppendKey(f.key[:0], tagPin, p.owner, p.id)
	if after.Creation == nil && p.row.HistoryClosed && f.batch.BackfillsClosed() {
		f.batch.Delete(f.key)
		return nil
	}
	f.value = p.row.Append(f.value[:0], p.id)
	f.batch.Set(f.key, f.value)
	return nil
}

// writePossibleBoards updates the rows by which the deletion of a board finds this pin if the pin
// is not on the board, but late history may put it there.
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

// writeRepinOwners updates the rows by which the deletion of a user finds this pin if it repeats a
// pin of that user.
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

// writeOutboxes moves a pin from its old place in the outboxes of its owner and board to the place
// that follows from the new state. It also updates the counts of both. No other function changes
// outboxes or their counts, so an outbox and its count cannot disagree (I7).
func (f *Inbox) writeOutboxes(p *pinUpdate, after pinstore.State) error {
	before := p.stateBefore
	lived := before.Creation != nil
	lives := after.Creation != nil
	isAtSamePlace := lived && lives && before.Board == after.Board && before.Creation.Time == after.Creation.Time
	if isAtSamePlace {
		return nil
	}

	// Views that show this event must not use what is cached of the owner's outboxes.
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

// addToPinCounts adds delta to the number of living pins of a user, and to that of one of the
// user's boards (I7).
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

		// A count of 0 has no row.
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

	// The upper bound is far above every real count. It keeps corrupt counts from overflowing.
	count, size := projections.Uvarint(row)
	if size != len(row) || count == 0 || count > 1<<62 {
		return 0, errRow("count", row)
	}
	return int64(count), nil
}
