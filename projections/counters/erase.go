package counters

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// eraseItems removes the pins, likes and plays of a user, in steps, from the homes that this store holds. The plays and re-pins of items
// stay counted; the likes are taken back, because a count of likes is the length of a list of users (I7).
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
