package overlay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// Overlay has the rows that a fold has written since its last commit, and rows that it has read or
// written not long before, above the rows of a Pebble database. A fold reads and writes through it.
// Only one goroutine may use it.
//
// Each row is in memory once, however often it is written. So a count that rises a thousand times
// in a batch is written to the database once, and a row that is created and deleted again is not
// written at all. Rows are found by the hash of their keys. They are sorted only when that is
// needed: all dirty rows by a commit, and those with the same shard and tag by an iterator.
type Overlay struct {
	// db is nil if there is no database below. Then Commit must not be called.
	db *pebble.DB
	// data has the keys and values of all rows.
	data []byte
	rows []record
	// spareData is the memory into which forgetRows and ForgetDeleted copy data. Then the two are
	// swapped, so that neither allocates memory each time.
	spareData []byte
	// slots is a hash table of rows, with open addressing. Its length is a power of two.
	slots []tableEntry
	// dirty has the indexes of the rows that the next commit writes, in the order of their first
	// write. dirtyBytes is the size that Pebble computes for them in a memtable.
	dirty      []uint32
	dirtyBytes int
	// orderByPrefix sorts the dirty rows of each shard and tag. It has only the first chainedCount
	// rows of dirty; an iterator adds the others.
	orderByPrefix map[[PrefixLen]byte]prefixOrder
	chainedCount  int
	// maxCleanBytes is the size of the clean rows that may stay in memory. A commit forgets rows
	// once all rows take more than forgetAbove, which is at most maxCleanBytes.
	maxCleanBytes, forgetAbove int
	// deleteCount is the number of rows that were deleted since ForgetDeleted has last dropped
	// rows.
	deleteCount int
	// sortScratch and sortedScratch are reused for sorting.
	sortScratch, sortedScratch []dirtyRow
	// prefetchSink has no meaning. prefetchKeys adds what it reads to it, so that the compiler does
	// not remove the reads.
	prefetchSink byte
	// batch is reused by every commit.
	batch *pebble.Batch
	// dbFinder finds rows in the database, as it was when dbFinder was last closed. That is
	// sufficient: the overlay has every row that was written since, and closes dbFinder before it
	// forgets one.
	dbFinder Finder
	// unflushed says which rows may be in memtables. Lookups of all others skip the memtables.
	unflushed unflushedKeys
	// lookupCounts counts, for each tag, lookups that found a row and lookups that did not.
	lookupCounts [256]struct{ found, absent uint32 }

	// merges has the operands that were not merged into their rows yet (merge.go).
	merges pendingMerges
	// deletedRanges has the ranges that the next commit deletes, before it writes rows.
	deletedRanges []keyRange
}

// tableEntry refers to a row: its lower half is 1 + the index of the row, its upper half is the
// upper half of the hash. 0 means free. A lookup skips rows whose half hash differs without reading
// them, because each read of a row waits for memory if there are many rows.
type tableEntry uint64

func newTableEntry(row int, hash uint64) tableEntry { return tableEntry(hash>>32<<32 | uint64(row+1)) }

// record describes a row. Its offsets have 32 bits, which keeps it small. MaxBatch bounds data, so
// that they suffice.
type record struct {
	hash                   uint64
	keyOffset, valueOffset uint32 // in data
	keyLen, valueLen       uint32
	valueCap               uint32 // bytes at valueOffset that the row may overwrite
	nextInChain            uint32 // 1 + the index of the row before it in the chain of its prefixOrder
	lastOperand            uint32 // 1 + the index of the newest operand that is to be merged into the row
	state                  rowState
}

// rowState is a set of bits.
type rowState uint8

const (
	// rowHasValue is set if the row has a value in memory. Otherwise it does not exist, or
	// rowBaseInDB is set.
	rowHasValue rowState = 1 << iota
	// rowDirty is set if the next commit writes the row.
	rowDirty
	// rowNotInDB is set if the database is known to have no such row. If the row is created and
	// deleted again, the commit then writes nothing.
	rowNotInDB
	// rowRecentlyRead is set if the fold has read the row since forgetRows last ran.
	rowRecentlyRead
	// rowBaseInDB is set if the value into which the operands are to be merged is only in the
	// database.
	rowBaseInDB
	// rowAge is a number of three bits, of which rowAge1 is the lowest (see age).
	rowAge1
	rowAge = 7 * rowAge1
	maxAge = 7
	// rowUseBits are the bits that say how recently the row was read. A commit keeps them.
	rowUseBits = rowRecentlyRead | rowAge
)

const (
	// nodeBytes is what Pebble adds to the size of key and value of each row of a batch, in bytes:
	// the size of the largest node of its skip list. Pebble flushes a batch whose computed size is
	// half a memtable by itself, and before it the current memtable, even if that is nearly empty.
	nodeBytes = 200
	// maxCachedValue is the size of the largest value that stays in memory if the fold has only
	// read it, in bytes.
	maxCachedValue = 1 << 10
	// rowOverhead is about the size of a row in memory without its key and value, in bytes.
	rowOverhead = 64
	// minForgetBytes is the size of rows from which some are forgotten, unless maxCleanBytes is
	// smaller. To wait for maxCleanBytes would be slower: most rows were only written, and would
	// share the caches of the processor with the rows that are read.
	minForgetBytes = 128 << 20
)

// Init begins an overlay without rows above a database, or above nothing if db is nil. It keeps
// clean rows of about keep bytes in memory. merge may be nil if the fold merges nothing.
func (o *Overlay) Init(db *pebble.DB, keep int, merge MergeFunc) {
	*o = Overlay{
		db:            db,
		maxCleanBytes: keep,
		forgetAbove:   min(keep, minForgetBytes),
		orderByPrefix: map[[PrefixLen]byte]prefixOrder{},
		merges:        pendingMerges{merge: merge},
	}
	if db != nil {
		o.batch = db.NewBatch()
	}
	o.Reset()
}

// Reset forgets all rows. No row may be dirty.
func (o *Overlay) Reset() {
	o.dbFinder.Close()
	o.merges.reset()
	o.data = o.data[:0]
	o.rows = o.rows[:0]

	// A table that has grown is released.
	if len(o.slots) != 1<<10 {
		o.slots = make([]tableEntry, 1<<10)
	} else {
		clear(o.slots)
	}
}

// Reuse forgets all rows, none of which may be dirty, and takes over the memory of another overlay,
// which must not be used any more.
func (o *Overlay) Reuse(used *Overlay) {
	o.data = used.data[:0]
	o.spareData = used.spareData[:0]
	o.rows = used.rows[:0]
	o.dirty = used.dirty[:0]
	o.sortScratch = used.sortScratch[:0]
	o.sortedScratch = used.sortedScratch[:0]
	o.merges.operands = used.merges.operands[:0]
	o.merges.data = used.merges.data[:0]

	clear(used.orderByPrefix)
	if len(used.slots) > len(o.slots) {
		o.slots = used.slots
	}
	clear(o.slots)
	if used.orderByPrefix != nil {
		o.orderByPrefix = used.orderByPrefix
	}
}

// findRow returns the index and the slot of the row of a key. If there is no such row, it returns
// -1 and the slot for a new row.
func (o *Overlay) findRow(key []byte, hash uint64) (row, slot int) {
	mask := len(o.slots) - 1
	for slot = int(hash) & mask; o.slots[slot] != 0; slot = (slot + 1) & mask {
		entry := o.slots[slot]
		if uint64(entry)>>32 != hash>>32 {
			continue
		}
		row = int(uint32(entry)) - 1
		if bytes.Equal(o.keyOf(&o.rows[row]), key) {
			return row, slot
		}
	}
	return -1, slot
}

// keyOf returns the key of a row, which is a part of data.
func (o *Overlay) keyOf(r *record) []byte {
	return o.data[r.keyOffset : r.keyOffset+r.keyLen : r.keyOffset+r.keyLen]
}

// valueOf returns the value of a row, which is a part of data.
func (o *Overlay) valueOf(r *record) []byte {
	return o.data[r.valueOffset : r.valueOffset+r.valueLen : r.valueOffset+r.valueLen]
}

// addRow adds a row for a key that has none, at the slot that findRow returned.
func (o *Overlay) addRow(key []byte, hash uint64, slot int) (row int) {
	// Keep a quarter of the slots free. With fewer, lookups would pass over long runs of entries.
	if 4*(len(o.rows)+1) > 3*len(o.slots) {
		o.growTable()
		_, slot = o.findRow(key, hash)
	}

	row = len(o.rows)
	o.rows = append(o.rows, record{hash: hash, keyOffset: uint32(len(o.data)), keyLen: uint32(len(key))})
	o.data = append(o.data, key...)
	o.slots[slot] = newTableEntry(row, hash)
	return row
}

func (o *Overlay) growTable() {
	o.slots = make([]tableEntry, 2*len(o.slots))
	o.fillTable()
}

// fillTable adds all rows to an empty hash table.
func (o *Overlay) fillTable() {
	mask := len(o.slots) - 1
	for i := range o.rows {
		slot := int(o.rows[i].hash) & mask
		for o.slots[slot] != 0 {
			slot = (slot + 1) & mask
		}
		o.slots[slot] = newTableEntry(i, o.rows[i].hash)
	}
}

// storeValue copies a value into the memory of a row, or if that is too small, to the end of data.
func (o *Overlay) storeValue(r *record, value []byte) {
	if r.valueCap < uint32(len(value)) {
		r.valueOffset = uint32(len(o.data))
		r.valueCap = uint32(len(value))
		o.data = append(o.data, value...)
	} else {
		copy(o.data[r.valueOffset:], value)
	}
	r.valueLen = uint32(len(value))
}

// prefetchKeys is called for each row of a sorted list. Once every 32 rows, it reads the first byte
// of the keys of the next 32 rows. Sorted rows are scattered over the memory. If their keys are
// read right after each other, the processor waits for many of them at the same time.
func (o *Overlay) prefetchKeys(rows []dirtyRow, at int) {
	const group = 32
	if at%group != 0 {
		return
	}

	// Two loops, so that the reads of one do not depend on each other.
	var offsets [group]uint32
	next := rows[at:min(at+group, len(rows))]
	for i, d := range next {
		offsets[i] = o.rows[d.row].keyOffset
	}
	for i := range next {
		o.prefetchSink += o.data[offsets[i]]
	}
}

// IsDirty reports whether a commit would write anything.
func (o *Overlay) IsDirty() bool { return len(o.dirty) > 0 || len(o.deletedRanges) > 0 }

// MaxBatch is how many bytes may be written between two commits. Together with the clean rows, data
// then stays below the 4 GiB that the offsets of a record can reach.
const MaxBatch = 1 << 30

// IsFull reports whether more was written since the last commit than MaxBatch allows. The fold must
// fail then.
func (o *Overlay) IsFull() bool { return len(o.data) > MaxBatch+o.maxCleanBytes }

// Iter returns an iterator over the rows with lower <= key < upper. scans must keep no idle
// iterators, because these would not see later commits. The caller must not write before it closes
// the iterator.
func (o *Overlay) Iter(lower, upper []byte, scans *Scans) Iterator {
	var rows pebble.Reader // stays nil without a database: a nil *pebble.DB in an interface would not be nil
	if o.db != nil {
		rows = o.db
	}
	scan := scans.Scan(rows, lower, upper)

	dirty := o.dirtyRowsWithin(lower, upper)
	deleted := o.deletedRangesWithin(lower, upper)
	if len(dirty) == 0 && len(deleted) == 0 {
		return scan
	}
	return &mergedIterator{overlay: o, dirty: dirty, deletedRanges: deleted, scan: scan}
}

// Get returns the value of a key, which is valid until the next call. Small rows stay in memory for
// the next lookup, and so does the fact that there is no row.
func (o *Overlay) Get(key []byte) ([]byte, bool, error) {
	hash := xxh3.Hash(key)
	row, slot := o.findRow(key, hash)
	o.applyRangeDeletes(row)
	if row >= 0 {
		r := &o.rows[row]
		r.state |= rowRecentlyRead
		switch {
		case r.lastOperand != 0:
			return o.getMerged(r)
		case r.state&rowHasValue != 0:
			o.lookupCounts[key[2]].found++
			return o.valueOf(r), true, nil
		case r.state&rowBaseInDB == 0:
			return nil, false, nil
		}
	}

	value, ok, err := o.findInDatabase(key, hash)
	if err != nil {
		return nil, false, err
	}
	if ok && len(value) > maxCachedValue {
		return value, true, nil // a large value would displace many small ones
	}

	// Keep the result in memory, also if there is no row.
	if row < 0 {
		row = o.addRow(key, hash, slot)
	}
	r := &o.rows[row]
	if !ok {
		r.state = rowNotInDB
		if o.isAbsentWorthKeeping(key) {
			r.state |= rowRecentlyRead
		}
		return nil, false, nil
	}
	o.lookupCounts[key[2]].found++
	o.storeValue(r, value)
	r.state = rowHasValue | rowRecentlyRead
	return o.valueOf(r), true, nil
}

// isAbsentWorthKeeping counts a lookup that found no row, and reports whether it is worth
// remembering that there is no row. It is if lookups of the tag find rows more often than not. Such
// rows, for example counts, are read again once they exist. Rows of other tags are looked up once,
// to see whether they exist, and would displace useful ones.
func (o *Overlay) isAbsentWorthKeeping(key []byte) bool {
	n := &o.lookupCounts[key[2]]
	n.absent++
	if n.absent+n.found > 1<<20 {
		// Halve the counts, so that recent lookups count more.
		n.absent /= 2
		n.found /= 2
	}
	return n.found > n.absent
}

// findInDatabase returns the value of a key in the database. It finds no row that was deleted by a
// range since the last commit.
func (o *Overlay) findInDatabase(key []byte, hash uint64) ([]byte, bool, error) {
	if o.db == nil || o.isInDeletedRange(key) {
		return nil, false, nil
	}
	if o.unflushed.excludes(key, hash) {
		return o.unflushed.tables.find(o.db, key)
	}
	return o.dbFinder.Find(o.db, key)
}

// Set writes a row. It copies key and value. It does nothing if the row has this value already.
func (o *Overlay) Set(key, value []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.findRow(key, hash)
	o.applyRangeDeletes(row)
	if row < 0 {
		row = o.addRow(key, hash, slot)
	}
	r := &o.rows[row]
	if r.lastOperand == 0 && r.state&rowHasValue != 0 && bytes.Equal(o.valueOf(r), value) {
		return
	}

	// markDirty adds the size of the old value to dirtyBytes if the row was clean. So afterwards the
	// difference to the new value is added in both cases.
	o.markDirty(row)
	o.dirtyBytes += len(value) - r.countedValueBytes()
	o.storeValue(r, value)
	r.lastOperand = 0
	r.state = r.state&^rowBaseInDB | rowHasValue
}

// Delete removes a row if there is one.
func (o *Overlay) Delete(key []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.findRow(key, hash)
	o.applyRangeDeletes(row)
	if row < 0 {
		// The database may have the row, so the commit must delete it.
		row = o.addRow(key, hash, slot)
	} else if r := &o.rows[row]; r.lastOperand == 0 && r.state&(rowHasValue|rowBaseInDB) == 0 {
		return // the row is known not to exist
	}

	r := &o.rows[row]
	o.markDirty(row)
	o.dirtyBytes -= r.countedValueBytes()
	o.deleteCount++
	r.lastOperand = 0
	r.state &^= rowHasValue | rowBaseInDB
}

// exists reports whether a row exists that no database has.
func (r *record) exists() bool { return r.state&rowHasValue != 0 || r.lastOperand != 0 }

// countedValueBytes returns the part of dirtyBytes that the value of a dirty row accounts for.
func (r *record) countedValueBytes() int {
	if r.state&rowHasValue == 0 {
		return 0
	}
	return int(r.valueLen)
}

// markDirty marks a row as dirty.
func (o *Overlay) markDirty(row int) {
	r := &o.rows[row]
	if r.state&rowDirty != 0 {
		return
	}
	r.state |= rowDirty
	o.dirty = append(o.dirty, uint32(row))
	o.dirtyBytes += nodeBytes + int(r.keyLen) + r.countedValueBytes()
}

// Size returns about how many bytes a commit would free: the size of the dirty rows in a memtable,
// or the size of all rows in memory beyond forgetAbove, whichever is more.
func (o *Overlay) Size() int { return max(o.dirtyBytes, o.Memory()-o.forgetAbove) }

// Memory returns about the number of bytes that the rows take in memory. Without a database it also
// counts the data that the last ForgetDeleted has left in spareData, because a build limits its
// memory by Memory. Above a database it leaves out spareData: Size compares Memory with the limit at
// which rows are forgotten, and forgetting rows does not shrink spareData.
func (o *Overlay) Memory() int {
	n := len(o.data) + rowOverhead*len(o.rows) + o.merges.memoryBytes()
	if o.db == nil {
		n += len(o.spareData)
	}
	return n
}

// Commit writes the deleted ranges and the dirty rows in one batch. The rows are in the order of
// their keys, which makes inserting them into the memtable several times faster. The batch is not
// synced. After a crash, the fold repeats what was lost, because its position is a row of the same
// batch (I3).
func (o *Overlay) Commit() error {
	o.batch.Reset()

	// The ranges come first, because the rows of the same batch were written after they were
	// deleted.
	for _, d := range o.deletedRanges {
		_ = o.batch.DeleteRange(d.lower, d.upper, nil) // fails only on an indexed batch
		o.unflushed.recordRangeDelete(d)
	}

	hasMerged := false
	sorted := o.sortedRows(o.dirty)
	for i, d := range sorted {
		o.prefetchKeys(sorted, i)
		r := &o.rows[d.row]

		// Lookups after the commit must search the memtables for this key.
		o.unflushed.recordWrite(o.keyOf(r), r.hash)

		switch {
		case r.lastOperand != 0:
			if err := o.commitOperands(r); err != nil {
				return err
			}
			hasMerged = true
		case r.state&rowHasValue != 0:
			op := o.batch.SetDeferred(int(r.keyLen), int(r.valueLen))
			copy(op.Key, o.keyOf(r))
			copy(op.Value, o.valueOf(r))
			_ = op.Finish() // fails only on an indexed batch
			r.state = rowHasValue | r.state&rowUseBits
		case r.state&rowNotInDB != 0: // created and deleted since the last commit
			r.state = rowNotInDB | r.state&rowUseBits
		default:
			op := o.batch.DeleteDeferred(int(r.keyLen))
			copy(op.Key, o.keyOf(r))
			_ = op.Finish()
			r.state = rowNotInDB | r.state&rowUseBits
		}
		r.nextInChain = 0
	}

	if err := o.db.Apply(o.batch, pebble.NoSync); err != nil {
		return err
	}

	// All rows are clean now.
	o.dirty = o.dirty[:0]
	o.dirtyBytes = 0
	o.chainedCount = 0
	clear(o.orderByPrefix)
	if hasMerged || len(o.deletedRanges) > 0 {
		// The overlay does not have these new values, so dbFinder must find them.
		o.dbFinder.Close()
		o.merges.reset()
	}
	if len(o.deletedRanges) > 0 {
		o.deletedRanges = nil
		o.Reset() // clean rows may be in a deleted range
	}
	if o.Memory() > o.forgetAbove {
		o.forgetRows()
		// Forgetting copies all rows that stay, so the more rows stay, the more must be added
		// before the next time.
		o.forgetAbove = min(o.maxCleanBytes, o.Memory()+max(minForgetBytes, o.Memory()/2))
	}
	return nil
}

// ForgetDeleted drops rows that were deleted, if they may be most of all rows. It does nothing
// above a database, whose rows they hide. It must not be called while an iterator is open.
func (o *Overlay) ForgetDeleted() {
	// The table of rows has one and a third to three times as many slots as there are rows. To
	// clear and fill it again must cost little per delete.
	if o.db != nil || 4*o.deleteCount < len(o.slots) {
		return
	}
	o.deleteCount = 0

	// Copy the other rows, all of which are dirty. Records stay in their slice, because a record is
	// read before the place is written to which it moves.
	data := o.spareData[:0]
	rows := o.rows[:0]
	o.dirty = o.dirty[:0]
	o.dirtyBytes = 0
	for i := range o.rows {
		r := o.rows[i]
		if !r.exists() {
			continue
		}
		key := o.keyOf(&r)
		value := o.valueOf(&r)
		r.keyOffset = uint32(len(data))
		data = append(data, key...)
		r.valueOffset = uint32(len(data))
		r.valueCap = r.valueLen
		data = append(data, value...)
		r.nextInChain = 0
		r.state &^= rowDirty
		rows = append(rows, r)
	}
	o.replaceRows(data, rows)

	// The indexes of the rows have changed, so everything that has indexes is made anew.
	o.chainedCount = 0
	clear(o.orderByPrefix)
	for i := range o.rows {
		o.markDirty(i)
	}
}

// forgetRows drops clean rows. It first drops all rows that the fold has only written, which are
// most. If the others take more than three quarters of maxCleanBytes, it also drops the rows whose
// last read is the longest ago. If even the rows that were read since the last time take more than
// that, it drops all rows. No row may be dirty.
func (o *Overlay) forgetRows() {
	// Let rows grow older only if there is too little memory.
	maxBytes := o.maxCleanBytes / 4 * 3
	aging := 0
	sizes, useful := o.sizesByAge(aging)
	if useful > maxBytes {
		aging = 1
		sizes, _ = o.sizesByAge(aging)
	}

	// Find the oldest age that stays.
	oldest := 0
	keptBytes := 0
	for oldest < maxAge && keptBytes+sizes[oldest+1] <= maxBytes {
		oldest++
		keptBytes += sizes[oldest]
	}
	if keptBytes == 0 {
		o.Reset()
		return
	}

	// Rows that are dropped must be found in the database as it is now.
	o.dbFinder.Close()

	// Copy the rows that stay, as in ForgetDeleted.
	data := o.spareData[:0]
	rows := o.rows[:0]
	for i := range o.rows {
		r := o.rows[i]
		age := r.age(aging)
		if age == 0 || age > oldest {
			continue
		}
		key := o.keyOf(&r)
		value := o.valueOf(&r)
		r.keyOffset = uint32(len(data))
		data = append(data, key...)
		r.valueOffset = uint32(len(data))
		r.valueCap = r.valueLen
		data = append(data, value...)
		r.state = r.state&^rowUseBits | rowAge1*rowState(age)
		rows = append(rows, r)
	}
	o.replaceRows(data, rows)
}

// replaceRows replaces all rows by some of them, which were copied into data. The memory of the old
// data is the spare of the next time, so that nothing is allocated anew.
func (o *Overlay) replaceRows(data []byte, rows []record) {
	o.spareData = o.data
	o.data = data
	o.rows = rows
	clear(o.slots)
	o.fillTable()
}

// sizesByAge returns the size of the rows of each age, and the sum for all ages above 0, in bytes.
// Rows that were not read recently count as older by aging.
func (o *Overlay) sizesByAge(aging int) (sizes [maxAge + 1]int, useful int) {
	for i := range o.rows {
		r := &o.rows[i]
		age := r.age(aging)
		size := int(r.keyLen+r.valueLen) + rowOverhead
		sizes[age] += size
		if age > 0 {
			useful += size
		}
	}
	return sizes, useful
}

// age returns the age of a clean row. The age is 1 if the row was read since forgetRows last ran.
// Otherwise it is the age that forgetRows stored, plus aging. An age of 0 means that the row is not
// worth keeping: it was never read, it is too old, or its value is only in the database.
func (r *record) age(aging int) int {
	age := int(r.state&rowAge/rowAge1) + aging
	switch {
	case r.state&rowBaseInDB != 0, r.state&rowUseBits == 0:
		return 0
	case r.state&rowRecentlyRead != 0:
		return 1
	case age > maxAge:
		return 0
	}
	return age
}

// BeforeFlush must be called before the database begins a flush. It closes an idle iterator, which
// would keep the memtables in memory.
func (o *Overlay) BeforeFlush() { o.dbFinder.Close() }

// FlushStarted must be called after the database has begun to flush everything that is committed.
// The goroutine of the fold must call it before its next commit.
func (o *Overlay) FlushStarted() { o.unflushed.flushStarted() }

// FlushEnded must be called after the last flush that was started has ended. The goroutine of the
// fold must call it.
func (o *Overlay) FlushEnded() { o.unflushed.flushEnded() }

// IsFlushUseful reports whether a flush would make lookups faster.
func (o *Overlay) IsFlushUseful() bool { return o.unflushed.isFull() }

// DatabaseChanged must be called after something else than Commit has written rows of the database.
// No row may be dirty.
func (o *Overlay) DatabaseChanged() {
	o.Reset()
	o.unflushed.recordUnknownWrites()
}

// Close releases all rows and the iterators of the database. It drops dirty rows.
func (o *Overlay) Close() {
	o.dbFinder.Close()
	o.unflushed.tables.Close()
	if o.batch != nil {
		_ = o.batch.Close()
	}
	*o = Overlay{}
}

// keyHead is the first 16 bytes of a key as two numbers. Comparing these is faster than comparing
// keys, and nearly always sufficient.
type keyHead struct{ first, second uint64 }

func newKeyHead(key []byte) keyHead {
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

// dirtyRow is the index of a dirty row, and the head of its key for sorting.
type dirtyRow struct {
	keyHead
	row uint32
}

// sortedRows returns the rows in the order of their keys. The result is valid until the next call.
func (o *Overlay) sortedRows(rows []uint32) []dirtyRow {
	o.sortScratch = o.sortScratch[:0]
	for _, row := range rows {
		o.sortScratch = append(o.sortScratch, o.newDirtyRow(row))
	}
	sorted := o.sortByShard(o.sortedScratch, o.sortScratch)
	if len(sorted) > 0 && &sorted[0] != &o.sortScratch[0] {
		o.sortedScratch = sorted // it may have grown
	}
	return sorted
}

func (o *Overlay) newDirtyRow(row uint32) dirtyRow {
	return dirtyRow{newKeyHead(o.keyOf(&o.rows[row])), row}
}

func (o *Overlay) sortRows(rows []dirtyRow) {
	slices.SortFunc(rows, func(a, b dirtyRow) int {
		if c := a.compare(b.keyHead); c != 0 {
			return c
		}
		return bytes.Compare(o.keyOf(&o.rows[a.row]), o.keyOf(&o.rows[b.row]))
	})
}
