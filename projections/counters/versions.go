package counters

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// versions returns the versions of the score of an item that are kept, the present one first.
func (c *Counters) readVersions(item string) (list []version, err error) {
	prefix := projections.AppendKey(nil, tagVersion, item)
	to := uint64(math.MaxUint64)
	it := c.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() && err == nil {
		v := version{toSeq: to}
		if rest := it.Key()[len(prefix):]; len(rest) != 8 {
			err = projections.RowError("version", it.Key())
		} else {
			v.fromSeq = ^binary.BigEndian.Uint64(rest)
			v.beganAt, v.score, err = decodeVersion(it.Value())
		}
		list, to = append(list, v), v.fromSeq
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return list, err
}

// beginVersion begins a version of the score of an item at the position of the event, in all lists where the item stands
// by its score, and ends the one before.
func (c *Counters) beginVersion(item string, before, after *itemRow) error {
	lists, err := c.readListsByScore(item, after)
	if err != nil {
		return err
	}
	if before.hasScore {
		last := before.currentVersion()
		if last.fromSeq == c.ev.Seq {
			// It began in this envelope. Positions are those of envelopes, so no session can read it.
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

// list writes a version of an item into some lists, unlist removes it.
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

func (c *Counters) deleteFromLists(lists [][]byte, item string, v *version) {
	for _, list := range lists {
		c.key = scoreEntryKey(c.key[:0], list, item, v.score, v.fromSeq)
		c.batch.Delete(c.key)
	}
}

// Versions that ended are needed by sessions that began before, which live for [SessionLife]. Those of an item that no event
// touches any more must go as well, or lists would fill with the dead rows of what had heat once. So all that ended wait by the time of
// their end in a queue of their partition, and every event about an item of the partition drops a few of those whose time has come.
// Such an event ends at most one version: the queue cannot grow while there is any to drop, and what it holds beside is of the last hour.

// pruneMost is how many versions an event drops.
const maxDropsPerEvent = 4

// ended puts a version that ends at the event into the queue.
func (c *Counters) queueEndedVersion(item string, from uint64) error {
	now := c.batch.LogTime()
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

// prune drops the first few of the versions of a partition that no session can ask for. That the first one's time stands in a row spares
// most events the look into the queue, and the passing over what was dropped from it.
func (c *Counters) dropExpiredVersions(partition uint8) error {
	head := projections.AppendPartition(nil, partition, tagFirstEndedVersion)
	row, ok, err := c.batch.Get(head)
	if err != nil || !ok {
		return err
	}
	first, err := decodeFirstEndTime(row)
	if err != nil {
		return err
	}
	// A session of time T reads a version that ended at E > T, and expires when the log's time is beyond T + SessionLife.
	due := c.batch.LogTime() - SessionLife
	if first >= due {
		return nil
	}
	prefix := projections.AppendPartition(nil, partition, tagEndedVersion)
	from := binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(first))
	keys, err := c.readKeys(from, projections.PrefixEnd(prefix), maxDropsPerEvent+1)
	if err != nil {
		return err
	}
	for i, key := range keys {
		at, item, from, err := cutEndedVersion(key[len(prefix):])
		if err != nil {
			return err
		}
		if i == maxDropsPerEvent || at >= due {
			c.batch.Set(head, binary.BigEndian.AppendUint64(c.value[:0], uint64(at)))
			return nil
		}
		if err := c.dropVersion(item, from); err != nil {
			return err
		}
		c.batch.Delete(key)
	}
	c.batch.Delete(head)
	return nil
}

// drop removes a version of an item from where it stands.
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
