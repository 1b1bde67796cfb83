package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/fields"
)

// Each score that an item had at some positions of the log is a version (heat.go). When the item
// gets another score, the version of the old score ends. Sessions that began before this end still
// read the ended version, so the store keeps an ended version for at least an hour of log time
// ([SessionLifetime]).
//
// The rows of ended versions (tagEndedVersion) are numbered per partition, from 1, in the order in
// which the versions ended, because they are dropped in this order. To find the versions of one
// item, a reader follows numbers: the row of the item has the number of its last ended version, and
// the row of an ended version has the number of the same item's ended version before that.

// endedVersion is the row of a version that has ended.
type endedVersion struct {
	item string
	// endedAt is the log time of the envelope in which the version ended. It decides when the
	// version may be dropped. The row does not have the position of the end, because that is where
	// the next version of the item begins.
	endedAt events.Micros
	// fromSeq is the position at which the version began.
	fromSeq uint64
	score   int64
	// previous is the number of the item's ended version before this one, or 0 if there was none.
	// The number stays when the version that has it is dropped.
	previous uint64
}

// appendRow appends endedAt, fromSeq and previous as varints, then the score in 8 bytes, then the
// item.
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

// readEndedVersion returns the ended version of an item that has the given number. ok is false if
// the version was dropped. If the version is of another item, readEndedVersion returns an error.
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

// readVersions returns the versions of an item's score that are still stored, the newest first: the
// current version, and then the ended ones that were not dropped. id is the id of the item, and
// item is its row. An item without a score has no versions.
func readVersions(r projections.Reader, id string, item *itemRow) (versions []version, err error) {
	if !item.hasScore {
		return nil, nil
	}
	last := item.currentVersion()
	versions = append(versions, last)

	// A row of an ended version has no end. The version ends where the next newer one begins, which
	// is last. Versions are dropped in the order in which they ended, so if one is missing, all
	// older ones are missing, too.
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

// scoreAt returns the score that an item had at a position. ok is false if the item had no score
// there, or if the version that held there was dropped.
func scoreAt(r projections.Reader, id string, seq uint64) (score int64, ok bool, err error) {
	item, err := readItem(r, projections.AppendKey(nil, tagItem, id))
	if err != nil || !item.hasScore {
		return 0, false, err
	}
	if uint64(item.scoreFrom) <= seq {
		return item.score, true, nil
	}

	// The position is before the current version, so the score is that of an ended version: the
	// newest one that began at the position or before. While a session that began at the position
	// has not expired, this version is not dropped.
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

// beginVersion begins a version of an item's score at the position of the event, and ends the
// version before it, if the item had a score. beginVersion writes the entries of both versions in
// all lists that have the item by score. before is the row of the item with the old score, and
// after is the row with the new one. beginVersion sets after.lastEnded. The caller writes after.
func (c *Counters) beginVersion(item string, before, after *itemRow) error {
	lists, err := c.readListsByScore(item, after)
	if err != nil {
		return err
	}

	if before.hasScore {
		last := before.currentVersion()
		if last.fromSeq == c.ev.Seq {
			// The old version began in the same envelope as the new one. All events of an envelope
			// have one position, so the old version held at no position and no session can read it.
			// It leaves no ended version.
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

// writeToLists writes the entry of a version of an item's score in each of the lists. The value of
// the entry is the position at which the version ended, or empty for the current version. Writing
// the entry again with an end replaces the entry without one. lists are prefixes of keys.
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

// deleteFromLists deletes the entry of a version of an item's score from each of the lists. It
// reads only the score and fromSeq of the version.
func (c *Counters) deleteFromLists(lists [][]byte, item string, v *version) {
	for _, list := range lists {
		c.key = scoreEntryKey(c.key[:0], list, item, v.score, v.fromSeq)
		c.batch.Delete(c.key)
	}
}

// An ended version can be dropped once no session can read it any more, which is [SessionLifetime]
// after its end. It must then be dropped even if no later event is about its item. Otherwise the
// lists would keep an entry for every score that any item ever had. Therefore the ended versions of
// a partition form a queue, and every event about any item of the partition drops the oldest few of
// those that have expired. A partition keeps its expired versions until the next such event.
//
// Such an event ends at most one version and drops up to [maxDropsPerEvent] expired ones. So while
// there are several expired versions, each event shortens the queue, and after enough events the
// queue has only versions that ended within the last hour.

// maxDropsPerEvent is the largest number of expired versions that one event drops. It bounds the
// work of the event, because each version may have entries in [maxListsByScore] lists of owners and
// in the global list. It must be more than 1, or events that each end a version would never shrink
// a backlog of expired ones.
const maxDropsPerEvent = 4

// versionQueue says which ended versions of a partition are stored. All of them wait to be dropped.
// The zero value means that no version of the partition has ended yet.
type versionQueue struct {
	// last is the number of the version that ended last, and length is how many versions wait. They
	// have the numbers from last-length+1 to last. last stays when versions are dropped, so that no
	// number is used again: the rows of items, and of other ended versions, still have the numbers
	// of dropped ones.
	last, length uint64
	// firstEndedAt is the endedAt of the oldest version that waits, or 0 if none waits. It is kept
	// here so that an event that finds nothing to drop need not read the row of this version.
	firstEndedAt events.Micros
}

// appendRow appends last and length as varints, and firstEndedAt as well if versions wait.
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

// queueEndedVersion writes the row of a version that the event ends, and adds the version to the
// queue of its partition. It sets v.endedAt to the log time of the envelope. It returns the number
// of the version.
func (c *Counters) queueEndedVersion(v endedVersion) (number uint64, err error) {
	partition := itemPartition(v.item)
	queue, err := c.readVersionQueue(partition)
	if err != nil {
		return 0, err
	}

	// Log time never runs backwards, so no version in the queue ended later than this one.
	// firstEndedAt changes only if the queue is empty.
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

// dropExpiredVersions drops the oldest ended versions of a partition that no session can read any
// more, at most [maxDropsPerEvent] of them.
func (c *Counters) dropExpiredVersions(partition uint8) error {
	queue, err := c.readVersionQueue(partition)
	if err != nil {
		return err
	}

	// A session that began at log time T reads only versions that ended at an E > T. It expires
	// when the log time is beyond T + SessionLifetime. So if E is before due, every session that
	// reads the version has expired.
	due := c.batch.LogTime() - SessionLifetime
	if queue.length == 0 || queue.firstEndedAt >= due {
		return nil
	}

	// The loop also reads the first version that stays, because firstEndedAt is the end of this
	// version. It is 0 if no version stays.
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

// dropFromLists deletes the entries of an ended version from all lists that have its item by score.
// The number of the version stays in the row that has it, which is the row of the item or that of
// the next ended version. That does no harm, because readers stop where the row of an ended version
// is missing.
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
