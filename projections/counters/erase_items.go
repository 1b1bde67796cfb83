package counters

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// eraseItems removes what a user has of pins, likes and plays, in steps. The tallies of items stay but for the likes, which
// are the user's.
func (c *Counters) eraseItems() error {
	user := c.ev.User
	err := c.drain(projections.AppendKey(nil, tagPin, user), func(rest []byte) error {
		id, err := cutLast(rest)
		if err != nil {
			return err
		}
		return c.erasePin(user, id)
	})
	if err != nil {
		return err
	}
	err = c.drain(projections.AppendKey(nil, tagLike, user), func(rest []byte) error {
		item, err := cutLast(rest)
		if err != nil {
			return err
		}
		return c.endLike(user, item)
	})
	if err != nil {
		return err
	}
	gone := projections.AppendKey(nil, tagBoardGone, user)
	err = c.drain(gone, func(rest []byte) error {
		c.key = append(append(c.key[:0], gone...), rest...)
		c.b.Delete(c.key)
		return nil
	})
	if err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagDoings, user)
	d, err := readDoings(c.b, c.key)
	if err != nil {
		return err
	}
	if d[ownPins] != 0 {
		return errRow("pins of a deleted user", c.key)
	}
	c.b.Delete(c.key)
	return nil
}

func (c *Counters) erasePin(owner, id string) error {
	p, err := c.readPin(owner, id)
	if err != nil {
		return err
	}
	p.row = pinfacts.Row{Settled: true}
	if err := c.pinChanged(p, pinfacts.State{}); err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	c.b.Delete(c.key)
	return nil
}
