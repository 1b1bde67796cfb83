package counters

import "github.com/skein-feed/skein/projections"

// What the home of an item knows about pins. It cannot know which of them exist: that follows from all facts of a pin, which only its
// owner's home has. So it keeps that an owner has named the item once, by which pin, and whether that was a re-pin, until the owner is
// deleted.

// pinNames folds a pin_created at the home of the item that it names.
func (c *Counters) recordNamedItem() error {
	ev := c.ev
	key := namedItemKey(nil, ev.User, ev.Item, ev.Pin)
	row, known, err := c.batch.Get(key)
	if err != nil {
		return err
	}
	repinned := false
	if known {
		if repinned, err = decodeNamedItem(row); err != nil {
			return err
		}
	}
	repins := ev.RepinUser != "" && !repinned
	if known && !repins {
		return nil
	}
	it, err := c.readItem(ev.Item)
	if err != nil {
		return err
	}
	before := it
	if !known {
		if err := c.addCandidate(&it); err != nil {
			return err
		}
	}
	c.batch.Set(key, appendNamedItem(c.value[:0], repinned || repins))
	if repins {
		it.repins++
		if err := c.addHeat(ev.Item, &it, c.settings.RepinWeight); err != nil {
			return err
		}
	}
	if it != before {
		c.writeItem(ev.Item, &it)
	}
	return nil
}

// The row says whether the pin re-pinned the item: one byte, or nothing.

func appendNamedItem(dst []byte, repinned bool) []byte {
	if repinned {
		dst = append(dst, 1)
	}
	return dst
}

func decodeNamedItem(row []byte) (repinned bool, err error) {
	if len(row) > 1 || len(row) == 1 && row[0] != 1 {
		return false, projections.RowError("pin that named an item", row)
	}
	return len(row) == 1, nil
}
