package counters

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// eraseItems removes what a user has of pins, likes and plays, in steps, from the homes that are held. The tallies of items stay but
// for the likes, which are the user's.
func (c *Counters) eraseItems() error {
	user := c.ev.User
	if err := c.endList(user); err != nil {
		return err
	}
	err := c.b.EachPartition(func(partition uint8) error {
		return c.drain(likesOf(nil, partition, user), func(rest []byte) error {
			item, err := cutLast(rest)
			if err != nil {
				return err
			}
			return c.endLike(user, item)
		})
	})
	if err == nil && c.b.Holds(user) {
		err = c.erasePins(user)
	}
	if err != nil {
		return err
	}
	return c.forgetBoards(user)
}

func (c *Counters) erasePins(user string) error {
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
	c.key = projections.AppendKey(c.key[:0], tagDoings, user)
	d, err := readDoings(c.b, c.key)
	if err != nil {
		return err
	}
	if d[ownPins] != 0 {
		return projections.RowError("pins of a deleted user", c.key)
	}
	c.b.Delete(c.key)
	return nil
}

func (c *Counters) erasePin(owner, id string) error {
	p, err := c.readPin(owner, id)
	if err != nil {
		return err
	}
	p.row = pinfacts.Row{HistoryClosed: true}
	if err := c.pinChanged(p, pinfacts.State{}); err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	c.b.Delete(c.key)
	return nil
}
