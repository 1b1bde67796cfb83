package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// A score that an item no longer has is an ended version. Sessions that began before its end still
// read it, so it stays for an hour. The ended versions of a partition are numbered in the order in
// which they ended (tagEndedVersion). The row of an item names the last of its ended versions, and
// each of these names the one before it, so that the versions of an item are found without a row
// that orders them.

// endedVersion is the row of a version that has ended.
type endedVersion struct {
	item string
	// endedAt is the log time at which the version ended, and fromSeq the position at which it
	// began.
	endedAt events.Micros
	fromSeq uint64
	score   int64
	// previous is the number of the ended version of the item before this one, or 0 if there was
	// none. It may have been dropped.
	previous uint64
}

// appendRow appends endedAt, fromSeq and previous as varints, the score in 8 bytes, and the item.
func (v *endedVersion) appendRow(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(v.endedAt))
	dst = binary.AppendUvarint(dst, v.fromSeq)
	dst = binary.AppendUvarint(dst, v.previous)
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.score))
	return events.AppendID(dst, v.item)
}

func decodeEndedVersion(row []byte) (v endedVersion, err error) {
	rest := row
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = fields.CutCount(&rest); err != nil {
			return endedVersion{}, projections.RowError("ended version", row)
		}
	}
	if len(rest) < 8 {
		return endedVersion{}, projections.RowError("ended version", row)
	}
	v = endedVersion{
		endedAt: events.Micros(numbers[0]), fromSeq: uint64(numbers[1]), previous: uint64(numbers[2]),
		score: int64(binary.BigEndian.Uint64(rest)),
	}
	v.item, err = cutLastID(rest[8:])
	return v, err
}

// readEndedVersion returns the ended version of an item with a number. ok is false if it was
// dropped.
func readEndedVersion(r projections.Reader, item string, number uint64) (v endedVersion, ok bool, err error) {
	row, ok, err := r.Get(endedVersionKey(nil, itemPartition(item), number))
	if err != nil || !ok {
		return v, false, err
	}
	if v, err = decodeEndedVersion(row); err == nil && v.item != item {
		err = projections.RowError("ended version of another item", row)
	}
	return v, err == nil, err
}

// readVersions returns the stored versions of the score of an item, the current one first. item is
// its row.
func readVersions(r projections.Reader, id string, item *itemRow) (versions []version, err error) {
	if !item.hasScore {
		return nil, nil
	}
	last := item.currentVersion()
	versions = append(versions, last)

	// Each version ends where the next one begins.
	for number := item.lastEnded; number != 0; {
		v, ok, err := readEndedVersion(r, id, number)
		if err != nil || !ok {
			return versions, err
		}
		last = version{fromSeq: v.fromSeq, toSeq: last.fromSeq, score: v.score}
		versions = append(versions, last)
		number = v.previous
	}
	return versions, nil
}

// scoreAt returns the score of an item at a position. ok is false if it had none.
func scoreAt(r projections.Reader, id string, seq uint64) (score int64, ok bool, err error) {
	item, err := readItem(r, projections.AppendKey(nil, tagItem, id))
	if err != nil || !item.hasScore {
		return 0, false, err
	}
	if uint64(item.scoreFrom) <= seq {
		return item.score, true, nil
	}

	// A session began before the current version. Its version was not dropped yet, unless the
	// session has expired.
	for number := item.lastEnded; number != 0; {
		v, ok, err := readEndedVersion(r, id, number)
		if err != nil || !ok {
			return 0, false, err
		}
		if v.fromSeq <= seq {
			return v.score, true, nil
		}
		number = v.previous
	}
	return 0, false, nil
}

// beginVersion begins a version of the score of an item at the position of the event, and ends the
// version before it. It writes both in all lists that have the item by score. before and after are
// the row of the item. The caller writes after.
func (c *Counters) beginVersion(item string, before, after *itemRow) error {
	lists, err := c.readListsByScore(item, after)
	if err != nil {
		return err
	}

	if before.hasScore {
		last := before.currentVersion()
		if last.fromSeq == c.ev.Seq {
			// It began in this envelope. Positions are those of envelopes, so no session can read
			// it.
			c.deleteFromLists(lists, item, &last)
		} else {
			last.toSeq = c.ev.Seq
			c.writeToLists(lists, item, &last)
			after.lastEnded, err = c.queueEndedVersion(endedVersion{
				item: item, fromSeq: last.fromSeq, score: last.score, previous: before.lastEnded,
			})
			if err != nil {
				return err
			}
		}
	}

	v := after.currentVersion()
	c.writeToLists(lists, item, &v)
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

// A version that has ended must be dropped when no session reads it any more, also if no event is
// ever about its item again; otherwise lists would fill with rows of items that had heat once.
// Sessions live for [SessionLifetime]. So the ended versions of a partition are a queue, and every
// event about an item of the partition drops a few whose time has come. An event ends at most one
// version and drops up to [maxDropsPerEvent], so the queue does not grow while it has any to drop;
// the rest of it ended within the last hour.

// maxDropsPerEvent is the largest number of versions that an event drops.
const maxDropsPerEvent = 4

// versionQueue says which ended versions of a partition wait to be dropped: length of them, up to
// the number last. Numbers are not used again.
type versionQueue struct {
	last, length uint64
	// firstEndedAt is the log time at which the first of them ended. Most events then need not read
	// it. It is 0 if none wait.
	firstEndedAt events.Micros
}

// appendRow appends the fields as varints, the last one only if versions wait.
func (q versionQueue) appendRow(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, q.last)
	dst = binary.AppendUvarint(dst, q.length)
	if q.length > 0 {
		dst = binary.AppendUvarint(dst, uint64(q.firstEndedAt))
	}
	return dst
}

func decodeVersionQueue(row []byte) (q versionQueue, err error) {
	rest := row
	last, err := fields.CutCount(&rest)
	if err != nil {
		return q, projections.RowError("queue of ended versions", row)
	}
	length, err := fields.CutCount(&rest)
	if err != nil || length > last {
		return q, projections.RowError("queue of ended versions", row)
	}
	q = versionQueue{last: uint64(last), length: uint64(length)}
	if length > 0 {
		first, err := fields.CutCount(&rest)
		if err != nil {
			return versionQueue{}, projections.RowError("queue of ended versions", row)
		}
		q.firstEndedAt = events.Micros(first)
	}
	if len(rest) > 0 || last == 0 {
		return versionQueue{}, projections.RowError("queue of ended versions", row)
	}
	return q, nil
}

func (c *Counters) readVersionQueue(partition uint8) (q versionQueue, err error) {
	c.key = projections.AppendPartition(c.key[:0], partition, tagVersionQueue)
	row, ok, err := c.batch.Get(c.key)
	if err != nil || !ok {
		return q, err
	}
	return decodeVersionQueue(row)
}

func (c *Counters) writeVersionQueue(partition uint8, q versionQueue) {
	c.key = projections.AppendPartition(c.key[:0], partition, tagVersionQueue)
	c.value = q.appendRow(c.value[:0])
	c.batch.Set(c.key, c.value)
}

// queueEndedVersion adds a version that the event ends to the queue. It returns the number of the
// version.
func (c *Counters) queueEndedVersion(v endedVersion) (number uint64, err error) {
	partition := itemPartition(v.item)
	queue, err := c.readVersionQueue(partition)
	if err != nil {
		return 0, err
	}

	// Events come in the order of log time, so the new end is the first one only if the queue is
	// empty.
	v.endedAt = c.batch.LogTime()
	if queue.length == 0 {
		queue.firstEndedAt = v.endedAt
	}
	queue.last++
	queue.length++
	c.writeVersionQueue(partition, queue)

	c.key = endedVersionKey(c.key[:0], partition, queue.last)
	c.value = v.appendRow(c.value[:0])
	c.batch.Set(c.key, c.value)
	return queue.last, nil
}

// dropExpiredVersions drops the first few ended versions of a partition that no session can read
// any more.
func (c *Counters) dropExpiredVersions(partition uint8) error {
	queue, err := c.readVersionQueue(partition)
	if err != nil {
		return err
	}

	// A session of time T reads a version that ended at E > T, and expires when the log's time is
	// beyond T + SessionLifetime.
	due := c.batch.LogTime() - SessionLifetime
	if queue.length == 0 || queue.firstEndedAt >= due {
		return nil
	}

	// The loop also reads the first version that stays, because the queue has its time.
	queue.firstEndedAt = 0
	for dropped := 0; queue.length > 0; dropped++ {
		c.key = endedVersionKey(c.key[:0], partition, queue.last-queue.length+1)
		row, ok, err := c.batch.Get(c.key)
		if err != nil {
			return err
		}
		if !ok {
			return projections.RowError("ended version that is not there", c.key)
		}
		v, err := decodeEndedVersion(row)
		if err != nil {
			return err
		}
		if dropped == maxDropsPerEvent || v.endedAt >= due {
			queue.firstEndedAt = v.endedAt
			break
		}

		c.batch.Delete(c.key)
		if err := c.dropFromLists(&v); err != nil {
			return err
		}
		queue.length--
	}
	c.writeVersionQueue(partition, queue)
	return nil
}

// dropFromLists deletes the entries of an ended version from lists. The row that names the version
// stays as it is: readers stop where an ended version is missing.
func (c *Counters) dropFromLists(v *endedVersion) error {
	item, err := c.readItem(v.item)
	if err != nil {
		return err
	}
	lists, err := c.readListsByScore(v.item, &item)
	if err != nil {
		return err
	}
	c.deleteFromLists(lists, v.item, &version{fromSeq: v.fromSeq, score: v.score})
	return nil
}
