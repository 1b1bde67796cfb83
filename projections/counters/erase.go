package counters

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinfacts"
)

// eraseItems removes the pins, likes and plays of a user, in steps, from the homes that this store holds. The plays and re-pins of items
// stay counted; the likes are taken back, because a count of likes is the length of a list of users (I7).
func (c *Counters) eraseUserRows() error {
	user := c.ev.User
	if err := c.eraseOwnerList(user); err != nil {
		return err
	}
	err := c.batch.EachPartition(func(partition uint8) error {
		return c.eraseRows(likesPrefix(nil, partition, user), func(rest []byte) error {
			item, err := cutLastID(rest)
			if err != nil {
				return err
			}
			return c.eraseLike(user, item)
		})
	})
	if err == nil && c.batch.Holds(user) {
		err = c.erasePins(user)
	}
	if err != nil {
		return err
	}
	return c.deleteBoardDeletions(user)
}

func (c *Counters) erasePins(user string) error {
	err := c.eraseRows(projections.AppendKey(nil, tagPin, user), func(rest []byte) error {
		id, err := cutLastID(rest)
		if err != nil {
			return err
		}
		return c.erasePin(user, id)
	})
	if err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagUserTallies, user)
	d, err := readUserTallies(c.batch, c.key)
	if err != nil {
		return err
	}
	if d[tallyPins] != 0 {
		return projections.RowError("pins of a deleted user", c.key)
	}
	c.batch.Delete(c.key)
	return nil
}

func (c *Counters) erasePin(owner, id string) error {
	p, err := c.readPin(owner, id)
	if err != nil {
		return err
	}
	p.row = pinfacts.Row{HistoryClosed: true}
	if err := c.writePinRows(p, pinfacts.State{}); err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	c.batch.Delete(c.key)
	return nil
}
