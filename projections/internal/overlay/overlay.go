package overlay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// Overlay holds the rows that were written since the last commit, and rows that were read or written not long before it, over the rows
// of the database. A fold reads and writes through it. It belongs to one goroutine.
//
// A row is kept once however often it is written. So a count that rises a thousand times in a batch is written
// once, and a row that comes and goes is not written at all. Lookups hash, commits sort. An iterator needs only the rows with its
// prefix: those are chained by shard and tag.
type Overlay struct {
	// db is nil for an overlay over nothing, which is never committed.
	db *pebble.DB
	// data holds keys and values. A value that outgrows its room moves to the end.
	data []byte
	rows []cell
	// spare is the memory into which forget copies data; the two are swapped.
	spare []byte
	// table finds rows by hash, with open addressing. Its length is a power of two.
	table []entry
	// dirty are the indexes of the rows that the next commit writes, in the order of their first write; dirtyBytes is what Pebble reckons
	// that they take in a memtable.
	dirty      []uint32
	dirtyBytes int
	// orders find dirty rows by the first bytes of their keys. They have the first ordered rows of dirty; a walk adds the rest.
	orders  map[[PrefixLen]byte]order
	ordered int
	// keep is the most bytes of clean rows that stay in memory. A commit forgets rows once the rows take more than limit, at most keep.
	keep, limit int
	// order is scratch memory for sorting.
	order []dirtyRow
	// touched means nothing. It keeps the compiler from leaving out what lookAhead reads.
	touched byte
	// batch is reused by every commit.
	batch *pebble.Batch
	// under finds rows in the database as it was when under was last closed. That is enough: the overlay has every row that was written
	// since, and closes under before it forgets one.
	under Finder
	// unflushed spares lookups most searches in memtables.
	unflushed unflushed
	// asked counts the outcomes of lookups by tag.
	asked [256]struct{ found, absent uint32 }

	// merges has the values that are merged into rows: see merge.go.
	merges merges
	// deleted are the ranges that the next commit deletes, before it writes rows.
	deleted []keyRange
}

// entry is where the table finds a row: 1 + the index in rows, and the upper half of the hash above it. 0 means free. A row whose half
// differs is not looked at: with many rows, each look waits for memory.
type entry uint64

func entryOf(row int, hash uint64) entry { return entry(hash>>32<<32 | uint64(row+1)) }

// cell is a row. Offsets of 32 bits keep it small; MaxBatch keeps data below 4 GiB.
type cell struct {
	hash           uint64
	key, value     uint32 // offsets in data
	keyLen, valLen uint32
	room           uint32 // bytes at value that the row may use
	next           uint32 // 1 + the row before it in the chain of its order
	operand        uint32 // 1 + the last operand that is to be merged into the row
	state          rowState
}

// rowState is a set of bits.
type rowState uint8

const (
	// rowLives: the row has a value; else it does not exist.
	rowLives rowState = 1 << iota
	// rowDirty: the next commit writes the row.
	rowDirty
	// rowAbsent: the database is known to have no such row, so that a row which comes and goes needs no delete.
	rowAbsent
	// rowWarm: the fold has read the row since rows were last forgotten.
	rowWarm
	// rowUnknown: the value under the operands is only in the database.
	rowUnknown
	// rowAge, three bits: see age.
	rowAge1
	rowAge  = 7 * rowAge1
	maxAge  = 7
	rowUsed = rowWarm | rowAge
)

const (
	// nodeBytes is what Pebble reckons for a row of a batch beside key and value, in bytes: a node of the skip list with its greatest
	// height. A batch of half a memtable by this reckoning is flushed by itself, and the memtable before it, however empty that is.
	nodeBytes = 200
	// maxKept is the largest value, in bytes, that is kept when the fold has only read it.
	maxKept = 1 << 10
	// rowOverhead is about the memory of a row beside its key and value, in bytes.
	rowOverhead = 64
	// leastFresh is the number of bytes of rows before some are forgotten, if keep allows as many. Waiting until keep is full would be
	// worse: most rows are only written, and would lie between the rows that are read in the caches of the processor.
	leastFresh = 128 << 20
)

// Init begins with no rows over a database; nil means over nothing. It keeps about keep bytes of clean rows. merge may be nil if the
// fold merges nothing.
func (o *Overlay) Init(db *pebble.DB, keep int, merge MergeFunc) {
	*o = Overlay{
		db: db, keep: keep, limit: min(keep, leastFresh), orders: map[[PrefixLen]byte]order{}, merges: merges{merge: merge},
	}
	if db != nil {
		o.batch = db.NewBatch()
	}
	o.Reset()
}

// Reset forgets all rows. No row may be dirty.
func (o *Overlay) Reset() {
	o.under.Close()
	o.merges.reset()
	o.data, o.rows = o.data[:0], o.rows[:0]
	if len(o.table) != 1<<10 {
		o.table = make([]entry, 1<<10)
	} else {
		clear(o.table)
	}
}

// Reuse forgets all rows, none of which may be dirty, and takes over the memory of an overlay that is no longer needed.
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

// find returns the index of the row of a key, or -1, and its slot in the table, or the free slot where it belongs.
func (o *Overlay) find(key []byte, hash uint64) (row, slot int) {
	mask := len(o.table) - 1
	for slot = int(hash) & mask; o.table[slot] != 0; slot = (slot + 1) & mask {
		e := o.table[slot]
		if uint64(e)>>32 != hash>>32 {
			continue
		}
		row = int(uint32(e)) - 1
		if bytes.Equal(o.keyOf(&o.rows[row]), key) {
			return row, slot
		}
	}
	return -1, slot
}

func (o *Overlay) keyOf(r *cell) []byte { return o.data[r.key : r.key+r.keyLen : r.key+r.keyLen] }

func (o *Overlay) valueOf(r *cell) []byte {
	return o.data[r.value : r.value+r.valLen : r.value+r.valLen]
}

// add adds a row for a key that has none, at the slot that find returned.
func (o *Overlay) add(key []byte, hash uint64, slot int) (row int) {
	if 4*(len(o.rows)+1) > 3*len(o.table) {
		o.grow()
		_, slot = o.find(key, hash)
	}
	o.rows = append(o.rows, cell{hash: hash, key: uint32(len(o.data)), keyLen: uint32(len(key))})
	o.data = append(o.data, key...)
	o.table[slot] = entryOf(len(o.rows)-1, hash)
	return len(o.rows) - 1
}

func (o *Overlay) grow() {
	o.table = make([]entry, 2*len(o.table))
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
		o.table[slot] = entryOf(i, o.rows[i].hash)
	}
}

// put copies a value into a row: into its room if it fits, else to the end of data.
func (o *Overlay) put(r *cell, value []byte) {
	if r.room < uint32(len(value)) {
		r.value, r.room = uint32(len(o.data)), uint32(len(value))
		o.data = append(o.data, value...)
	} else {
		copy(o.data[r.value:], value)
	}
	r.valLen = uint32(len(value))
}

// lookAhead brings the rows that follow rows[at] into the caches of the processor, once every few rows. Rows that are in the order of
// their keys lie anywhere in memory. Touched right after each other, the processor waits for many of them at a time.
func (o *Overlay) lookAhead(rows []dirtyRow, at int) {
	const few = 32
	if at%few != 0 {
		return
	}
	var keys [few]uint32
	next := rows[at:min(at+few, len(rows))]
	for i, d := range next {
		keys[i] = o.rows[d.row].key
	}
	for i := range next {
		o.touched += o.data[keys[i]]
	}
}

// Dirty reports whether a commit would write anything.
func (o *Overlay) Dirty() bool { return len(o.dirty) > 0 || len(o.deleted) > 0 }

// MaxBatch is the most bytes that may be written between two commits. With the rows that are kept it stays below the 4 GiB that the
// offsets of a row can reach.
const MaxBatch = 1 << 30

// Full reports whether more was written than allowed, so that the fold must fail.
func (o *Overlay) Full() bool { return len(o.data) > MaxBatch+o.keep }

// Iter returns an iterator over the keys k with lower <= k < upper, of scans that keep none. The caller must not write before it is
// closed.
func (o *Overlay) Iter(lower, upper []byte, scans *Scans) Iterator {
	var rows pebble.Reader // a nil *pebble.DB in it would not be nil
	if o.db != nil {
		rows = o.db
	}
	under := scans.Scan(rows, lower, upper)
	dirty, gone := o.within(lower, upper), o.deletedWithin(lower, upper)
	if len(dirty) == 0 && len(gone) == 0 {
		return under
	}
	return &merged{over: o, dirty: dirty, gone: gone, scan: under}
}

// Get returns the value of a key, valid until the next call. The result stays in memory for the next lookup, an absent row included.
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

// comesBack reports whether an absent row is worth keeping: whether lookups of its tag find more rows than they miss. Rows of counts are
// read again once they exist. Other rows are looked up once, to see whether they exist, and keeping them would push out useful ones.
func (o *Overlay) comesBack(key []byte) bool {
	n := &o.asked[key[2]]
	if n.absent++; n.absent+n.found > 1<<20 { // old lookups lose weight
		n.absent, n.found = n.absent/2, n.found/2
	}
	return n.found > n.absent
}

// base returns the row of a key in the database, unless a range that was deleted since the last commit has its key.
func (o *Overlay) base(key []byte, hash uint64) ([]byte, bool, error) {
	if o.db == nil || o.inDeleted(key) {
		return nil, false, nil
	}
	if o.unflushed.lacks(key, hash) {
		return o.unflushed.tables.find(o.db, key)
	}
	return o.under.Find(o.db, key)
}

// Set writes a row. Key and value are copied. Writing the value that the row has changes nothing.
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

// countedValue returns the bytes that the value of a dirty row adds to dirtyBytes.
func (r *cell) countedValue() int {
	if r.state&rowLives == 0 {
		return 0
	}
	return int(r.valLen)
}

// touch marks a row as dirty.
func (o *Overlay) touch(row int) {
	r := &o.rows[row]
	if r.state&rowDirty != 0 {
		return
	}
	r.state |= rowDirty
	o.dirty = append(o.dirty, uint32(row))
	o.dirtyBytes += nodeBytes + int(r.keyLen) + r.countedValue()
}

// Size returns about the number of bytes that a commit frees: what Pebble reckons for the rows that it writes, or the memory beyond the
// limit, if that is more.
func (o *Overlay) Size() int { return max(o.dirtyBytes, o.Memory()-o.limit) }

// Memory returns about the number of bytes that the rows take in memory.
func (o *Overlay) Memory() int { return len(o.data) + rowOverhead*len(o.rows) + o.merges.memory() }

// Commit writes the dirty rows in one batch, the deleted ranges first. Rows are in the order of their keys, which makes their insertion
// several times faster. The batch is not synced: the fold's position is a row of the same batch (I3), so after a crash it folds again
// whatever was lost.
func (o *Overlay) Commit() error {
	o.batch.Reset()
	for _, d := range o.deleted {
		_ = o.batch.DeleteRange(d.lower, d.upper, nil) // fails only on an indexed batch
		o.unflushed.wroteRange(d)
	}
	merged := false
	sorted := o.sorted(o.dirty)
	for i, d := range sorted {
		o.lookAhead(sorted, i)
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
		o.under.Close() // the database has values now that the overlay does not have
		o.merges.reset()
	}
	if len(o.deleted) > 0 {
		o.deleted = nil
		o.Reset() // clean rows may be in a deleted range
	}
	if o.Memory() > o.limit {
		o.forget()
		// forget copies all kept rows, so the more it has kept, the later the next one is due.
		o.limit = min(o.keep, o.Memory()+max(leastFresh, o.Memory()/2))
	}
	return nil
}

// forget drops rows. First go those that the fold has only written, which are most. If the others take more than three quarters of keep,
// the rows that were not read for the longest time go too. If even the rows that were read since the last time do not fit, all
// rows go. No row may be dirty.
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
	// Dropped rows must be found in the database as it is now.
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

// sizes returns the bytes of the rows by their age, if all rows that were not read become older by this much, and the sum for all ages
// above 0.
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

// age returns the age of a clean row: 1 if it was read since rows were last forgotten, and one more for every time since then that rows
// were forgotten for lack of space. A row that was not read becomes older by this much now. 0 means that the row is not worth keeping.
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

// FlushBegins must be called before the database begins a flush: the iterator in under would keep the memtables in memory.
func (o *Overlay) FlushBegins() { o.under.Close() }

// FlushBegun must be called once the database flushes everything that was committed, and FlushEnded once that flush has ended. Both
// are called by the fold's goroutine, before its next commit.
func (o *Overlay) FlushBegun() { o.unflushed.begun() }

// FlushEnded is described with [Overlay.FlushBegun].
func (o *Overlay) FlushEnded() { o.unflushed.ended() }

// WantsFlush reports whether a flush would make lookups faster.
func (o *Overlay) WantsFlush() bool { return o.unflushed.full() }

// Overwritten must be called after rows of the database were written by another way than Commit. No row may be dirty.
func (o *Overlay) Overwritten() {
	o.Reset()
	o.unflushed.wroteAll()
}

// Close releases all rows and the database's iterators. Rows that are dirty are lost.
func (o *Overlay) Close() {
	o.under.Close()
	o.unflushed.tables.Close()
	if o.batch != nil {
		_ = o.batch.Close()
	}
	*o = Overlay{}
}

// keyHead is the first 16 bytes of a key as two numbers. They order nearly all pairs of keys without a look at the keys themselves.
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

// dirtyRow is the index of a dirty row, with the head of its key for sorting.
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
