package counters

import (
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// pinChange is a pin while one event changes it: its facts, and what followed from them before the
// event.
type pinChange struct {
	owner, id string
	// row has the facts. The event is added to them.
	row pinstore.Row
	// before is the state of the pin before the event.
	before pinstore.State
	// possibleBoards are the boards that the pin was on or might have been on before the event.
	possibleBoards []string
}

// readPin returns a pin as it is before the event. A pin without a row has no facts.
func (c *Counters) readPin(owner, id string) (*pinChange, error) {
	p := &pinChange{owner: owner, id: id}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return p, err
	}

	p.row, err = pinstore.Decode(row, id)
	if err != nil {
		return nil, projections.RowError("pin", row)
	}
	p.before = p.row.State()
	p.possibleBoards = p.row.PossibleBoards()
	return p, nil
}

// movePin folds a pin_moved at the home of the owner.
func (c *Counters) movePin() error {
	p, err := c.readPin(c.ev.User, c.ev.Pin)
	if err != nil {
		return err
	}
	if p.row.HistoryClosed && p.before.Creation == nil {
		return nil // the pin does not live, and no history can make it live any more
	}

	p.row.Add(pinstore.Fact{Kind: pinstore.FactMoved, At: c.ev.Time, Board: c.ev.Board})
	return c.writePin(p)
}

// createPin folds a pin_created at the home of the owner.
func (c *Counters) createPin() error {
	ev := c.ev
	p, err := c.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}

	creation := pinstore.CreationOf(ev)
	creation.ForgetRepinOwner(ev.Backfill) // no list by heat depends on the owner
	switch {
	case !ev.Backfill:
		creation.Attributes = nil // they only decide the order of backfills
		p.row.Add(pinstore.Fact{Kind: pinstore.FactCreated, At: ev.Time, Board: ev.Board, Creation: creation})
	case p.row.HistoryClosed:
		return nil
	case p.row.History != nil && !creation.Before(p.row.History, p.owner, p.id):
		return nil // of several backfilled creations the first counts
	default:
		// If the board was deleted since, the pin was deleted with it, unless it had been moved.
		// Later deletions of boards on which it might be are already among its facts.
		deletion, err := c.readBoardDeletion(ev.User, ev.Board)
		if err != nil {
			return err
		}
		p.row.History = creation
		if deletion.firstTime != 0 {
			p.row.AddBoardDeletion(deletion.firstTime, ev.Board)
		}
	}
	return c.writePin(p)
}

// deletePin folds a pin_deleted at the home of the owner.
func (c *Counters) deletePin() error {
	p, err := c.readPin(c.ev.User, c.ev.Pin)
	if err != nil {
		return err
	}
	p.row.CloseHistory(pinstore.State{}, c.ev.Time)
	return c.writePin(p)
}

// endPinsOnBoard ends the pins on a board that is deleted, in steps. After each pin, rows and
// counts agree, and the pin is not met again.
func (c *Counters) endPinsOnBoard() error {
	owner, board := c.ev.User, c.ev.Board
	prefix := projections.AppendKey(nil, tagPossibleBoard, owner, board)
	return c.batch.EraseRows(prefix, func(rest []byte) error {
		id, err := cutLastID(rest)
		if err != nil {
			return err
		}
		p, err := c.readPin(owner, id)
		if err != nil {
			return err
		}
		if !slices.Contains(p.possibleBoards, board) {
			return projections.RowError("pin on another board", []byte(id))
		}

		p.row.Add(pinstore.Fact{Kind: pinstore.FactBoardDeleted, At: c.ev.Time, Board: board})
		return c.writePin(p)
	})
}

// writePin writes the facts of a pin, and the rows and counts that differ between its states before
// and after the event.
func (c *Counters) writePin(p *pinChange) error {
	after := p.row.State()

	// Facts that only late history would need are dropped once no history can matter, or once there
	// are too many.
	if p.row.HistoryClosed || c.batch.BackfillsClosed() || len(p.row.Live) > pinstore.MaxLiveFacts {
		p.row.CloseHistory(after, c.ev.Time)
		for i := range p.row.Live {
			if creation := p.row.Live[i].Creation; creation != nil {
				creation.Attributes = nil // they only decide the order of backfills
			}
		}
	}

	if err := c.writePinRows(p, after); err != nil {
		return err
	}

	// The row of a pin that does not live only keeps out history. Once all backfills are closed, no
	// history can come.
	c.key = projections.AppendKey(c.key[:0], tagPin, p.owner, p.id)
	if after.Creation == nil && p.row.HistoryClosed && c.batch.BackfillsClosed() {
		c.batch.Delete(c.key)
		return nil
	}
	c.value = p.row.Append(c.value[:0], p.id)
	c.batch.Set(c.key, c.value)
	return nil
}

// writePinRows writes everything that follows from the facts of a pin, but not the facts.
func (c *Counters) writePinRows(p *pinChange, after pinstore.State) error {
	c.writePossibleBoards(p)
	if err := c.updatePinCounts(p, after); err != nil {
		return err
	}
	c.writeShownItem(p, after)
	return nil
}

// writeShownItem writes the row that says which item a living pin shows, and on which board.
func (c *Counters) writeShownItem(p *pinChange, after pinstore.State) {
	before := p.before
	livedBefore := before.Creation != nil
	livesAfter := after.Creation != nil
	isSameItem := livedBefore && livesAfter && before.Creation.Item == after.Creation.Item

	if livedBefore && !isSameItem {
		c.key = projections.AppendKey(c.key[:0], tagShownItem, p.owner, before.Creation.Item, p.id)
		c.batch.Delete(c.key)
	}
	if livesAfter && (!isSameItem || before.Board != after.Board) {
		c.key = projections.AppendKey(c.key[:0], tagShownItem, p.owner, after.Creation.Item, p.id)
		c.batch.Set(c.key, []byte(after.Board))
	}
}

// writePossibleBoards writes the rows by which the deletion of a board finds the pin.
func (c *Counters) writePossibleBoards(p *pinChange) {
	boards := p.row.PossibleBoards()
	for _, board := range p.possibleBoards {
		if !slices.Contains(boards, board) {
			c.key = projections.AppendKey(c.key[:0], tagPossibleBoard, p.owner, board, p.id)
			c.batch.Delete(c.key)
		}
	}
	for _, board := range boards {
		if !slices.Contains(p.possibleBoards, board) {
			c.key = projections.AppendKey(c.key[:0], tagPossibleBoard, p.owner, board, p.id)
			c.batch.Set(c.key, nil)
		}
	}
}

// updatePinCounts updates the counts of living pins of the owner and of the boards (I7).
func (c *Counters) updatePinCounts(p *pinChange, after pinstore.State) error {
	livedBefore := p.before.Creation != nil
	livesAfter := after.Creation != nil
	if livedBefore && livesAfter && p.before.Board == after.Board {
		return nil
	}

	if livedBefore {
		c.key = projections.AppendKey(c.key[:0], tagBoardPins, p.owner, p.before.Board)
		if err := c.addToCount(c.key, -1); err != nil {
			return err
		}
	}
	if livesAfter {
		c.key = projections.AppendKey(c.key[:0], tagBoardPins, p.owner, after.Board)
		if err := c.addToCount(c.key, 1); err != nil {
			return err
		}
	}

	switch {
	case livesAfter && !livedBefore:
		return c.addUserTallies(p.owner, userTallies{tallyPins: 1})
	case livedBefore && !livesAfter:
		return c.addUserTallies(p.owner, userTallies{tallyPins: -1})
	}
	return nil
}
