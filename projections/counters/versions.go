package counters

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// readVersions returns the stored versions of the score of an item, the current one first.
func (c *Counters) readVersions(item string) (versions []version, err error) {
	prefix := projections.AppendKey(nil, tagVersion, item)
	it := c.batch.Iter(prefix, projections.PrefixEnd(prefix))

	// Newer versions come first, and each ends where the newer one begins.
	toSeq := uint64(math.MaxUint64)
	for it.Next() && err == nil {
		v := version{toSeq: toSeq}
		if rest := it.Key()[len(prefix):]; len(rest) != 8 {
			err = projections.RowError("version", it.Key())
		} else {
			v.fromSeq = ^binary.BigEndian.Uint64(rest)
			v.beganAt, v.score, err = decodeVersion(it.Value())
		}
		versions = append(versions, v)
		toSeq = v.fromSeq
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return versions, err
}

// beginVersion begins a version of the score of an item at the position of the event, and ends the version before it. It
// writes both in all lists that have the item by score. before and after are the row of the item.
func (c *Counters) beginVersion(item string, before, after *itemRow) error {
	lists, err := c.readListsByScore(item, after)
	if err != nil {
		return err
	}

	if before.hasScore {
		last := before.currentVersion()
		if last.fromSeq == c.ev.Seq {
			// It began in this envelope. Positions are those of envelopes, so no session can read it. The new version has the
			// same position and replaces its row.
			c.deleteFromLists(lists, item, &last)
		} else {
			last.toSeq = c.ev.Seq
			c.writeToLists(lists, item, &last)
			if err := c.queueEndedVersion(item, last.fromSeq); err != nil {
				return err
			}
		}
	}

	v := after.currentVersion()
	v.beganAt = c.batch.LogTime()
	c.writeToLists(lists, item, &v)
	c.key = versionKey(c.key[:0], item, v.fromSeq)
	c.value = v.appendRow(c.value[:0])
	c.batch.Set(c.key, c.value)
	return nil
}

// writeToLists writes the entry of a version of an item's score in each of the lists.
func (c *Counters) writeToLists(lists [][]byte, item string, v *version) {
	c.value = c.value[:0]
	if v.toSeq != math.MaxUint64 {
		c.value = binary.AppendUvarint(c.value, v.toSeq)
	}
	for _, list := range lists {
		c.key = scoreEntryKey(c.key[:0], list, item, v.score, v.fromSeq)
		c.batch.Set(c.key, c.value)
	}
}

// deleteFromLists deletes the entry of a version of an item's score from each of the lists.
func (c *Counters) deleteFromLists(lists [][]byte, item string, v *version) {
	for _, list := range lists {
		c.key = scoreEntryKey(c.key[:0], list, item, v.score, v.fromSeq)
		c.batch.Delete(c.key)
	}
}

// A version that has ended is still read by sessions that began before its end, which live for [SessionLifetime]. After that it
// must be dropped, also if no event is ever about its item again; otherwise lists would fill with rows of items that had
// heat once. So the ended versions of a partition wait in a queue, by the time of their end (tagEndedVersion), and every
// event about an item of the partition drops a few whose time has come. An event ends at most one version and drops up to
// [maxDropsPerEvent], so the queue does not grow while it has any to drop; the rest of it ended within the last hour.

// maxDropsPerEvent is the largest number of versions that an event drops.
const maxDropsPerEvent = 4

// queueEndedVersion adds a version that the event ends to the queue. from is the position at which the version began.
func (c *Counters) queueEndedVersion(item string, from uint64) error {
	now := c.batch.LogTime()

	// Events come in the order of log time, so the new end is the first one only if the queue is empty.
	c.key = projections.AppendPartition(c.key[:0], itemPartition(item), tagFirstEndedVersion)
	_, ok, err := c.batch.Get(c.key)
	if err != nil {
		return err
	}
	if !ok {
		c.batch.Set(c.key, binary.BigEndian.AppendUint64(c.value[:0], uint64(now)))
	}

	c.key = endedVersionKey(c.key[:0], now, item, from)
	c.batch.Set(c.key, nil)
	return nil
}

func decodeFirstEndTime(row []byte) (events.Micros, error) {
	if len(row) != 8 || binary.BigEndian.Uint64(row) > math.MaxInt64 {
		return 0, projections.RowError("first of the ended versions", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// dropExpiredVersions drops the first few ended versions of a partition that no session can read any more. The time of the
// first one has a row of its own: most events then need not open an iterator on the queue, and an iterator does not pass
// over the versions that were dropped before.
func (c *Counters) dropExpiredVersions(partition uint8) error {
	firstKey := projections.AppendPartition(nil, partition, tagFirstEndedVersion)
	row, ok, err := c.batch.Get(firstKey)
	if err != nil || !ok {
		return err
	}
	first, err := decodeFirstEndTime(row)
	if err != nil {
		return err
	}

	// A session of time T reads a version that ended at E > T, and expires when the log's time is beyond T + SessionLifetime.
	due := c.batch.LogTime() - SessionLifetime
	if first >= due {
		return nil
	}

	prefix := projections.AppendPartition(nil, partition, tagEndedVersion)
	lower := binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(first))
	keys, err := c.readKeys(lower, projections.PrefixEnd(prefix), maxDropsPerEvent+1)
	if err != nil {
		return err
	}
	for i, key := range keys {
		ended, item, from, err := cutEndedVersion(key[len(prefix):])
		if err != nil {
			return err
		}
		if i == maxDropsPerEvent || ended >= due {
			c.batch.Set(firstKey, binary.BigEndian.AppendUint64(c.value[:0], uint64(ended)))
			return nil
		}
		if err := c.dropVersion(item, from); err != nil {
			return err
		}
		c.batch.Delete(key)
	}

	c.batch.Delete(firstKey) // the queue is empty
	return nil
}

// dropVersion deletes a version of an item's score, and its entries in lists. from is the position at which it began.
func (c *Counters) dropVersion(item string, from uint64) error {
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	lists, err := c.readListsByScore(item, &it)
	if err != nil {
		return err
	}

	key := versionKey(nil, item, from)
	row, ok, err := c.batch.Get(key)
	if err != nil {
		return err
	}
	if !ok {
		return projections.RowError("ended version that is not there", key)
	}
	v := version{fromSeq: from}
	if v.beganAt, v.score, err = decodeVersion(row); err != nil {
		return err
	}

	c.deleteFromLists(lists, item, &v)
	c.batch.Delete(key)
	return nil
}
