package counters

import (
	"bytes"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// eraseChunk is the number of rows that are read ahead before they are erased. Nothing may be
// written while an iterator is open.
const eraseChunk = 256

// cutLastID reads an id that must be the last part of a key.
func cutLastID(rest []byte) (id string, err error) {
	id, after, err := events.CutID(rest)
	if err != nil || len(after) != 0 {
		return "", projections.RowError("key", rest)
	}
	return id, nil
}

// cutLastTwoIDs reads two ids that must be the last parts of a key.
func cutLastTwoIDs(rest []byte) (first, second string, err error) {
	first, after, err := events.CutID(rest)
	if err != nil {
		return "", "", projections.RowError("key", rest)
	}
	second, err = cutLastID(after)
	return first, second, err
}

// eraseRows calls eraseRow for each row below the prefix. eraseRow gets the part of the key that
// follows the prefix and must delete the row. Between chunks the event may be interrupted (see
// [projections.Batch.Step]). Run again, eraseRows finds the rows that are left.
func (c *Counters) eraseRows(prefix []byte, eraseRow func(rest []byte) error) error {
	lower := prefix
	upper := projections.PrefixEnd(prefix)
	for {
		keys, err := c.readKeys(lower, upper, eraseChunk)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := eraseRow(key[len(prefix):]); err != nil {
				return err
			}
		}
		if len(keys) < eraseChunk {
			return nil
		}

		// All rows up to this one are deleted, and an iterator need not pass over them again.
		lower = keyAfter(keys[len(keys)-1])
		if err := c.batch.Step(); err != nil {
			return err
		}
	}
}

// deleteRows deletes the rows below the prefix, in steps.
func (c *Counters) deleteRows(prefix []byte) error {
	return c.eraseRows(prefix, func(rest []byte) error {
		c.key = append(append(c.key[:0], prefix...), rest...)
		c.batch.Delete(c.key)
		return nil
	})
}

// keyAfter returns the smallest key that is greater than key.
func keyAfter(key []byte) []byte { return append(slices.Clip(key), 0) }

// readKeys returns the first n keys k with lower <= k < upper.
func (c *Counters) readKeys(lower, upper []byte, n int) (keys [][]byte, err error) {
	it := c.batch.Iter(lower, upper)
	for len(keys) < n && it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	return keys, it.Close()
}
