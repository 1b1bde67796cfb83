package seen

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Upkeep is what time drives: closed months are sealed and expired months are dropped. It is done in rounds: each visits
// every shard once in a week of log time, one shard after the other, so that the work is spread and a shard is small enough
// for one event to do. Time is that of the events that the fold reads: where none come, nothing is done, and after a pause
// that is longer than a round each shard is visited once.
const (
	roundLength = 7 * 24 * 3600 * 1_000_000
	// tickLength is the time between two visits. It divides a week.
	tickLength = roundLength / events.NumShards
	// shardsPerPartition neighbours expire together, by one range for each kind of row.
	shardsPerPartition = events.NumShards / events.NumPartitions
	// sealBytes of rows are read ahead between two places where the event may be cut.
	sealBytes = 1 << 20
)

// plan is how far the upkeep got. It stands in a row; this is a copy.
type plan struct {
	of *projections.Batch
	// tick is that of the last visit. 0: there was no event yet.
	tick int64
	// months are those that have rows, the oldest first.
	months []monthPlan
}

type monthPlan struct {
	month month
	// visits is how many are left until no shard can have prints to be sealed: a whole round after the last were
	// written.
	visits int
	// expired counts the partitions that were dropped.
	expired int
}

const versionPlan = 1

func (p *plan) append(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, versionPlan), uint64(p.tick))
	for _, m := range p.months {
		dst = binary.BigEndian.AppendUint16(dst, uint16(m.month))
		dst = binary.AppendUvarint(dst, uint64(m.visits))
		dst = binary.AppendUvarint(dst, uint64(m.expired))
	}
	return dst
}

func (p *plan) decode(row []byte) error {
	bad := errRow("plan", row)
	if len(row) == 0 || row[0] != versionPlan {
		return bad
	}
	rest := row[1:]
	number := func(most uint64) (v uint64, ok bool) {
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > most || n > 1 && v>>(7*(n-1)) == 0 {
			return 0, false
		}
		rest = rest[n:]
		return v, true
	}
	tick, ok := number(1 << 62)
	if !ok {
		return bad
	}
	p.tick, p.months = int64(tick), p.months[:0]
	for len(rest) > 0 {
		if len(rest) < 2 {
			return bad
		}
		m := monthPlan{month: month(binary.BigEndian.Uint16(rest))}
		rest = rest[2:]
		visits, ok1 := number(events.NumShards)
		expired, ok2 := number(events.NumPartitions)
		if n := len(p.months); !ok1 || !ok2 || n > 0 && p.months[n-1].month >= m.month {
			return bad
		}
		m.visits, m.expired = int(visits), int(expired)
		p.months = append(p.months, m)
	}
	return nil
}

func (f *Seen) readPlan() error {
	if f.plan.of == f.b {
		return nil
	}
	f.plan = plan{}
	row, ok, err := f.b.Get(planKey)
	if err == nil && ok {
		err = f.plan.decode(row)
	}
	if err == nil {
		f.plan.of = f.b
	}
	return err
}

func (f *Seen) writePlan() {
	f.value = f.plan.append(f.value[:0])
	f.b.Set(planKey, f.value)
}

// upkeep makes the visits that are due by a log time. A visit that is cut is made again: what it has sealed it does not
// meet any more.
func (f *Seen) upkeep(now events.Micros) error {
	if err := f.readPlan(); err != nil {
		return err
	}
	due := max(int64(now)/tickLength, 1)
	p := &f.plan
	if p.tick == 0 {
		p.tick = due
		f.writePlan()
	}
	if due <= p.tick {
		return nil
	}
	if skipped := due - events.NumShards; skipped > p.tick {
		p.skip(skipped)
	}
	current := f.calendar.of(now)
	for p.tick < due {
		// One visit of neighbours costs as much as one of a shard where nothing is to be done.
		from := uint32((p.tick + 1) % events.NumShards)
		n := uint32(min(due-p.tick, int64(events.NumShards-from)))
		if err := f.visit(from, n, current); err != nil {
			return err
		}
		p.tick += int64(n)
	}
	f.writePlan()
	return nil
}

// skip leaves out visits. Rounds that are under way begin again: they go on in another shard than they would have.
func (p *plan) skip(to int64) {
	p.tick = to
	for i := range p.months {
		if m := &p.months[i]; m.visits > 0 {
			m.visits = events.NumShards
		}
		p.months[i].expired = 0
	}
}

// visit does what there is to be done in some neighbouring shards.
func (f *Seen) visit(from, n uint32, current month) error {
	p := &f.plan
	for i := range p.months {
		m := &p.months[i]
		switch {
		case f.expired(m.month, current):
			first := (from + shardsPerPartition - 1) / shardsPerPartition * shardsPerPartition
			for shard := first; shard < from+n; shard += shardsPerPartition {
				f.expire(m.month, shard)
				m.expired++
			}
		case m.month < current && m.visits > 0:
			some := min(n, uint32(m.visits))
			if err := f.sealShards(m.month, from, from+some); err != nil {
				return err
			}
			m.visits -= int(some)
		}
	}
	p.months = slices.DeleteFunc(p.months, func(m monthPlan) bool { return m.expired == events.NumPartitions })
	return nil
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

// sealShards seals what is open of a closed month in some shards. Who has a filter of the month keeps the prints beside it that
// came later: a filter does not grow.
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
		if size < sealBytes {
			return nil
		}
		lower = append(bytes.Clone(rows[len(rows)-1].key), 0)
		if err := f.b.Step(); err != nil {
			return err
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
	if f.prints, err = decodePrints(f.prints[:0], r.value); err != nil {
		return err
	}
	f.value = f.seal(f.value[:0], f.prints)
	f.b.Set(f.key, f.value)
	f.b.Delete(r.key)
	return nil
}

// wrote notes that prints of a month were written.
func (f *Seen) wrote(m month) {
	p := &f.plan
	i, found := slices.BinarySearchFunc(p.months, m, func(p monthPlan, m month) int { return int(p.month) - int(m) })
	switch {
	case !found:
		p.months = slices.Insert(p.months, i, monthPlan{month: m, visits: events.NumShards})
	case p.months[i].visits == events.NumShards && p.months[i].expired == 0:
		return
	default:
		// An envelope may bring something of a month after its end, even one that is being dropped.
		p.months[i].visits, p.months[i].expired = events.NumShards, 0
	}
	f.writePlan()
}
