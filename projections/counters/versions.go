package counters

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// versions returns the versions of the score of an item that are kept, the present one first.
func (c *Counters) versions(item string) (list []version, err error) {
	prefix := projections.AppendKey(nil, tagVersion, item)
	to := uint64(math.MaxUint64)
	it := c.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() && err == nil {
		v := version{to: to}
		if rest := it.Key()[len(prefix):]; len(rest) != 8 {
			err = projections.RowError("version", it.Key())
		} else {
			v.from = ^binary.BigEndian.Uint64(rest)
			v.began, v.score, err = decodeVersion(it.Value())
		}
		list, to = append(list, v), v.from
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return list, err
}

// beginVersion begins a version of the score of an item at the position of the event, in all lists where the item stands
// by its score, and ends the one before.
func (c *Counters) beginVersion(item string, before, after *itemRow) error {
	lists, err := c.listsOf(item, after)
	if err != nil {
		return err
	}
	if before.scored {
		last := before.present()
		if last.from == c.ev.Seq {
			// It began in this envelope. Positions are those of envelopes, so no session can read it.
			c.unlist(lists, item, &last)
		} else {
			last.to = c.ev.Seq
			c.list(lists, item, &last)
			if err := c.ended(item, last.from); err != nil {
				return err
			}
		}
	}
	v := after.present()
	v.began = c.b.LogTime()
	c.list(lists, item, &v)
	c.key = versionKey(c.key[:0], item, v.from)
	c.value = v.append(c.value[:0])
	c.b.Set(c.key, c.value)
	return nil
}

// list writes a version of an item into some lists, unlist removes it.
func (c *Counters) list(lists [][]byte, item string, v *version) {
	c.value = c.value[:0]
	if v.to != math.MaxUint64 {
		c.value = binary.AppendUvarint(c.value, v.to)
	}
	for _, list := range lists {
		c.key = listKey(c.key[:0], list, item, v.score, v.from)
		c.b.Set(c.key, c.value)
	}
}

func (c *Counters) unlist(lists [][]byte, item string, v *version) {
	for _, list := range lists {
		c.key = listKey(c.key[:0], list, item, v.score, v.from)
		c.b.Delete(c.key)
	}
}

// Versions that ended are needed by sessions that began before, which live for [SessionLife]. Those of an item that no event
// touches any more must go as well, or lists would fill with the dead rows of what had heat once. So all that ended wait by the time of
// their end in a queue of their partition, and every event about an item of the partition drops a few of those whose time has come.
// Such an event ends at most one version: the queue cannot grow while there is any to drop, and what it holds beside is of the last hour.

// pruneMost is how many versions an event drops.
const pruneMost = 4

// ended puts a version that ends at the event into the queue.
func (c *Counters) ended(item string, from uint64) error {
	now := c.b.LogTime()
	c.key = projections.AppendPartition(c.key[:0], partitionOf(item), tagFirstEnded)
	_, ok, err := c.b.Get(c.key)
	if err != nil {
		return err
	}
	if !ok {
		c.b.Set(c.key, binary.BigEndian.AppendUint64(c.value[:0], uint64(now)))
	}
	c.key = endedKey(c.key[:0], now, item, from)
	c.b.Set(c.key, nil)
	return nil
}

func decodeFirstEnded(row []byte) (events.Micros, error) {
	if len(row) != 8 || binary.BigEndian.Uint64(row) > math.MaxInt64 {
		return 0, projections.RowError("first of the ended versions", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// prune drops the first few of the versions of a partition that no session can ask for. That the first one's time stands in a row spares
// most events the look into the queue, and the passing over what was dropped from it.
func (c *Counters) prune(partition uint8) error {
	head := projections.AppendPartition(nil, partition, tagFirstEnded)
	row, ok, err := c.b.Get(head)
	if err != nil || !ok {
		return err
	}
	first, err := decodeFirstEnded(row)
	if err != nil {
		return err
	}
	// A session of time T reads a version that ended at E > T, and expires when the log's time is beyond T + SessionLife.
	due := c.b.LogTime() - SessionLife
	if first >= due {
		return nil
	}
	prefix := projections.AppendPartition(nil, partition, tagEnded)
	from := binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(first))
	keys, err := c.keys(from, projections.PrefixEnd(prefix), pruneMost+1)
	if err != nil {
		return err
	}
	for i, key := range keys {
		at, item, from, err := cutEnded(key[len(prefix):])
		if err != nil {
			return err
		}
		if i == pruneMost || at >= due {
			c.b.Set(head, binary.BigEndian.AppendUint64(c.value[:0], uint64(at)))
			return nil
		}
		if err := c.drop(item, from); err != nil {
			return err
		}
		c.b.Delete(key)
	}
	c.b.Delete(head)
	return nil
}

// drop removes a version of an item from where it stands.
func (c *Counters) drop(item string, from uint64) error {
	it, err := c.readItem(item)
	if err != nil {
		return err
	}
	lists, err := c.listsOf(item, &it)
	if err != nil {
		return err
	}
	key := versionKey(nil, item, from)
	row, ok, err := c.b.Get(key)
	if err != nil {
		return err
	}
	if !ok {
		return projections.RowError("ended version that is not there", key)
	}
	v := version{from: from}
	if v.began, v.score, err = decodeVersion(row); err != nil {
		return err
	}
	c.unlist(lists, item, &v)
	c.b.Delete(key)
	return nil
}
