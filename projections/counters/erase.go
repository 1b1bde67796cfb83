package counters

import (
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/pinstore"
)

// eraseUserRows removes the pins, reactions and plays of a user, in steps, as far as this store
// holds their homes. Plays and re-pins of items by the user stay counted. Reactions are taken back,
// because the number of reactions is the length of a list of users (I7).
func (c *Counters) eraseUserRows() error {
	user := c.ev.User

	// Any store may have entries of the user's list, because they are at the homes of the items.
	if err := c.eraseOwnerList(user); err != nil {
		return err
	}

	// Reactions are at the homes of the items, so there may be some in each partition.
	err := c.batch.EachPartition(func(partition uint8) error {
		return c.batch.EraseRows(reactionsPrefix(nil, partition, user), func(rest []byte) error {
			item, kind, err := cutReaction(rest)
			if err != nil {
				return err
			}
			return c.eraseReaction(user, item, kind)
		})
	})
	if err != nil {
		return err
	}

	if c.batch.Holds(user) {
		if err := c.erasePins(user); err != nil {
			return err
		}
	}
	return c.deleteBoardDeletions(user)
}

// erasePins removes the pins of a user and the user's own counts.
func (c *Counters) erasePins(user string) error {
	err := c.batch.EraseRows(projections.AppendKey(nil, tagPin, user), func(rest []byte) error {
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
	tallies, err := readUserTallies(c.batch, c.key)
	if err != nil {
		return err
	}
	// Each erased pin was subtracted, so a rest shows that count and pins disagreed (I7).
	if tallies[tallyPins] != 0 {
		return projections.RowError("pins of a deleted user", c.key)
	}
	c.batch.Delete(c.key)
	return nil
}

// erasePin removes all rows of a pin, those that late history would need included.
func (c *Counters) erasePin(owner, id string) error {
	p, err := c.readPin(owner, id)
	if err != nil {
		return err
	}

	// A pin without facts does not live and has no possible boards, so writePinRows removes every
	// row that followed from the facts.
	p.row = pinstore.Row{HistoryClosed: true}
	if err := c.writePinRows(p, pinstore.State{}); err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagPin, owner, id)
	c.batch.Delete(c.key)
	return nil
}
