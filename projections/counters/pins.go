package counters

import (
	"slices"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// pinChange is a pin while one event changes it: its facts, and what followed from them before.
type pinChange struct {
	owner, id string
	row       pinfacts.Row
	before    pinfacts.State
	// possibleBoards are the boards that it is or might be on, before the event.
	possibleBoards []string
}

func (c *Counters) readPin(owner, id string) (*pinChange, error) {
	p := &pinChange{owner: owner, id: id}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return p, err
	}
	if p.row, err = pinfacts.Decode(row, id); err != nil {
		return nil, projections.RowError("pin", row)
	}
	p.before, p.possibleBoards = p.row.State(), p.row.PossibleBoards()
	return p, nil
}

func (c *Counters) movePin() error {
	p, err := c.readPin(c.ev.User, c.ev.Pin)
	if err != nil || p.row.HistoryClosed && p.before.Made == nil {
		return err
	}
	p.row.Add(pinfacts.Fact{Kind: pinfacts.Moved, At: c.ev.Time, Board: c.ev.Board})
	return c.writePin(p)
}

func (c *Counters) createPin() error {
	ev := c.ev
	p, err := c.readPin(ev.User, ev.Pin)
	if err != nil {
		return err
	}
	made := pinfacts.CreationOf(ev)
	switch {
	case !ev.Backfill:
		made.Attributes = nil // they count for the order of history only
		p.row.Add(pinfacts.Fact{Kind: pinfacts.Created, At: ev.Time, Board: ev.Board, Made: made})
	case p.row.HistoryClosed, p.row.History != nil && !made.Before(p.row.History, p.owner, p.id):
		return nil
	default:
		// If the board was deleted since, the pin went with it, unless it had been moved. Later deletions of boards
		// where it might be stand among its facts.
		life, err := c.readBoardDeletion(ev.User, ev.Board)
		if err != nil {
			return err
		}
		if p.row.History = made; life.firstTime != 0 {
			p.row.AddGone(life.firstTime, ev.Board)
		}
	}
	return c.writePin(p)
}

func (c *Counters) deletePin() error {
	p, err := c.readPin(c.ev.User, c.ev.Pin)
	if err != nil {
		return err
	}
	p.row.CloseHistory(pinfacts.State{}, c.ev.Time)
	return c.writePin(p)
}

// pinsOfBoardEnd ends the pins on a board, in steps: after each of them rows and counts agree, and it is not met again.
func (c *Counters) endPinsOnBoard() error {
	owner, board := c.ev.User, c.ev.Board
	return c.eraseRows(projections.AppendKey(nil, tagPossibleBoard, owner, board), func(rest []byte) error {
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
		p.row.Add(pinfacts.Fact{Kind: pinfacts.BoardGone, At: c.ev.Time, Board: board})
		return c.writePin(p)
	})
}

// writePin writes the facts of a pin, and turns the difference between what followed from them before and now into rows and counts.
func (c *Counters) writePin(p *pinChange) error {
	after := p.row.State()
	if p.row.HistoryClosed || c.batch.BackfillsClosed() || len(p.row.Live) > pinfacts.MaxLive {
		p.row.CloseHistory(after, c.ev.Time)
		for i := range p.row.Live {
			if made := p.row.Live[i].Made; made != nil {
				made.Attributes = nil
			}
		}
	}
	if err := c.writePinRows(p, after); err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagPin, p.owner, p.id)
	if after.Made == nil && p.row.HistoryClosed && c.batch.BackfillsClosed() {
		c.batch.Delete(c.key)
		return nil
	}
	c.value = p.row.Append(c.value[:0], p.id)
	c.batch.Set(c.key, c.value)
	return nil
}

// pinChanged writes everything but the row of the pin.
func (c *Counters) writePinRows(p *pinChange, after pinfacts.State) error {
	c.writePossibleBoards(p)
	if err := c.updatePinCounts(p, after); err != nil {
		return err
	}
	c.writeShownItem(p, after)
	return nil
}

// shows writes which item a living pin shows, and on which board.
func (c *Counters) writeShownItem(p *pinChange, after pinfacts.State) {
	was, is := p.before.Made, after.Made
	if was != nil && (is == nil || is.Item != was.Item) {
		c.key = projections.AppendKey(c.key[:0], tagShownItem, p.owner, was.Item, p.id)
		c.batch.Delete(c.key)
	}
	if is != nil && (was == nil || is.Item != was.Item || after.Board != p.before.Board) {
		c.key = projections.AppendKey(c.key[:0], tagShownItem, p.owner, is.Item, p.id)
		c.batch.Set(c.key, []byte(after.Board))
	}
}

func (c *Counters) writePossibleBoards(p *pinChange) {
	now := p.row.PossibleBoards()
	for _, board := range p.possibleBoards {
		if !slices.Contains(now, board) {
			c.key = projections.AppendKey(c.key[:0], tagPossibleBoard, p.owner, board, p.id)
			c.batch.Delete(c.key)
		}
	}
	for _, board := range now {
		if !slices.Contains(p.possibleBoards, board) {
			c.key = projections.AppendKey(c.key[:0], tagPossibleBoard, p.owner, board, p.id)
			c.batch.Set(c.key, nil)
		}
	}
}

// countPins counts the pins of a user and of a board (I7).
func (c *Counters) updatePinCounts(p *pinChange, after pinfacts.State) error {
	was, is := p.before.Made != nil, after.Made != nil
	if was && is && p.before.Board == after.Board {
		return nil
	}
	if was {
		c.key = projections.AppendKey(c.key[:0], tagBoardPins, p.owner, p.before.Board)
		if err := c.addToCount(c.key, -1); err != nil {
			return err
		}
	}
	if is {
		c.key = projections.AppendKey(c.key[:0], tagBoardPins, p.owner, after.Board)
		if err := c.addToCount(c.key, 1); err != nil {
			return err
		}
	}
	switch {
	case is && !was:
		return c.addUserTallies(p.owner, userTallies{tallyPins: 1})
	case was && !is:
		return c.addUserTallies(p.owner, userTallies{tallyPins: -1})
	}
	return nil
}
