package seen

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The maintenance seals closed months and deletes expired ones. It works in rounds of one week of
// log time. A round visits every shard once, one shard per tick, so that the work is spread over
// the week and each event does only a little of it. Time is that of the events (I4): without events
// nothing is done, and after a pause longer than a round each shard is visited once.
//
// What a visit does depends only on its tick and on what was played in the shard's partition
// before. So a partition gets the same rows, whatever other partitions the store holds (I13).
const (
	// roundLength is a week in microseconds.
	roundLength = 7 * 24 * 3600 * 1_000_000
	// tickLength is the time between two visits. It divides a week.
	tickLength = roundLength / events.NumShards
	// shardsPerPartition is the number of shards of a partition. They expire together, by one range
	// per kind of row.
	shardsPerPartition = projections.ShardsPerPartition
	// sealBytes is how many bytes of rows are read ahead between two places where the event may be
	// cut.
	sealBytes = 1 << 20
)

// plan has the months of which a partition has rows, the oldest first.
type plan []monthPlan

type monthPlan struct {
	month month
	// late is the tick in which a play of the month was last written after the end of the month; 0
	// means never.
	late int64
}

// The versions of the rows of the maintenance, which are their first byte.
const (
	versionPlan = 2
	versionTick = 1
)

// appendRow appends the row of a plan: a version byte, then of each month the month (2 bytes) and
// late (uvarint).
func (p plan) appendRow(dst []byte) []byte {
	dst = append(dst, versionPlan)
	for _, m := range p {
		dst = binary.BigEndian.AppendUint16(dst, uint16(m.month))
		dst = binary.AppendUvarint(dst, uint64(m.late))
	}
	return dst
}

// decodePlan decodes the row of a plan. It rejects rows that appendRow cannot have written, such as
// varints that are longer than needed.
func decodePlan(row []byte) (p plan, err error) {
	bad := projections.RowError("plan", row)
	if len(row) < 2 || row[0] != versionPlan {
		return nil, bad
	}
	for rest := row[1:]; len(rest) > 0; {
		if len(rest) < 3 {
			return nil, bad
		}
		m := monthPlan{month: month(binary.BigEndian.Uint16(rest))}
		late, n := projections.Uvarint(rest[2:])
		if n <= 0 || late > maxTick || len(p) > 0 && p[len(p)-1].month >= m.month {
			return nil, bad
		}
		m.late = int64(late)
		rest = rest[2+n:]
		p = append(p, m)
	}
	return p, nil
}

// maxTick is the greatest tick that a row may have. It is later than the time of any event.
const maxTick = 1 << 62 / tickLength

// appendTick appends the row of the tick: a version byte and the tick of the last visit in 8 bytes.
func appendTick(dst []byte, tick int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, versionTick), uint64(tick))
}

func decodeTick(row []byte) (tick int64, err error) {
	if len(row) != 9 || row[0] != versionTick || binary.BigEndian.Uint64(row[1:]) > maxTick {
		return 0, projections.RowError("tick", row)
	}
	return int64(binary.BigEndian.Uint64(row[1:])), nil
}

// maintenanceCache caches the rows of the maintenance while one batch is folded.
type maintenanceCache struct {
	// batch is the batch that the rest was read from; nil means that nothing was read.
	batch *projections.Batch
	// tick is the tick of the last visit; 0 means that there was no event yet.
	tick int64
	// plans are the plans of partitions. Only those with read set have been read.
	plans [events.NumPartitions]struct {
		plan plan
		read bool
	}
}

// readTick reads the tick of the last visit, once per batch.
func (f *Seen) readTick() error {
	if f.maintenance.batch == f.batch {
		return nil
	}
	f.maintenance = maintenanceCache{}
	row, ok, err := f.batch.Get(tickKey)
	if err == nil && ok {
		f.maintenance.tick, err = decodeTick(row)
	}
	if err == nil {
		f.maintenance.batch = f.batch
	}
	return err
}

// readPlan returns the plan of a partition. It reads the row once per batch.
func (f *Seen) readPlan(partition uint8) (plan, error) {
	cached := &f.maintenance.plans[partition]
	if cached.read {
		return cached.plan, nil
	}
	f.key = planKey(f.key[:0], partition)
	row, ok, err := f.batch.Get(f.key)
	if err == nil && ok {
		cached.plan, err = decodePlan(row)
	}
	cached.read = err == nil
	return cached.plan, err
}

func (f *Seen) writePlan(partition uint8, p plan) {
	f.maintenance.plans[partition].plan = p
	f.key = planKey(f.key[:0], partition)
	if len(p) == 0 {
		f.batch.Delete(f.key)
		return
	}
	f.value = p.appendRow(f.value[:0])
	f.batch.Set(f.key, f.value)
}

// Tick makes the visits that are due at a log time. If it is interrupted, the visit is made again
// and does not find the rows that it has already sealed.
func (f *Seen) Tick(now events.Micros, b *projections.Batch) error {
	f.batch = b
	if err := f.readTick(); err != nil {
		return err
	}

	due := max(int64(now)/tickLength, 1)
	last := f.maintenance.tick
	if due <= last {
		return nil
	}
	// Before the first event no shard has rows to visit.
	if last == 0 {
		last = due
	}

	// After a long pause, more than a round is due. One visit of each shard is enough.
	for tick := max(last, due-events.NumShards) + 1; tick <= due; {
		// Visit several shards at once if they are of one partition, and their ticks of one month.
		n := min(due-tick+1, shardsPerPartition-tick%shardsPerPartition)
		if f.monthOfTick(tick+n-1) != f.monthOfTick(tick) {
			n = 1
		}
		if err := f.visit(tick, n, last); err != nil {
			return err
		}
		tick += n
	}

	f.maintenance.tick = due
	f.value = appendTick(f.value[:0], due)
	f.batch.Set(tickKey, f.value)
	return nil
}

// monthOfTick returns the month in which a tick begins.
func (f *Seen) monthOfTick(tick int64) month {
	return f.tickCalendar.monthOf(events.Micros(tick * tickLength))
}

// visit makes the visits of n ticks from tick on. They are of one month, and their shards of one
// partition. last is the tick of the last visit that was made by an earlier event.
func (f *Seen) visit(tick, n, last int64) error {
	from := uint32(tick % events.NumShards)
	partition := events.Shard(from).Partition()
	p, err := f.readPlan(partition)
	if err != nil || len(p) == 0 {
		return err
	}

	// The oldest months are first, so those that have expired are at the beginning.
	current := f.monthOfTick(tick)
	expired := 0
	for expired < len(p) && f.isExpired(p[expired].month, current) {
		expired++
	}

	// The visit of the first shard of a partition deletes expired months for all of its shards.
	if expired > 0 && from%shardsPerPartition == 0 {
		for _, m := range p[:expired] {
			f.deleteMonth(m.month, from)
		}
		f.writePlan(partition, slices.Clone(p[expired:]))
	}

	for _, m := range p[expired:] {
		if m.month >= current {
			continue // the month is not over
		}

		// If the visits one round ago of the first and the last of these shards left nothing to
		// seal, then so did those between.
		before := tick - events.NumShards
		if f.hasNothingToSeal(m, before, last) && f.hasNothingToSeal(m, before+n-1, last) {
			continue
		}
		if err := f.sealShards(m.month, from, from+uint32(n)); err != nil {
			return err
		}
	}
	return nil
}

// hasNothingToSeal reports whether the visit of a tick has left nothing to seal of a month: the
// visit was made, the month was over by then, and nothing was written to the month since.
func (f *Seen) hasNothingToSeal(m monthPlan, visit, last int64) bool {
	return visit <= last && visit > m.late && f.monthOfTick(visit) > m.month
}

// isExpired reports whether no window reaches a month any more.
func (f *Seen) isExpired(m, current month) bool { return int(m) <= int(current)-f.settings.Retention }

// deleteMonth deletes the rows of a month in the partition that begins with the shard from.
func (f *Seen) deleteMonth(m month, from uint32) {
	for _, tag := range []projections.Tag{tagPlays, tagSealed} {
		lower := appendMonthPrefix(nil, m, tag, from)
		upper := appendMonthPrefix(nil, m, tag, from+shardsPerPartition)
		f.batch.DeleteRange(lower, upper)
	}
}

// row is a copy of a key and its value.
type row struct{ key, value []byte }

// sealShards seals a closed month for the users of the shards from <= shard < to. For a user who
// already has a filter of the month, later fingerprints stay beside it, because a filter is sized
// for its plays and cannot grow.
func (f *Seen) sealShards(m month, from, to uint32) error {
	lower := appendMonthPrefix(nil, m, tagPlays, from)
	upper := appendMonthPrefix(nil, m, tagPlays, to)
	for {
		// Copy a chunk of rows before writing: sealing a row deletes it.
		var rows []row
		size := 0
		it := f.batch.Iter(lower, upper)
		for size < sealBytes && it.Next() {
			rows = append(rows, row{bytes.Clone(it.Key()), bytes.Clone(it.Value())})
			size += len(it.Key()) + len(it.Value())
		}
		if err := it.Close(); err != nil {
			return err
		}

		for _, r := range rows {
			if err := f.sealRow(r); err != nil {
				return err
			}
		}

		if len(rows) > 0 {
			// Continue behind the last row. The rows that stay must not be read again.
			lower = append(bytes.Clone(rows[len(rows)-1].key), 0)
			if err := f.batch.Step(); err != nil {
				return err
			}
		}
		if size < sealBytes {
			return nil
		}
	}
}

// sealRow replaces the fingerprints of a user and month by a filter, unless there is one already.
func (f *Seen) sealRow(r row) error {
	f.key = append(f.key[:0], r.key...)
	f.key[2] = byte(tagSealed)
	if _, ok, err := f.batch.Get(f.key); err != nil || ok {
		return err
	}

	// The filter and the deletion of the fingerprints are in one commit, so no view lacks the plays
	// (I10).
	var err error
	if f.fingerprints, err = decodeFingerprints(f.fingerprints[:0], r.value); err != nil {
		return err
	}
	f.value = appendBloom(f.value[:0], f.fingerprints, f.positions)
	f.batch.Set(f.key, f.value)
	f.batch.Delete(r.key)
	return nil
}

// recordWrite records in the plan that a play of a month is written for a user. An envelope may
// have plays of a month that is over, even of one that is being deleted.
func (f *Seen) recordWrite(m month, user string) error {
	partition := events.ShardOf(user).Partition()
	p, err := f.readPlan(partition)
	if err != nil {
		return err
	}

	// Late writes are noted, because the next visit must seal the month again.
	late := int64(0)
	if f.monthOfTick(f.maintenance.tick) > m {
		late = f.maintenance.tick
	}
	i, found := slices.BinarySearchFunc(p, m, func(p monthPlan, m month) int { return int(p.month) - int(m) })
	switch {
	case !found:
		p = slices.Insert(p, i, monthPlan{month: m, late: late})
	case p[i].late >= late:
		return nil // most plays: nothing changes
	default:
		p[i].late = late
	}
	f.writePlan(partition, p)
	return nil
}
