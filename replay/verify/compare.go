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
	// Rows is the number of rows that were compared. Differences is the number of rows that differ.
	Rows, Differences uint64
	// Partitions counts the differences by partition, or [projections.StoreWide].
	Partitions map[int]uint64
	// Listed are the first differences, up to [Options.Listed].
	Listed []Difference

	// differingKeys are the keys of the first differences, up to maxKeys.
	differingKeys [][]byte
	// maxRows is the number of rows after which the comparison ends; 0 compares all.
	maxRows uint64
}

// maxKeys is how many differing rows are repaired before the stores are compared again. It limits
// the memory for their keys.
const maxKeys = 1 << 18

// Compare compares the rows of a live store with those of a shadow at the same position, in the
// order of keys. It skips the row that stores the position, because when a store commits is not
// determined by the log.
func Compare(ctx context.Context, live, shadow projections.Reader, o Options) (*Comparison, error) {
	o.setDefaults()
	c := &Comparison{Partitions: map[int]uint64{}}
	o.Hold = math.MaxInt64 // the caller has chosen the position
	_, err := c.compareFrom(ctx, live, shadow, &o, nil)
	return c, err
}

// sampleRows is how many rows estimateCompareTime compares.
const sampleRows = 1 << 16

// estimateCompareTime estimates how long the comparison of this many rows takes, including the
// rests. It compares some rows of the live store with themselves. It returns 0 if that fails,
// because of a row that cannot be read: the comparison itself will report the row.
func estimateCompareTime(ctx context.Context, live Store, o Options, rows int64) time.Duration {
	v, err := live.View()
	if err != nil {
		return 0
	}
	defer func() { _ = v.Close() }()

	// Measure without rests, and add them afterwards: a rest may be longer than the whole sample.
	pace := o.Pace
	o.Pace = replay.Pace{}
	o.Progress = nil
	c := &Comparison{maxRows: sampleRows, Partitions: map[int]uint64{}}
	began := time.Now()
	if _, err := c.compareFrom(ctx, v, v, &o, nil); err != nil || c.Rows == 0 {
		return 0
	}

	took := time.Since(began)
	perRow := float64(took+pace.Pause(took)) / float64(c.Rows)
	return time.Duration(perRow * float64(rows))
}

// compareFrom compares the rows from a key on. It stops after [Options.Hold], or when the live
// store is to be closed, and returns the key at which to continue; nil means that no row is left.
func (c *Comparison) compareFrom(
	ctx context.Context, live, shadow projections.Reader, o *Options, key []byte,
) (next []byte, err error) {
	filter := newRowFilter(o)
	found := newRowIterator(live, filter, key)
	defer found.close()
	want := newRowIterator(shadow, filter, key)
	defer want.close()

	startTime := time.Now()
	rests := restTimer{pace: o.Pace, storeClosing: o.storeClosing}
	found.next()
	want.next()
	err = errors.Join(found.err, want.err)
	for (found.valid || want.valid) && err == nil {
		// The row with the smaller key comes first. If order is negative, only the live store has
		// it.
		order := 1
		if found.valid {
			order = -1
			if want.valid {
				order = bytes.Compare(found.key(), want.key())
			}
		}
		switch {
		case order < 0:
			c.addDifference(o, found.key(), nil, found.value(), found.unreadable)
		case order > 0:
			c.addDifference(o, want.key(), want.value(), nil, nil)
		case found.unreadable != nil || !bytes.Equal(found.value(), want.value()):
			c.addDifference(o, want.key(), want.value(), found.value(), found.unreadable)
		}
		c.Rows++
		o.Progress.Add(1)
		if c.Rows == c.maxRows {
			break
		}

		if order <= 0 {
			found.next()
		}
		if order >= 0 {
			want.next()
		}
		err = errors.Join(found.err, want.err)

		// Reading the clock for every row would cost more than comparing it.
		if c.Rows%rowsPerCheck == 0 && err == nil {
			if time.Since(startTime) >= o.Hold || rests.isStoreClosing() {
				next = smallestKey(found, want)
				break
			}
			err = rests.rest(ctx)
		}
	}

	if err == nil && want.sawUnreadable {
		err = errShadowCorrupt
	}
	return next, err
}

// smallestKey returns a copy of the smallest key at which any of the iterators is; nil means that
// all have ended.
func smallestKey(sides ...*rowIterator) (key []byte) {
	for _, s := range sides {
		if s.valid && (key == nil || bytes.Compare(s.key(), key) < 0) {
			key = bytes.Clone(s.key())
		}
	}
	return key
}

// errShadowCorrupt means that the shadow, which was written just now, has rows that cannot be read.
// So it proves nothing about the live store.
var errShadowCorrupt = errors.New("verify: the shadow is corrupt: the disk or memory of this machine cannot be trusted")

// addDifference counts and lists a difference. expected or found is nil if the row does not exist
// there.
func (c *Comparison) addDifference(o *Options, key, expected, found []byte, unreadable *projections.UnreadableRowError) {
	d := Difference{
		Partition:  projections.PartitionOf(o.projection, key),
		Key:        bytes.Clone(key),
		Expected:   bytes.Clone(expected),
		Found:      bytes.Clone(found),
		projection: o.projection.Name(),
	}
	// A nil pointer in the interface would not be equal to nil.
	if unreadable != nil {
		d.Unreadable = unreadable
	}

	c.Differences++
	c.Partitions[d.Partition]++
	if len(c.Listed) < o.Listed {
		c.Listed = append(c.Listed, d)
	}
	if len(c.differingKeys) < maxKeys {
		c.differingKeys = append(c.differingKeys, d.Key)
	}
}

// rowIterator iterates over the wanted rows of one store. Unlike an iterator of the store, it
// continues after a row that cannot be read.
type rowIterator struct {
	reader projections.Reader
	it     projections.Iterator
	filter *rowFilter
	// valid is false after the last row, and before the first call of next.
	valid bool
	// unreadable is the error of the current row, if the row cannot be read.
	unreadable *projections.UnreadableRowError
	// sawUnreadable is set once there was such a row.
	sawUnreadable bool
	// err is the error that has ended the iteration.
	err error
}

// newRowIterator returns an iterator before the first row whose key is not less than from.
func newRowIterator(r projections.Reader, filter *rowFilter, from []byte) *rowIterator {
	return &rowIterator{reader: r, it: r.Iter(from, nil), filter: filter}
}

// key returns the key of the current row.
func (s *rowIterator) key() []byte {
	if s.unreadable != nil {
		return s.unreadable.Key
	}
	return s.it.Key()
}

// value returns the value of the current row; nil means that the row cannot be read. An empty value
// is not nil.
func (s *rowIterator) value() []byte {
	if s.unreadable != nil {
		return nil
	}
	if value := s.it.Value(); value != nil {
		return value
	}
	return []byte{}
}

// next moves to the next wanted row.
func (s *rowIterator) next() {
	if s.unreadable == nil {
		s.skipUnwanted(s.it.Next())
		return
	}
	// An unreadable row ends an iterator of the store. Continue after it with a new one.
	from := append(bytes.Clone(s.unreadable.Key), 0)
	s.it = s.reader.Iter(nil, nil)
	s.unreadable = nil
	s.skipUnwanted(s.it.SeekGE(from))
}

// skipUnwanted moves on to the next wanted row. ok reports whether the iterator of the store is at
// a row.
func (s *rowIterator) skipUnwanted(ok bool) {
	for ok && !s.filter.wants(s.it.Key()) {
		from := s.filter.nextWantedKey(s.it.Key())
		if from == nil {
			ok = false
			break
		}
		if bytes.Compare(from, s.it.Key()) <= 0 {
			// Always move forward, even if the keys of a damaged store are out of order.
			from = append(bytes.Clone(s.it.Key()), 0)
		}
		ok = s.it.SeekGE(from)
	}
	s.valid = ok
	if ok {
		return
	}
	// The iterator has ended, at the last row or at an error.
	err := s.it.Close()
	if !errors.As(err, &s.unreadable) {
		s.err = err
		return
	}

	s.sawUnreadable = true
	s.valid = s.filter.wants(s.unreadable.Key)
	if !s.valid {
		s.next()
	}
}

// close closes the iterator of the store. Its errors have been reported before.
func (s *rowIterator) close() {
	_ = s.it.Close()
}

// rowFilter selects the rows to compare.
type rowFilter struct {
	projection projections.Projection
	// partitions are the wanted partitions; nil means all rows are wanted.
	partitions *events.Partitions
	// datedTags are the tags of rows that are grouped by month instead of by shard.
	datedTags []projections.Tag
	// hasRegions is set if the projection has rows of regions. The rows of a partition are not
	// contiguous then.
	hasRegions bool
}

// newRowFilter returns the filter for the partitions of o.
func newRowFilter(o *Options) *rowFilter {
	f := &rowFilter{projection: o.projection, partitions: o.Partitions}
	if dated, ok := o.projection.(projections.MonthKeyed); ok {
		f.datedTags = dated.MonthTags()
	}
	_, f.hasRegions = o.projection.(projections.Regional)
	return f
}

// wants reports whether the row is compared.
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

// nextWantedKey returns, for a key that is not wanted, a later key before which no row is wanted;
// nil means that none follows. Without such jumps, the verification of one partition would read the
// whole store.
func (f *rowFilter) nextWantedKey(key []byte) []byte {
	// Without knowledge of the order of keys, the next key may be wanted.
	if f.partitions == nil || f.hasRegions || len(key) < 3 {
		return append(bytes.Clone(key), 0)
	}

	p := projections.PartitionOf(f.projection, key)
	if p == projections.StoreWide {
		return nil // only rows of the store as a whole follow
	}

	// Find the next wanted partition, and the first shard of it.
	next := p + 1
	for next < events.NumPartitions && !f.partitions.Has(uint8(next)) {
		next++
	}
	shard := binary.BigEndian.AppendUint16(nil, uint16(next*events.NumShards/events.NumPartitions))

	switch {
	case slices.Contains(f.datedTags, projections.Tag(key[2])):
		if next == events.NumPartitions {
			return projections.PrefixEnd(key[:3])
		}
		return append(bytes.Clone(key[:3]), shard...)
	case len(f.datedTags) > 0:
		// Rows of months stand among the keys of every shard, so jump to the next tag that has such
		// rows, or else to the next shard.
		for tag := int(key[2]) + 1; tag <= 0xff; tag++ {
			if slices.Contains(f.datedTags, projections.Tag(tag)) {
				return []byte{key[0], key[1], byte(tag)}
			}
		}
		return projections.PrefixEnd(key[:2])
	case next == events.NumPartitions:
		return nil
	}
	return shard
}

// restTimer rests between pieces of work.
type restTimer struct {
	pace replay.Pace
	// workStart is when the current piece of work began; zero before the first call of rest.
	workStart time.Time
	// storeClosing ends a rest early, see [Options].
	storeClosing <-chan struct{}
}

const (
	// rowsPerCheck is how many rows are compared between two looks at the clock.
	rowsPerCheck = 256
	// minWork is the shortest work that is worth a rest: timers are too coarse for shorter rests.
	minWork = 5 * time.Millisecond
)

// rest rests if enough work was done since the last rest. It returns the error of ctx.
func (p *restTimer) rest(ctx context.Context) error {
	now := time.Now()
	if p.workStart.IsZero() {
		p.workStart = now
	}
	worked := now.Sub(p.workStart)
	if worked < minWork {
		return ctx.Err()
	}

	timer := time.NewTimer(p.pace.Pause(worked))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.storeClosing:
	case <-ctx.Done():
	}
	p.workStart = time.Now()
	return ctx.Err()
}

// isStoreClosing reports whether the live store is to be closed.
func (p *restTimer) isStoreClosing() bool {
	select {
	case <-p.storeClosing:
		return true
	default:
		return false
	}
}
