package counters

import (
	"bytes"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

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

// deleteRows deletes the rows below the prefix, in steps.
func (c *Counters) deleteRows(prefix []byte) error {
	return c.batch.EraseRows(prefix, func(rest []byte) error {
		c.key = append(append(c.key[:0], prefix...), rest...)
		c.batch.Delete(c.key)
		return nil
	})
}

// readKeys returns the first n keys k with lower <= k < upper.
func (c *Counters) readKeys(lower, upper []byte, n int) (keys [][]byte, err error) {
	it := c.batch.Iter(lower, upper)
	for len(keys) < n && it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	return keys, it.Close()
}
