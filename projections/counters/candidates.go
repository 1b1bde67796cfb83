package counters

import "github.com/skein-feed/skein/projections"

// The home of an item cannot know which pins show the item: that follows from all facts about a
// pin, which only the home of its owner has. So the item's home records that the owner has named
// the item once, by which pin, and whether that was a re-pin. The record stays until the owner is
// deleted. The item is then a candidate for the owner's list by heat.

// recordNamedItem folds a pin_created at the home of the item that it names.
func (c *Counters) recordNamedItem() error {
	ev := c.ev
	key := namedItemKey(nil, ev.User, ev.Item, ev.Pin)
	row, wasNamed, err := c.batch.Get(key)
	if err != nil {
		return err
	}
	wasRepin := false
	if wasNamed {
		if wasRepin, err = decodeNamedItem(row); err != nil {
			return err
		}
	}

	// A pin counts as a re-pin once, however often it is created (I6).
	isNewRepin := ev.RepinUser != "" && !wasRepin
	if wasNamed && !isNewRepin {
		return nil
	}

	item, err := c.readItem(ev.Item)
	if err != nil {
		return err
	}
	before := item
	if !wasNamed {
		if err := c.addCandidate(&item); err != nil {
			return err
		}
	}
	c.batch.Set(key, appendNamedItem(c.value[:0], wasRepin || isNewRepin))

	if isNewRepin {
		item.repins++
		if err := c.addHeat(ev.Item, &item, c.settings.RepinWeight); err != nil {
			return err
		}
	}
	if item != before {
		c.writeItem(ev.Item, &item)
	}
	return nil
}

// The row of a named item says whether the pin was a re-pin: one byte if it was, and nothing if
// not.

func appendNamedItem(dst []byte, isRepin bool) []byte {
	if isRepin {
		dst = append(dst, 1)
	}
	return dst
}

func decodeNamedItem(row []byte) (isRepin bool, err error) {
	if len(row) > 1 || len(row) == 1 && row[0] != 1 {
		return false, projections.RowError("pin that named an item", row)
	}
	return len(row) == 1, nil
}
