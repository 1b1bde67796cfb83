package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// Comparison is the result of [Compare].
type Comparison struct {
	// Rows is the number of rows that were compared, Differences the number that differ, also by partition, or [projections.StoreWide].
	Rows, Differences uint64
	Partitions        map[int]uint64
	// Listed are the first differences, up to [Options.Listed].
	Listed []Difference

	// keys are the keys of the first maxKeys differences.
	keys [][]byte
	// most is the number of rows after which the comparison ends; 0 means all.
	most uint64
}

// maxKeys is the number of differing rows that are repaired before the stores are compared again. Their keys are in memory.
const maxKeys = 1 << 18

// Compare compares the rows of a live store with those of a shadow at the same position, in the order of keys. It leaves out the row of
// the position itself, because the points at which a store has committed are no facts of the log.
func Compare(ctx context.Context, live, shadow projections.Reader, o Options) (*Comparison, error) {
	o.fill()
	c := &Comparison{Partitions: map[int]uint64{}}
	o.Hold = math.MaxInt64
	_, err := c.from(ctx, live, shadow, &o, nil)
	return c, err
}

// timedRows is the number of rows that compareTime compares.
const timedRows = 1 << 16

// compareTime estimates how long it takes to compare this many rows: it compares some rows of the live store with themselves. It ignores
// rows that cannot be read, since the comparison itself reports them.
func compareTime(ctx context.Context, live Store, o Options, rows int64) time.Duration {
	v, err := live.View()
	if err != nil {
		return 0
	}
	defer func() { _ = v.Close() }()
	pace := o.Pace
	o.Pace, o.Progress = replay.Pace{}, nil
	c, began := &Comparison{most: timedRows, Partitions: map[int]uint64{}}, time.Now()
	if _, err := c.from(ctx, v, v, &o, nil); err != nil || c.Rows == 0 {
		return 0
	}
	took := time.Since(began)
	return time.Duration(float64(took+pace.Pause(took)) / float64(c.Rows) * float64(rows))
}

// from compares the rows from a key onwards. After [Options.Hold] it stops and returns the next key; nil means that no row is left.
func (c *Comparison) from(ctx context.Context, live, shadow projections.Reader, o *Options, key []byte) (next []byte, err error) {
	rows, began := newRowFilter(o), time.Now()
	found, want := newSide(live, rows, key), newSide(shadow, rows, key)
	defer found.close()
	defer want.close()
	found.next()
	want.next()
	err = errors.Join(found.err, want.err)
	pace := pacer{pace: o.Pace, down: o.down}
	for (found.ok || want.ok) && err == nil {
		order := 1
		if found.ok {
			order = -1
			if want.ok {
				order = bytes.Compare(found.key(), want.key())
			}
		}
		switch {
		case order < 0:
			c.differ(o, found.key(), nil, found.value(), found.bad)
		case order > 0:
			c.differ(o, want.key(), want.value(), nil, nil)
		case found.bad != nil || !bytes.Equal(found.value(), want.value()):
			c.differ(o, want.key(), want.value(), found.value(), found.bad)
		}
		c.Rows++
		o.Progress.Add(1)
		if c.Rows == c.most {
			break
		}
		if order <= 0 {
			found.next()
		}
		if order >= 0 {
			want.next()
		}
		if err = errors.Join(found.err, want.err); c.Rows%paceRows == 0 && err == nil {
			if time.Since(began) >= o.Hold || pace.isDown() {
				next = first(found, want)
				break
			}
			err = pace.rest(ctx)
		}
	}
	if err == nil && want.spoilt {
		err = errShadow
	}
	return next, err
}

// first returns the least key at which any side is; nil means that all are at their end.
func first(sides ...*side) (key []byte) {
	for _, s := range sides {
		if s.ok && (key == nil || bytes.Compare(s.key(), key) < 0) {
			key = bytes.Clone(s.key())
		}
	}
	return key
}

// errShadow means that the shadow has rows that cannot be read, so that it proves nothing about the live store.
var errShadow = errors.New("verify: the shadow is corrupt: the disk or memory of this machine cannot be trusted")

func (c *Comparison) differ(o *Options, key, expected, found []byte, unreadable *projections.UnreadableRowError) {
	d := Difference{
		Partition: projections.PartitionOf(o.projection, key), Key: bytes.Clone(key), Expected: bytes.Clone(expected),
		Found: bytes.Clone(found), projection: o.projection.Name(),
	}
	if unreadable != nil {
		d.Unreadable = unreadable
	}
	c.Differences++
	c.Partitions[d.Partition]++
	if len(c.Listed) < o.Listed {
		c.Listed = append(c.Listed, d)
	}
	if len(c.keys) < maxKeys {
		c.keys = append(c.keys, d.Key)
	}
}

// side is an iterator over the wanted rows of one store. Unlike an iterator of the store, it continues after a row that cannot be read.
type side struct {
	r    projections.Reader
	it   projections.Iterator
	rows *rowFilter
	ok   bool
	// bad is the error of the present row, if it cannot be read. spoilt reports whether there was such a row.
	bad    *projections.UnreadableRowError
	spoilt bool
	err    error
}

func newSide(r projections.Reader, rows *rowFilter, from []byte) *side {
	return &side{r: r, it: r.Iter(from, nil), rows: rows}
}

func (s *side) key() []byte {
	if s.bad != nil {
		return s.bad.Key
	}
	return s.it.Key()
}

// value returns the value of the present row; nil means that it cannot be read.
func (s *side) value() []byte {
	if s.bad != nil {
		return nil
	}
	if value := s.it.Value(); value != nil {
		return value
	}
	return []byte{}
}

func (s *side) next() {
	if s.bad == nil {
		s.skipUnwanted(s.it.Next())
		return
	}
	// A row that cannot be read ends an iterator. A new one continues after it.
	from := append(bytes.Clone(s.bad.Key), 0)
	s.it, s.bad = s.r.Iter(nil, nil), nil
	s.skipUnwanted(s.it.SeekGE(from))
}

// skipUnwanted skips rows that are not wanted.
func (s *side) skipUnwanted(ok bool) {
	for ok && !s.rows.wants(s.it.Key()) {
		from := s.rows.after(s.it.Key())
		if from == nil {
			ok = false
			break
		}
		if bytes.Compare(from, s.it.Key()) <= 0 {
			from = append(bytes.Clone(s.it.Key()), 0) // always forward, even if keys of a damaged store are out of order
		}
		ok = s.it.SeekGE(from)
	}
	if s.ok = ok; ok {
		return
	}
	err := s.it.Close()
	if !errors.As(err, &s.bad) {
		s.err = err
		return
	}
	s.spoilt = true
	if s.ok = s.rows.wants(s.bad.Key); !s.ok {
		s.next()
	}
}

// close ends the walk. Its errors were reported before.
func (s *side) close() { _ = s.it.Close() }

// rowFilter selects the rows to compare.
type rowFilter struct {
	projection projections.Projection
	// partitions are the wanted partitions; nil means all rows are wanted.
	partitions *events.Partitions
	dated      []projections.Tag
	// regional: the rows of a partition are not contiguous, because of rows of regions.
	regional bool
}

func newRowFilter(o *Options) *rowFilter {
	f := &rowFilter{projection: o.projection, partitions: o.Partitions}
	if dated, ok := o.projection.(projections.Dated); ok {
		f.dated = dated.Dated()
	}
	_, f.regional = o.projection.(projections.Regional)
	return f
}

func (f *rowFilter) wants(key []byte) bool {
	if store.IsCheckpoint(key) {
		return false
	}
	if f.partitions == nil {
		return true
	}
	p := projections.PartitionOf(f.projection, key)
	return p != projections.StoreWide && f.partitions.Has(uint8(p))
}

// after returns, for a key that is not wanted, the first later key that may be wanted; nil means there is none.
func (f *rowFilter) after(key []byte) []byte {
	if f.partitions == nil || f.regional || len(key) < 3 {
		return append(bytes.Clone(key), 0)
	}
	p := projections.PartitionOf(f.projection, key)
	if p == projections.StoreWide {
		return nil // only such rows follow
	}
	next := p + 1
	for next < events.NumPartitions && !f.partitions.Has(uint8(next)) {
		next++
	}
	shard := binary.BigEndian.AppendUint16(nil, uint16(next*events.NumShards/events.NumPartitions))
	switch {
	case slices.Contains(f.dated, projections.Tag(key[2])):
		if next == len(f.partitions) {
			return projections.PrefixEnd(key[:3])
		}
		return append(bytes.Clone(key[:3]), shard...)
	case len(f.dated) > 0:
		// Rows of a month may be among the keys of every shard.
		for tag := int(key[2]) + 1; tag <= 0xff; tag++ {
			if slices.Contains(f.dated, projections.Tag(tag)) {
				return []byte{key[0], key[1], byte(tag)}
			}
		}
		return projections.PrefixEnd(key[:2])
	case next == len(f.partitions):
		return nil
	}
	return shard
}

// pacer rests between pieces of work.
type pacer struct {
	pace  replay.Pace
	since time.Time
	// down ends the rests, see [Options].
	down <-chan struct{}
}

const (
	// paceRows is the number of rows that are compared between two looks at the clock.
	paceRows = 256
	// paceWork is the shortest work that is worth a rest.
	paceWork = 5 * time.Millisecond
)

func (p *pacer) rest(ctx context.Context) error {
	now := time.Now()
	if p.since.IsZero() {
		p.since = now
	}
	worked := now.Sub(p.since)
	if worked < paceWork {
		return ctx.Err()
	}
	timer := time.NewTimer(p.pace.Pause(worked))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.down:
	case <-ctx.Done():
	}
	p.since = time.Now()
	return ctx.Err()
}

func (p *pacer) isDown() bool {
	select {
	case <-p.down:
		return true
	default:
		return false
	}
}
