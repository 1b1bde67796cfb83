package counters

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// pinChange is a pin while one event changes it.
type pinChange struct {
	owner, id string
	row       pinfacts.Row
	before    pinfacts.State
	// places are the boards that it is or might be on, before the event.
	places []string
}

func (c *Counters) readPin(owner, id string) (*pinChange, error) {
	p := &pinChange{owner: owner, id: id}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	row, ok, err := c.b.Get(c.key)
	if err != nil || !ok {
		return p, err
	}
	if p.row, err = pinfacts.Decode(row, id); err != nil {
		return nil, errRow("pin", row)
	}
	p.before, p.places = p.row.State(), p.row.Places()
	return p, nil
}

// boardGone returns when a board was first deleted by a live event; 0: never.
func (c *Counters) boardGone(owner, board string) (events.Micros, error) {
	row, ok, err := c.b.Get(projections.AppendKey(c.key[:0], tagBoardGone, owner, board))
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errRow("board deletion", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// pinned folds a pin that is created or moved, to a board that exists or not.
func (c *Counters) pinned(exists bool) error {
	if !exists && !c.ev.Backfill {
		return nil
	}
	p, err := c.readPin(c.ev.User, c.ev.Pin)
	if err != nil {
		return err
	}
	if c.ev.Kind == events.PinCreated {
		return c.pinCreated(p)
	}
	if p.row.Settled && p.before.Made == nil {
		return nil
	}
	p.row.Add(pinfacts.Fact{Kind: pinfacts.Moved, At: c.ev.Time, Board: c.ev.Board})
	_, err = c.writePin(p)
	return err
}

func (c *Counters) pinCreated(p *pinChange) error {
	ev := c.ev
	made := pinfacts.CreationOf(ev)
	switch {
	case !ev.Backfill:
		made.Attributes = nil // they count for the order of history only
		p.row.Add(pinfacts.Fact{Kind: pinfacts.Created, At: ev.Time, Board: ev.Board, Made: made})
	case p.row.Settled, p.row.History != nil && !made.Before(p.row.History, p.owner, p.id):
		return nil
	default:
		// If the board was deleted since, the pin went with it, unless it had been moved. Later deletions of boards
		// where it might be stand among its facts.
		gone, err := c.boardGone(ev.User, ev.Board)
		if err != nil {
			return err
		}
		if p.row.History = made; gone != 0 {
			p.row.AddGone(gone, ev.Board)
		}
	}
	after, err := c.writePin(p)
	if err != nil || p.before.Made != nil || after.Made == nil || ev.RepinUser == "" {
		return err
	}
	it, err := c.readItem(ev.Item)
	if err != nil {
		return err
	}
	it.repins++
	if err := c.addHeat(ev.Item, &it, c.settings.RepinWeight); err != nil {
		return err
	}
	c.writeItem(ev.Item, &it)
	return nil
}

func (c *Counters) pinDeleted() error {
	p, err := c.readPin(c.ev.User, c.ev.Pin)
	if err != nil {
		return err
	}
	p.row.Settle(pinfacts.State{}, c.ev.Time)
	_, err = c.writePin(p)
	return err
}

// pinsOfBoardEnd ends the pins on a board, in steps: after each of them rows and counts agree, and it is not met again.
func (c *Counters) pinsOfBoardEnd() error {
	owner, board := c.ev.User, c.ev.Board
	err := c.drain(projections.AppendKey(nil, tagPlace, owner, board), func(rest []byte) error {
		id, err := cutLast(rest)
		if err != nil {
			return err
		}
		p, err := c.readPin(owner, id)
		if err != nil {
			return err
		}
		if !slices.Contains(p.places, board) {
			return errRow("pin on another board", []byte(id))
		}
		p.row.Add(pinfacts.Fact{Kind: pinfacts.BoardGone, At: c.ev.Time, Board: board})
		_, err = c.writePin(p)
		return err
	})
	if err != nil || c.b.BackfillsClosed() {
		return err
	}
	if gone, err := c.boardGone(owner, board); err != nil || gone != 0 {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagBoardGone, owner, board)
	c.b.Set(c.key, binary.BigEndian.AppendUint64(c.value[:0], uint64(c.ev.Time)))
	return nil
}

// writePin turns the difference between a pin before and now into rows, and returns what it is now.
func (c *Counters) writePin(p *pinChange) (pinfacts.State, error) {
	after := p.row.State()
	if p.row.Settled || c.b.BackfillsClosed() || len(p.row.Live) > pinfacts.MaxLive {
		p.row.Settle(after, c.ev.Time)
		for i := range p.row.Live {
			if made := p.row.Live[i].Made; made != nil {
				made.Attributes = nil
			}
		}
	}
	if err := c.pinChanged(p, after); err != nil {
		return after, err
	}
	c.key = projections.AppendKey(c.key[:0], tagPin, p.owner, p.id)
	if after.Made == nil && p.row.Settled && c.b.BackfillsClosed() {
		c.b.Delete(c.key)
		return after, nil
	}
	c.value = p.row.Append(c.value[:0], p.id)
	c.b.Set(c.key, c.value)
	return after, nil
}

// pinChanged writes everything but the row of the pin.
func (c *Counters) pinChanged(p *pinChange, after pinfacts.State) error {
	c.writePlaces(p)
	if err := c.countPins(p, after); err != nil {
		return err
	}
	return c.shows(p.owner, p.before, after)
}

func (c *Counters) writePlaces(p *pinChange) {
	now := p.row.Places()
	for _, board := range p.places {
		if !slices.Contains(now, board) {
			c.key = projections.AppendKey(c.key[:0], tagPlace, p.owner, board, p.id)
			c.b.Delete(c.key)
		}
	}
	for _, board := range now {
		if !slices.Contains(p.places, board) {
			c.key = projections.AppendKey(c.key[:0], tagPlace, p.owner, board, p.id)
			c.b.Set(c.key, nil)
		}
	}
}

// countPins counts the pins of a user and of a board (I7).
func (c *Counters) countPins(p *pinChange, after pinfacts.State) error {
	was, is := p.before.Made != nil, after.Made != nil
	if was && is && p.before.Board == after.Board {
		return nil
	}
	if was {
		c.key = projections.AppendKey(c.key[:0], tagBoardPins, p.owner, p.before.Board)
		if _, err := c.addCount(c.key, -1); err != nil {
			return err
		}
	}
	if is {
		c.key = projections.AppendKey(c.key[:0], tagBoardPins, p.owner, after.Board)
		if _, err := c.addCount(c.key, 1); err != nil {
			return err
		}
	}
	switch {
	case is && !was:
		return c.countDoings(p.owner, doings{ownPins: 1})
	case was && !is:
		return c.countDoings(p.owner, doings{ownPins: -1})
	}
	return nil
}
