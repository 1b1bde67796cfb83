package counters

import (
	"bytes"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// drainChunk is the number of rows that are read before they are written: an iterator must not be open while rows change.
const eraseChunk = 256

// cutLast reads the last id of a key.
func cutLastID(rest []byte) (id string, err error) {
	id, after, err := events.CutID(rest)
	if err != nil || len(after) != 0 {
		return "", projections.RowError("key", rest)
	}
	return id, nil
}

// cutTwo reads the last two ids of a key.
func cutLastTwoIDs(rest []byte) (first, second string, err error) {
	first, after, err := events.CutID(rest)
	if err != nil {
		return "", "", projections.RowError("key", rest)
	}
	second, err = cutLastID(after)
	return first, second, err
}

// drain calls end with what follows prefix in every key that begins with it. end removes the row. In steps: what an
// earlier run has ended is not met again.
func (c *Counters) eraseRows(prefix []byte, end func(rest []byte) error) error {
	lower, upper := prefix, projections.PrefixEnd(prefix)
	for {
		keys, err := c.readKeys(lower, upper, eraseChunk)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := end(key[len(prefix):]); err != nil {
				return err
			}
		}
		if len(keys) < eraseChunk {
			return nil
		}
		lower = keyAfter(keys[len(keys)-1]) // what was before is gone
		if err := c.batch.Step(); err != nil {
			return err
		}
	}
}

// dropAll removes the rows that begin with a prefix, in steps.
func (c *Counters) deleteRows(prefix []byte) error {
	return c.eraseRows(prefix, func(rest []byte) error {
		c.key = append(append(c.key[:0], prefix...), rest...)
		c.batch.Delete(c.key)
		return nil
	})
}

// keyAfter returns the first key after another.
func keyAfter(key []byte) []byte { return append(slices.Clip(key), 0) }

// keys returns the first n keys from lower up to, not including, upper.
func (c *Counters) readKeys(lower, upper []byte, n int) (keys [][]byte, err error) {
	it := c.batch.Iter(lower, upper)
	for len(keys) < n && it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	return keys, it.Close()
}
