package seen

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Maintenance seals closed months and drops expired ones. It goes in rounds of a week of log time. Each round visits every shard once, one
// shard a tick, so that the work is spread over the week, and one event can do what is due. Time is that of the events (I4): without
// events nothing is done, and after a pause longer than a round each shard is visited once.
//
// What a visit does depends on its tick and on what was played in the shard's partition before, on nothing else: partitions are
// kept up alike together and alone (I13).
const (
	roundLength = 7 * 24 * 3600 * 1_000_000
	// tickLength is the time between two visits. It divides a week.
	tickLength = roundLength / events.NumShards
	// shardsPerPartition neighbors expire together, by one range for each kind of row.
	shardsPerPartition = events.NumShards / events.NumPartitions
	// sealBytes of rows are read ahead between two places where the event may be cut.
	sealBytes = 1 << 20
)

// plan has the months of which a partition has rows, the oldest first.
type plan []monthPlan

type monthPlan struct {
	month month
	// late is the tick in which a play of the month was last written after the end of the month; 0 means never.
	late int64
}

const versionPlan, versionTick = 2, 1

func (p plan) append(dst []byte) []byte {
	dst = append(dst, versionPlan)
	for _, m := range p {
		dst = binary.BigEndian.AppendUint16(dst, uint16(m.month))
		dst = binary.AppendUvarint(dst, uint64(m.late))
	}
	return dst
}

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
		late, n := binary.Uvarint(rest[2:])
		if n <= 0 || late > maxTick || n > 1 && late>>(7*(n-1)) == 0 || len(p) > 0 && p[len(p)-1].month >= m.month {
			return nil, bad
		}
		m.late, rest = int64(late), rest[2+n:]
		p = append(p, m)
	}
	return p, nil
}

// maxTick bounds the ticks that a row may have: it is later than any time of an event.
const maxTick = 1 << 62 / tickLength

// The row of the tick: a version byte and the tick of the last visit in 8 bytes.

func appendTick(dst []byte, tick int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, versionTick), uint64(tick))
}

func decodeTick(row []byte) (tick int64, err error) {
	if len(row) != 9 || row[0] != versionTick || binary.BigEndian.Uint64(row[1:]) > maxTick {
		return 0, projections.RowError("tick", row)
	}
	return int64(binary.BigEndian.Uint64(row[1:])), nil
}

// maintenance caches the rows of the maintenance while one batch is folded.
type maintenance struct {
	of *projections.Batch
	// tick is the tick of the last visit; 0 means that there was no event yet.
	tick int64
	// plans are those that were read.
	plans [events.NumPartitions]struct {
		plan plan
		read bool
	}
}

func (f *Seen) readTick() error {
	if f.kept.of == f.b {
		return nil
	}
	f.kept = maintenance{}
	row, ok, err := f.b.Get(tickKey)
	if err == nil && ok {
		f.kept.tick, err = decodeTick(row)
	}
	if err == nil {
		f.kept.of = f.b
	}
	return err
}

func (f *Seen) planOf(partition uint8) (plan, error) {
	kept := &f.kept.plans[partition]
	if kept.read {
		return kept.plan, nil
	}
	f.key = planKey(f.key[:0], partition)
	row, ok, err := f.b.Get(f.key)
	if err == nil && ok {
		kept.plan, err = decodePlan(row)
	}
	kept.read = err == nil
	return kept.plan, err
}

func (f *Seen) setPlan(partition uint8, p plan) {
	f.kept.plans[partition].plan = p
	f.key = planKey(f.key[:0], partition)
	if len(p) == 0 {
		f.b.Delete(f.key)
		return
	}
	f.value = p.append(f.value[:0])
	f.b.Set(f.key, f.value)
}

// Tick makes the visits that are due at a log time. A visit that was interrupted is made again, and does not find what it has already
// sealed.
func (f *Seen) Tick(now events.Micros, b *projections.Batch) error {
	f.b = b
	if err := f.readTick(); err != nil {
		return err
	}
	due, last := max(int64(now)/tickLength, 1), f.kept.tick
	if due <= last {
		return nil
	}
	if last == 0 {
		last = due
	}
	for tick := max(last, due-events.NumShards) + 1; tick <= due; {
		n := min(due-tick+1, shardsPerPartition-tick%shardsPerPartition)
		if f.monthAt(tick+n-1) != f.monthAt(tick) {
			n = 1
		}
		if err := f.visit(tick, n, last); err != nil {
			return err
		}
		tick += n
	}
	f.kept.tick = due
	f.value = appendTick(f.value[:0], due)
	f.b.Set(tickKey, f.value)
	return nil
}

// monthAt returns the month in which a tick is.
func (f *Seen) monthAt(tick int64) month { return f.ticks.of(events.Micros(tick * tickLength)) }

// visit does what there is to be done in the shards of a partition whose turn it is in n ticks of one month. last is the last tick of
// which a visit was made in an earlier event.
func (f *Seen) visit(tick, n, last int64) error {
	from := uint32(tick % events.NumShards)
	partition := events.Shard(from).Partition()
	p, err := f.planOf(partition)
	if err != nil || len(p) == 0 {
		return err
	}
	current := f.monthAt(tick)
	expired := 0
	for expired < len(p) && f.expired(p[expired].month, current) {
		expired++
	}
	if expired > 0 && from%shardsPerPartition == 0 {
		for _, m := range p[:expired] {
			f.expire(m.month, from)
		}
		f.setPlan(partition, slices.Clone(p[expired:]))
	}
	for _, m := range p[expired:] {
		before := tick - events.NumShards
		// If the first and the last of these visits left nothing to seal, then so did those between.
		sealed := f.sealed(m, before, last) && f.sealed(m, before+n-1, last)
		if m.month < current && !sealed {
			if err := f.sealShards(m.month, from, from+uint32(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// sealed reports whether the visit of a tick has left nothing to be sealed of a month: it was made, the month was over, and nothing
// was written since.
func (f *Seen) sealed(m monthPlan, visit, last int64) bool {
	return visit <= last && visit > m.late && f.monthAt(visit) > m.month
}

// expired reports whether no window reaches a month any more.
func (f *Seen) expired(m, current month) bool { return int(m) <= int(current)-f.settings.Retention }

func (f *Seen) expire(m month, from uint32) {
	for _, tag := range []projections.Tag{tagOpen, tagSealed} {
		lower := appendMonthPrefix(nil, m, tag, from)
		upper := appendMonthPrefix(nil, m, tag, from+shardsPerPartition)
		f.b.DeleteRange(lower, upper)
	}
}

// row is a copy of a key and its value.
type row struct{ key, value []byte }

// sealShards seals a closed month for the users of some shards. A user who already has a filter of the month keeps later fingerprints
// beside it, because a filter is sized for its plays and cannot grow.
func (f *Seen) sealShards(m month, from, to uint32) error {
	lower, upper := appendMonthPrefix(nil, m, tagOpen, from), appendMonthPrefix(nil, m, tagOpen, to)
	for {
		var rows []row
		size := 0
		it := f.b.Iter(lower, upper)
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
			lower = append(bytes.Clone(rows[len(rows)-1].key), 0)
			if err := f.b.Step(); err != nil {
				return err
			}
		}
		if size < sealBytes {
			return nil
		}
	}
}

func (f *Seen) sealRow(r row) error {
	f.key = append(f.key[:0], r.key...)
	f.key[2] = byte(tagSealed)
	if _, ok, err := f.b.Get(f.key); err != nil || ok {
		return err
	}
	var err error
	if f.fingerprints, err = decodeFingerprints(f.fingerprints[:0], r.value); err != nil {
		return err
	}
	f.value = appendBloom(f.value[:0], f.fingerprints, f.bits)
	f.b.Set(f.key, f.value)
	f.b.Delete(r.key)
	return nil
}

// wrote notes in the plan that fingerprints of a month were written for a user. An envelope may bring plays of a month after its end, even
// while the month is being dropped.
func (f *Seen) wrote(m month, user string) error {
	partition := events.ShardOf(user).Partition()
	p, err := f.planOf(partition)
	if err != nil {
		return err
	}
	late := int64(0)
	if f.monthAt(f.kept.tick) > m {
		late = f.kept.tick
	}
	i, found := slices.BinarySearchFunc(p, m, func(p monthPlan, m month) int { return int(p.month) - int(m) })
	switch {
	case !found:
		p = slices.Insert(p, i, monthPlan{month: m, late: late})
	case p[i].late >= late:
		return nil
	default:
		p[i].late = late
	}
	f.setPlan(partition, p)
	return nil
}
