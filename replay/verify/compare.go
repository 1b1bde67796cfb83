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

// Comparison is the result of [Compare]. Verify and Repair collect in it the result of one
// comparison of all rows, which they may make in several parts.
type Comparison struct {
	// Rows is the number of rows that were compared. It includes rows that only one of the two
	// stores has. Differences is the number of rows that differ.
	Rows, Differences uint64
	// Partitions is the number of differences in each partition. Rows that belong to no partition
	// are counted under [projections.StoreWide].
	Partitions map[int]uint64
	// Listed are the first differences, up to [Options.Listed].
	Listed []Difference

	// differingKeys are the keys of the first differences, up to maxKeys.
	differingKeys [][]byte
	// maxRows is the number of rows after which the comparison ends; 0 means that it compares all.
	maxRows uint64
}

// maxKeys is how many keys of differing rows a comparison remembers, and so how many rows one round
// of repair can repair. It limits the memory for the keys.
const maxKeys = 1 << 18

// Compare compares the rows of a live store with those of a shadow, in the order of keys. The
// caller must pass readers of the same position. Compare skips the checkpoint, which is the row
// that holds the position: a store does not write it after every envelope, so the checkpoints of
// two equal stores may differ. Of o, Compare uses New, Partitions, Listed, Pace and Progress.
func Compare(ctx context.Context, live, shadow projections.Reader, o Options) (*Comparison, error) {
	o.setDefaults()
	c := &Comparison{Partitions: map[int]uint64{}}
	o.Hold = math.MaxInt64 // never stop early: Compare cannot continue at another position
	_, err := c.compareFrom(ctx, live, shadow, &o, nil)
	return c, err
}

// sampleRows is how many rows estimateCompareTime compares at most.
const sampleRows = 1 << 16

// estimateCompareTime estimates how long the comparison of this many rows takes, including the
// rests. It measures how long it takes to compare the first rows of the live store with themselves,
// because the shadow may not exist yet. It returns 0 if it cannot compare any row, or if the
// comparison fails, for example at a row that cannot be read: an estimate is not worth an error,
// and the comparison that follows will find the cause.
func estimateCompareTime(ctx context.Context, live Store, o Options, rows int64) time.Duration {
	v, err := live.View()
	if err != nil {
		return 0
	}
	defer func() { _ = v.Close() }()

	// Measure without rests, and add the rests in proportion afterwards. A rest may take longer
	// than the comparison of all sampled rows, so a few rests more or less would falsify the
	// result.
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

// compareFrom compares the rows from a key on and adds the result to c. It stops early after
// [Options.Hold], or when storeClosing is closed. Then it returns the key at which to continue; nil
// means that no row is left, or that maxRows were compared. It looks at the clock and at
// storeClosing only after every rowsPerCheck rows.
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
		// Look at the row with the smaller key. If order is negative, only the live store has this
		// row. If it is positive, only the shadow has it. If it is 0, both have it.
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

// smallestKey returns a copy of the smallest of the keys of the current rows of the iterators. It
// returns nil if all iterators have ended.
func smallestKey(sides ...*rowIterator) (key []byte) {
	for _, s := range sides {
		if s.valid && (key == nil || bytes.Compare(s.key(), key) < 0) {
			key = bytes.Clone(s.key())
		}
	}
	return key
}

// errShadowCorrupt means that the shadow has rows that cannot be read, although it was written just
// now. So the differences that the comparison has found prove nothing about the live store.
var errShadowCorrupt = errors.New("verify: the shadow is corrupt: the disk or memory of this machine cannot be trusted")

// addDifference counts a difference, and lists it and remembers its key while there is room for
// them. expected is the value in the shadow, and found the value in the live store; nil means that
// the row does not exist there. If the live store has the row but cannot read it, found is nil and
// unreadable is the error.
func (c *Comparison) addDifference(o *Options, key, expected, found []byte, unreadable *projections.UnreadableRowError) {
	d := Difference{
		Partition:  projections.PartitionOf(o.projection, key),
		Key:        bytes.Clone(key),
		Expected:   bytes.Clone(expected),
		Found:      bytes.Clone(found),
		projection: o.projection.Name(),
	}
	// Set the field only if there is an error: an interface with a nil pointer is not equal to nil.
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

// rowIterator iterates over the rows of one store that its filter wants. Unlike an iterator of the
// store, it continues after an unreadable row, which is a row whose values cannot be merged (see
// [projections.UnreadableRowError]). Any other error ends it, such as one of the disk.
type rowIterator struct {
	reader projections.Reader
	it     projections.Iterator
	filter *rowFilter
	// valid reports whether there is a current row. It is false before the first call of next,
	// after the last row, and after an error that has ended the iteration.
	valid bool
	// unreadable is the error of the current row if this row is unreadable, and otherwise nil.
	unreadable *projections.UnreadableRowError
	// sawUnreadable is set once there was an unreadable row, whether the filter wants it or not.
	sawUnreadable bool
	// err is the error that has ended the iteration. It is never that of an unreadable row.
	err error
}

// newRowIterator returns an iterator over the rows whose keys are not less than from; nil means all
// rows. The first call of next moves it to the first of them.
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

// next moves to the next wanted row. It sets valid to false if there is none.
func (s *rowIterator) next() {
	if s.unreadable == nil {
		s.skipUnwanted(s.it.Next())
		return
	}
	// An iterator of the store does not move anymore after an unreadable row, and skipUnwanted has
	// closed it. Continue with a new iterator, at the least key above that of the row.
	from := append(bytes.Clone(s.unreadable.Key), 0)
	s.it = s.reader.Iter(nil, nil)
	s.unreadable = nil
	s.skipUnwanted(s.it.SeekGE(from))
}

// skipUnwanted completes a move of the iterator of the store: it moves on until a row is wanted,
// and then sets valid, unreadable and err. ok is the result of the move, which is true if the
// iterator of the store is at a row. An iterator that has ended is closed.
func (s *rowIterator) skipUnwanted(ok bool) {
	for ok && !s.filter.wants(s.it.Key()) {
		from := s.filter.nextWantedKey(s.it.Key())
		if from == nil {
			ok = false
			break
		}
		if bytes.Compare(from, s.it.Key()) <= 0 {
			// A damaged store may have malformed keys, for which nextWantedKey returns an earlier
			// key, for example a key of a month that is too short to have a shard. Move forward in
			// any case, because otherwise the loop might never end.
			from = append(bytes.Clone(s.it.Key()), 0)
		}
		ok = s.it.SeekGE(from)
	}
	s.valid = ok
	if ok {
		return
	}
	// The iterator of the store has ended: after the last row, at an error, or because no wanted
	// row follows.
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

// close closes the iterator of the store, which may be closed already. It ignores the error of the
// iterator: if the iteration has ended, unreadable or err has this error.
func (s *rowIterator) close() {
	_ = s.it.Close()
}

// rowFilter selects the rows to compare.
type rowFilter struct {
	projection projections.Projection
	// partitions are the wanted partitions; nil means all rows are wanted.
	partitions *events.Partitions
	// datedTags are the tags of the rows whose keys begin with a month, the tag and then the shard,
	// instead of the shard and then the tag (see [projections.MonthKeyed]).
	datedTags []projections.Tag
	// hasRegions is set if the projection has regions (see [projections.Regional]). Then rows of
	// one partition can be anywhere among those of others, because the key of a row in a region
	// need not begin with the shard of its home.
	hasRegions bool
}

// newRowFilter returns a filter that wants the rows of o.Partitions.
func newRowFilter(o *Options) *rowFilter {
	f := &rowFilter{projection: o.projection, partitions: o.Partitions}
	if dated, ok := o.projection.(projections.MonthKeyed); ok {
		f.datedTags = dated.MonthTags()
	}
	_, f.hasRegions = o.projection.(projections.Regional)
	return f
}

// wants reports whether the row with this key is compared. The checkpoint is never compared. Rows
// that belong to no partition are compared only if partitions is nil.
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

// nextWantedKey returns, for a key that is not wanted, a later key to which the iteration can jump,
// because no row between the two is wanted; nil means that no wanted row follows. With such jumps,
// the verification of one partition need not read the whole store. If the projection has regions,
// it reads the whole store all the same.
func (f *rowFilter) nextWantedKey(key []byte) []byte {
	// Here the key does not tell where the next wanted row is, so go on to the very next key.
	if f.partitions == nil || f.hasRegions || len(key) < 3 {
		return append(bytes.Clone(key), 0)
	}

	p := projections.PartitionOf(f.projection, key)
	if p == projections.StoreWide {
		return nil // shards are not this high, so only rows of the store as a whole follow
	}

	// Find the next wanted partition and its first shard. next is NumPartitions if there is none.
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
		// This key begins with a shard. A month can be the same number, so keys of that month may
		// follow with the same first two bytes and a higher tag. Jump to the next tag of such keys,
		// or to the next number if no such tag follows.
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

// restTimer rests between pieces of work, at a pace. Only one goroutine may use it.
type restTimer struct {
	pace replay.Pace
	// workStart is when the current piece of work began; zero before the first call of rest.
	workStart time.Time
	// storeClosing ends a rest early when it is closed. See the field of Options.
	storeClosing <-chan struct{}
}

const (
	// rowsPerCheck is how many rows are compared between two checks whether it is time to rest or
	// to stop.
	rowsPerCheck = 256
	// minWork is how long the work since the last rest must have taken before rest rests again. The
	// rests after shorter work would be so short that a timer would make them too long.
	minWork = 5 * time.Millisecond
)

// rest rests in proportion to the work since the last rest, if that was at least minWork. The first
// call does not rest: it starts to measure. rest returns an error only if ctx has ended.
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

// isStoreClosing reports whether the live store has failed or begun to close. It returns false if
// storeClosing is nil.
func (p *restTimer) isStoreClosing() bool {
	select {
	case <-p.storeClosing:
		return true
	default:
		return false
	}
}
