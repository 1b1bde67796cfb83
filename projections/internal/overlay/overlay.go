package overlay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// Overlay is the rows that were written since the last commit, over those of the database, with the rows that were read
// or written not long ago. It is what a fold writes to and reads from.
//
// A row stands in one place however often it is written, so a count that rises a thousand times in a batch is written
// once, and a row that comes and goes not at all. Lookups hash, commits sort. An iterator needs the rows with its
// prefix only: those are chained by shard and tag.
type Overlay struct {
	// db is nil for an overlay over nothing, which is never committed.
	db *pebble.DB
	// data holds keys and values; a row that grows moves to the end.
	data []byte
	rows []cell
	// spare is space for data when rows are forgotten.
	spare []byte
	// table finds rows: open addressing, index into rows + 1, 0: free. Its length is a power of two.
	table []uint32
	// dirty are the rows that the next commit writes, in no order.
	dirty      []uint32
	dirtyBytes int
	// orders find the dirty rows by the first bytes of their keys, the first so many of them: the others when somebody walks.
	orders  map[[PrefixLen]byte]order
	ordered int
	// keep is how many bytes of rows that are not dirty may be kept. Beyond limit, which is at most that, rows are forgotten.
	keep, limit int
	// order is space for sorting.
	order []dirtyRow
	// batch is used again by every commit.
	batch *pebble.Batch
	// under finds rows in the database as it was when the overlay was last reset: what was written since, the overlay
	// has.
	under Finder
	// unflushed spares it most searches in memtables.
	unflushed unflushed
	// asked counts the outcomes of lookups by tag.
	asked [256]struct{ found, absent uint32 }

	// What is merged into rows, and the ranges that are deleted: see overlay_merge.go.
	merges merges
	// deleted are the ranges that the next commit deletes, before it writes rows.
	deleted []keyRange
}

type cell struct {
	hash           uint64
	key, value     uint32 // where in data
	keyLen, valLen uint32
	room           uint32 // at value
	next           uint32 // in the chain, + 1
	operand        uint32 // the last that is to be merged into the row, + 1
	state          rowState
}

// rowState is a set of bits.
type rowState uint8

const (
	// rowLives: the row has a value; else it does not exist.
	rowLives rowState = 1 << iota
	// rowDirty: the database does not know yet.
	rowDirty
	// rowAbsent: the database is known to have no such row.
	rowAbsent
	// rowWarm: it was asked for since rows were last forgotten.
	rowWarm
	// rowUnknown: only the database knows what the row is before its operands.
	rowUnknown
	// rowAge, three bits: see age.
	rowAge1
	rowAge  = 7 * rowAge1
	maxAge  = 7
	rowUsed = rowWarm | rowAge
)

const (
	// maxKept is the largest value that is kept when it was only read.
	maxKept = 1 << 10
	// rowOverhead is about what a row costs in memory beside its key and value.
	rowOverhead = 64
	// leastFresh is how many bytes of rows come before some are forgotten, if so many may be kept: most are only written, and
	// would take all that there is and come between those that are asked for in the caches of the processor.
	leastFresh = 128 << 20
)

// Init begins with no rows over a database; nil means over nothing. Of rows that are not dirty it keeps about so many bytes. merge may
// be nil: then nothing is merged.
func (o *Overlay) Init(db *pebble.DB, keep int, merge MergeFunc) {
	*o = Overlay{
		db: db, keep: keep, limit: min(keep, leastFresh), orders: map[[PrefixLen]byte]order{}, merges: merges{merge: merge},
	}
	if db != nil {
		o.batch = db.NewBatch()
	}
	o.Reset()
}

// Reset forgets everything. It must not be called while a row is dirty.
func (o *Overlay) Reset() {
	o.under.Close()
	o.merges.reset()
	o.data, o.rows = o.data[:0], o.rows[:0]
	if len(o.table) != 1<<10 {
		o.table = make([]uint32, 1<<10)
	} else {
		clear(o.table)
	}
}

// Reuse forgets all rows, of which none may be dirty, and takes the memory of an overlay that is no longer needed.
func (o *Overlay) Reuse(used *Overlay) {
	clear(used.orders)
	if len(used.table) > len(o.table) {
		o.table = used.table
	}
	clear(o.table)
	o.data, o.rows, o.dirty, o.order = used.data[:0], used.rows[:0], used.dirty[:0], used.order[:0]
	if used.orders != nil {
		o.orders = used.orders
	}
	o.merges.list, o.merges.data = used.merges.list[:0], used.merges.data[:0]
}

// find returns the index of the row of a key, and where in the table it stands or would stand; -1 means there is none.
func (o *Overlay) find(key []byte, hash uint64) (row, slot int) {
	mask := len(o.table) - 1
	for slot = int(hash) & mask; o.table[slot] != 0; slot = (slot + 1) & mask {
		row = int(o.table[slot] - 1)
		if r := &o.rows[row]; r.hash == hash && bytes.Equal(o.keyOf(r), key) {
			return row, slot
		}
	}
	return -1, slot
}

func (o *Overlay) keyOf(r *cell) []byte { return o.data[r.key : r.key+r.keyLen : r.key+r.keyLen] }

func (o *Overlay) valueOf(r *cell) []byte {
	return o.data[r.value : r.value+r.valLen : r.value+r.valLen]
}

// add adds the row of a key that is not there.
func (o *Overlay) add(key []byte, hash uint64, slot int) (row int) {
	if 4*(len(o.rows)+1) > 3*len(o.table) {
		o.grow()
		_, slot = o.find(key, hash)
	}
	o.rows = append(o.rows, cell{hash: hash, key: uint32(len(o.data)), keyLen: uint32(len(key))})
	o.data = append(o.data, key...)
	o.table[slot] = uint32(len(o.rows))
	return len(o.rows) - 1
}

func (o *Overlay) grow() {
	o.table = make([]uint32, 2*len(o.table))
	o.index()
}

// index enters all rows into an empty table.
func (o *Overlay) index() {
	mask := len(o.table) - 1
	for i := range o.rows {
		slot := int(o.rows[i].hash) & mask
		for o.table[slot] != 0 {
			slot = (slot + 1) & mask
		}
		o.table[slot] = uint32(i + 1)
	}
}

// put gives a row its value.
func (o *Overlay) put(r *cell, value []byte) {
	if r.room < uint32(len(value)) {
		r.value, r.room = uint32(len(o.data)), uint32(len(value))
		o.data = append(o.data, value...)
	} else {
		copy(o.data[r.value:], value)
	}
	r.valLen = uint32(len(value))
}

// Dirty reports whether a commit would write anything.
func (o *Overlay) Dirty() bool { return len(o.dirty) > 0 || len(o.deleted) > 0 }

// MaxBatch is how many bytes may be written between two commits. With what is kept it is less than the 4 GiB in which rows are found.
const MaxBatch = 1 << 30

// Full reports that more was written than may be.
func (o *Overlay) Full() bool { return len(o.data) > MaxBatch+o.keep }

// Iter returns an iterator over the keys k with lower <= k < upper, which counts itself in open. Nothing may be written before it is
// closed.
func (o *Overlay) Iter(lower, upper []byte, open *int) Iterator {
	var rows pebble.Reader // a nil *pebble.DB in it would not be nil
	if o.db != nil {
		rows = o.db
	}
	under := NewScan(rows, lower, upper, open)
	dirty, gone := o.within(lower, upper), o.deletedWithin(lower, upper)
	if len(dirty) == 0 && len(gone) == 0 {
		return under
	}
	return &merged{over: o, dirty: dirty, gone: gone, scan: under}
}

// Get returns the value of a key, good until the next call.
func (o *Overlay) Get(key []byte) ([]byte, bool, error) {
	hash := xxh3.Hash(key)
	row, slot := o.find(key, hash)
	o.applyRangeDeletes(row)
	if row >= 0 {
		r := &o.rows[row]
		r.state |= rowWarm
		switch {
		case r.operand != 0:
			return o.getMerged(r)
		case r.state&rowLives != 0:
			o.asked[key[2]].found++
			return o.valueOf(r), true, nil
		case r.state&rowUnknown == 0:
			return nil, false, nil
		}
	}
	value, ok, err := o.base(key, hash)
	switch {
	case err != nil:
		return nil, false, err
	case ok && len(value) > maxKept:
		return value, true, nil
	case row < 0:
		row = o.add(key, hash, slot)
	}
	r := &o.rows[row]
	if !ok {
		if r.state = rowAbsent; o.comesBack(key) {
			r.state |= rowWarm
		}
		return nil, false, nil
	}
	o.asked[key[2]].found++
	o.put(r, value)
	r.state = rowLives | rowWarm
	return o.valueOf(r), true, nil
}

// comesBack reports whether a row that is not there is of a kind that is asked for again once it is written, as counts are. Of
// others it is asked once whether they are there, and to keep those would cost those that are.
func (o *Overlay) comesBack(key []byte) bool {
	n := &o.asked[key[2]]
	if n.absent++; n.absent+n.found > 1<<20 { // it may change
		n.absent, n.found = n.absent/2, n.found/2
	}
	return n.found > n.absent
}

// base returns the row of a key as the database has it, less what was deleted since the last commit.
func (o *Overlay) base(key []byte, hash uint64) ([]byte, bool, error) {
	if o.db == nil || o.inDeleted(key) {
		return nil, false, nil
	}
	if o.unflushed.lacks(key, hash) {
		return o.unflushed.tables.find(o.db, key)
	}
	return o.under.Find(o.db, key)
}

// Set writes a row. Key and value are copied.
func (o *Overlay) Set(key, value []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.find(key, hash)
	o.applyRangeDeletes(row)
	if row < 0 {
		row = o.add(key, hash, slot)
	}
	r := &o.rows[row]
	if r.operand == 0 && r.state&rowLives != 0 && bytes.Equal(o.valueOf(r), value) {
		return
	}
	o.touch(row)
	o.dirtyBytes += len(value) - r.countedValue()
	o.put(r, value)
	r.operand = 0
	r.state = r.state&^rowUnknown | rowLives
}

// Delete removes a row, if there is one.
func (o *Overlay) Delete(key []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.find(key, hash)
	o.applyRangeDeletes(row)
	known := row >= 0
	if !known {
		row = o.add(key, hash, slot)
	}
	r := &o.rows[row]
	if known && r.operand == 0 && r.state&(rowLives|rowUnknown) == 0 {
		return
	}
	o.touch(row)
	o.dirtyBytes -= r.countedValue()
	r.operand = 0
	r.state &^= rowLives | rowUnknown
}

// countedValue is how many bytes of the value of a dirty row stand in dirtyBytes.
func (r *cell) countedValue() int {
	if r.state&rowLives == 0 {
		return 0
	}
	return int(r.valLen)
}

// touch makes a row dirty.
func (o *Overlay) touch(row int) {
	r := &o.rows[row]
	if r.state&rowDirty != 0 {
		return
	}
	r.state |= rowDirty
	o.dirty = append(o.dirty, uint32(row))
	o.dirtyBytes += int(r.keyLen) + r.countedValue()
}

// Size is about how many bytes a commit frees: what it writes, or what is kept beyond what may be.
func (o *Overlay) Size() int { return max(o.dirtyBytes, o.Memory()-o.limit) }

// Memory is about how many bytes the rows take.
func (o *Overlay) Memory() int { return len(o.data) + rowOverhead*len(o.rows) + o.merges.memory() }

// Commit writes the dirty rows in one batch, in the order of their keys: so they are inserted several times faster.
func (o *Overlay) Commit() error {
	o.batch.Reset()
	for _, d := range o.deleted {
		_ = o.batch.DeleteRange(d.lower, d.upper, nil) // fails only on an indexed batch
		o.unflushed.wroteRange(d)
	}
	merged := false
	for _, d := range o.sorted(o.dirty) {
		r := &o.rows[d.row]
		o.unflushed.wrote(o.keyOf(r), r.hash)
		switch {
		case r.operand != 0:
			if err := o.writeMerged(r); err != nil {
				return err
			}
			merged = true
		case r.state&rowLives != 0:
			op := o.batch.SetDeferred(int(r.keyLen), int(r.valLen))
			copy(op.Key, o.keyOf(r))
			copy(op.Value, o.valueOf(r))
			_ = op.Finish() // fails only on an indexed batch
			r.state = rowLives | r.state&rowUsed
		case r.state&rowAbsent != 0: // came and went
			r.state = rowAbsent | r.state&rowUsed
		default:
			op := o.batch.DeleteDeferred(int(r.keyLen))
			copy(op.Key, o.keyOf(r))
			_ = op.Finish()
			r.state = rowAbsent | r.state&rowUsed
		}
		r.next = 0
	}
	if err := o.db.Apply(o.batch, pebble.NoSync); err != nil {
		return err
	}
	o.dirty, o.ordered, o.dirtyBytes = o.dirty[:0], 0, 0
	clear(o.orders)
	if merged || len(o.deleted) > 0 {
		o.under.Close() // rows are in the database now that are not here
		o.merges.reset()
	}
	if len(o.deleted) > 0 {
		o.deleted = nil
		o.Reset() // rows are here that are not in the database any more
	}
	if o.Memory() > o.limit {
		o.forget()
		// What is kept is copied each time, so the more that is, the more comes before.
		o.limit = min(o.keep, o.Memory()+max(leastFresh, o.Memory()/2))
	}
	return nil
}

// forget drops rows: those that a fold only writes, as most, and if the others would fill more than three quarters of what may be
// kept, of them those that were not asked about for the longest time. If what was asked for since rows were last forgotten does not
// fit, all is dropped. No row may be dirty.
func (o *Overlay) forget() {
	most := o.keep / 4 * 3
	older := 0
	sizes, useful := o.sizes(older)
	if useful > most {
		older = 1
		sizes, _ = o.sizes(older)
	}
	oldest, kept := 0, 0
	for oldest < maxAge && kept+sizes[oldest+1] <= most {
		oldest++
		kept += sizes[oldest]
	}
	if kept == 0 {
		o.Reset()
		return
	}
	// Rows that are dropped are found in the database as it is now.
	o.under.Close()
	data, rows := o.spare[:0], o.rows[:0]
	for i := range o.rows {
		r := o.rows[i]
		age := r.age(older)
		if age == 0 || age > oldest {
			continue
		}
		key, value := o.keyOf(&r), o.data[r.value:r.value+r.valLen]
		r.key = uint32(len(data))
		data = append(data, key...)
		r.value, r.room = uint32(len(data)), r.valLen
		data = append(data, value...)
		r.state = r.state&^rowUsed | rowAge1*rowState(age)
		rows = append(rows, r)
	}
	o.spare, o.data, o.rows = o.data, data, rows
	clear(o.table)
	o.index()
}

// sizes returns what the rows of each age take, if those that were not asked for become so much older, and all that have an age.
func (o *Overlay) sizes(older int) (sizes [maxAge + 1]int, useful int) {
	for i := range o.rows {
		r := &o.rows[i]
		age, size := r.age(older), int(r.keyLen+r.valLen)+rowOverhead
		if sizes[age] += size; age > 0 {
			useful += size
		}
	}
	return sizes, useful
}

// age returns how often rows were forgotten for lack of space since a row that is not dirty was asked for, and this one kept, if it
// becomes so much older now; 0 means it is of no use, or not known.
func (r *cell) age(older int) int {
	age := int(r.state&rowAge/rowAge1) + older
	switch {
	case r.state&rowUnknown != 0, r.state&rowUsed == 0:
		return 0
	case r.state&rowWarm != 0:
		return 1
	case age > maxAge:
		return 0
	}
	return age
}

// FlushBegins is called before the database begins to flush what was committed: an iterator would keep the memtables in memory.
func (o *Overlay) FlushBegins() { o.under.Close() }

// FlushBegun is called when everything that was committed is being flushed, FlushEnded when that has ended, before a commit.
func (o *Overlay) FlushBegun() { o.unflushed.begun() }

// FlushEnded is described with [Overlay.FlushBegun].
func (o *Overlay) FlushEnded() { o.unflushed.ended() }

// WantsFlush reports that lookups would be faster after a flush.
func (o *Overlay) WantsFlush() bool { return o.unflushed.full() }

// Overwritten is called when rows of the database were written otherwise. Nothing may be dirty.
func (o *Overlay) Overwritten() {
	o.Reset()
	o.unflushed.wroteAll()
}

// Close drops everything.
func (o *Overlay) Close() {
	o.under.Close()
	o.unflushed.tables.Close()
	if o.batch != nil {
		_ = o.batch.Close()
	}
	*o = Overlay{}
}

// keyHead is the first 16 bytes of a key, by which nearly all keys are sorted without a look at them.
type keyHead struct{ first, second uint64 }

func headOf(key []byte) keyHead {
	var head [16]byte
	copy(head[:], key)
	return keyHead{binary.BigEndian.Uint64(head[:]), binary.BigEndian.Uint64(head[8:])}
}

func (h keyHead) compare(other keyHead) int {
	switch {
	case h.first < other.first:
		return -1
	case h.first > other.first:
		return 1
	}
	return cmp.Compare(h.second, other.second)
}

// dirtyRow sorts rows.
type dirtyRow struct {
	keyHead
	row uint32
}

func (o *Overlay) sorted(rows []uint32) []dirtyRow {
	o.order = o.order[:0]
	for _, row := range rows {
		o.order = append(o.order, o.dirtyRow(row))
	}
	o.sort(o.order)
	return o.order
}

func (o *Overlay) dirtyRow(row uint32) dirtyRow { return dirtyRow{headOf(o.keyOf(&o.rows[row])), row} }

func (o *Overlay) sort(rows []dirtyRow) {
	slices.SortFunc(rows, func(a, b dirtyRow) int {
		if c := a.compare(b.keyHead); c != 0 {
			return c
		}
		return bytes.Compare(o.keyOf(&o.rows[a.row]), o.keyOf(&o.rows[b.row]))
	})
}
