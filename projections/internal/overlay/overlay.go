package overlay

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/zeebo/xxh3"
)

// Overlay holds rows in memory, above the rows of a Pebble database. A fold reads and writes all
// rows through its overlay. The rows in memory are of two kinds. Dirty rows are those that the fold
// has written or deleted since the last commit; the next commit writes them to the database. Clean
// rows are those that the fold has read, or had written before the last commit; the overlay keeps
// some of them, so that the fold does not read them from the database again. Only one goroutine may
// use an Overlay.
//
// Each row is in memory once, however often the fold writes it. So a commit writes a count that the
// fold has increased a thousand times only once. If the fold creates a row and deletes it again,
// the commit writes nothing, provided that the overlay knew that the database has no such row.
//
// The overlay finds rows by the hash of their keys. It sorts rows only when the order is needed: a
// commit or an iterator over several tags sorts all dirty rows, and an iterator within one shard
// and tag sorts the dirty rows of this shard and tag.
type Overlay struct {
	// db is nil if there is no database below the overlay. Then Commit must not be called.
	db *pebble.DB
	// data has the keys and values of all rows. It also has old values that no row refers to any
	// more, until forgetRows or ForgetDeleted copies the rest.
	data []byte
	// rows describes all rows, including those of which the overlay only knows that they do not
	// exist, in the order in which they were added.
	rows []record
	// spareData is the memory into which forgetRows and ForgetDeleted copy the keys and values of
	// the rows that stay. They then swap data and spareData, so that they need not allocate memory
	// each time.
	spareData []byte
	// slots is a hash table of rows, with open addressing. Its length is a power of two.
	slots []tableEntry
	// dirty has the indexes of the rows that were written or deleted since the last commit, in the
	// order of their first write. dirtyBytes is about the size that Pebble computes for these rows
	// and for deletedRanges in a memtable. Values and operands that a later write or DeleteRange
	// replaced may still be counted.
	dirty      []uint32
	dirtyBytes int
	// orderByPrefix sorts the dirty rows of each shard and tag. It has only the first chainedCount
	// rows of dirty; chainNewRows adds the others when the order is next needed.
	orderByPrefix map[[PrefixLen]byte]prefixOrder
	chainedCount  int
	// maxCleanBytes is about how many bytes of clean rows may stay in memory after a commit. A
	// commit calls forgetRows if all rows together take more than forgetAbove bytes. forgetAbove is
	// at most maxCleanBytes.
	maxCleanBytes, forgetAbove int
	// deleteCount counts the deletions of rows since ForgetDeleted last dropped rows. If a row is
	// deleted twice, both deletions count. Above a database nothing reads deleteCount.
	deleteCount int
	// sortScratch and sortedScratch are memory that sortedRows reuses.
	sortScratch, sortedScratch []dirtyRow
	// prefetchSink receives the sum of the bytes that prefetchKeys reads. Nobody reads the sum. It
	// keeps the compiler from removing the reads.
	prefetchSink byte
	// batch is reused by every commit. It is nil if there is no database.
	batch *pebble.Batch
	// dbFinder finds rows in the database. Its iterator is created by the first lookup after
	// dbFinder was closed, and does not see what is written to the database later. This is
	// sufficient: the overlay itself has the current value of every row that it has written since
	// then, and closes dbFinder when it drops such a value.
	dbFinder Finder
	// unflushed says which rows may be in memtables. Lookups of all others skip the memtables.
	unflushed unflushedKeys
	// lookupCounts counts, for each tag, lookups by Get: in found, those that found a value in
	// memory or copied one there, and in absent, those that searched the database and found no row.
	// Get counts no lookups of rows with operands, of values larger than maxCachedValue, or of rows
	// of which the overlay already knew that they do not exist.
	lookupCounts [256]struct{ found, absent uint32 }

	// merges has the operands that were not merged into their rows yet (merge.go).
	merges pendingMerges
	// deletedRanges has the ranges that DeleteRange has deleted since the last commit. The next
	// commit deletes them in the database before it writes rows. It is empty without a database.
	deletedRanges []keyRange
}

// tableEntry is one slot of the hash table. 0 means that the slot is free. Otherwise the slot
// refers to a row: the lower 32 bits are 1 + the index of the row, and the upper 32 bits are those
// of the hash of its key. A lookup compares these upper bits first, and reads the row only if they
// are equal. This matters if there are many rows: few of them are then in the caches of the
// processor, so each read of a row waits for memory.
type tableEntry uint64

func newTableEntry(row int, hash uint64) tableEntry { return tableEntry(hash>>32<<32 | uint64(row+1)) }

// record describes a row. Its offsets have only 32 bits, which keeps it small. They suffice because
// IsFull bounds the length of data.
type record struct {
	hash                   uint64
	keyOffset, valueOffset uint32 // in data
	keyLen, valueLen       uint32
	// valueCap is the number of bytes at valueOffset that a new value of the row may overwrite.
	valueCap uint32
	// nextInChain is 1 + the index of the row that was added to the same chain (prefixOrder) just
	// before this one, or 0 if there is none.
	nextInChain uint32
	// lastOperand is 1 + the index of the newest operand that is to be merged into the row, or 0 if
	// there is none.
	lastOperand uint32
	state       rowState
}

// rowState is what the overlay knows about a row, as a set of bits. A row that has neither
// rowHasValue nor rowBaseInDB nor operands does not exist.
type rowState uint8

const (
	// rowHasValue is set if the row has a value in memory. The row may have operands in addition,
	// which are not merged into this value yet.
	rowHasValue rowState = 1 << iota
	// rowDirty is set if the index of the row is in dirty.
	rowDirty
	// rowNotInDB is set if the overlay knows that the database has no such row, or that the next
	// commit deletes the row there with one of deletedRanges. If the fold then creates the row and
	// deletes it again, the commit need not write a deletion.
	rowNotInDB
	// rowRecentlyRead is set if the fold has read the row since forgetRows last ran, so that
	// forgetRows keeps the row. Get does not set it when it learns that a row does not exist and
	// isAbsentWorthKeeping returns false.
	rowRecentlyRead
	// rowBaseInDB is set if the value of the row, without its operands, is not in memory and has to
	// be read from the database. The database may turn out to have no such row.
	rowBaseInDB
	// rowAge is a number of three bits, of which rowAge1 is the lowest. It is the age that
	// forgetRows stored when it kept the row, or 0 if the row has no such age (see age).
	rowAge1
	rowAge = 7 * rowAge1
	// maxAge is the largest age that fits into the three bits.
	maxAge = 7
	// rowUseBits are the bits that say how recently the fold has read the row. A commit keeps them,
	// except those of a row with operands (commitOperands).
	rowUseBits = rowRecentlyRead | rowAge
)

const (
	// nodeBytes is about how many bytes Pebble adds to the size of key and value when it computes
	// the size of a row in a memtable. Pebble adds the size of the largest node of its skip list,
	// 195 bytes in Pebble v2.1, even though most nodes are smaller. dirtyBytes must count the same,
	// because Pebble puts a batch whose computed size reaches half a memtable into a memtable of
	// its own, and first ends the current memtable, even if the current memtable is nearly empty. A
	// caller avoids this if it calls Commit before Size reaches half a memtable.
	nodeBytes = 200
	// maxCachedValue is the size in bytes of the largest value that Get copies from the database
	// into memory.
	maxCachedValue = 1 << 10
	// rowOverhead is about how many bytes of memory a row takes in addition to its key and value:
	// its record, its slots in the hash table, and its index in dirty.
	rowOverhead = 64
	// minForgetBytes is the first value of forgetAbove, in bytes, unless maxCleanBytes is smaller.
	// A larger first value, such as maxCleanBytes, would make the fold slower: the fold never reads
	// most of the rows that it has written, but as long as they stay, they lie between the rows
	// that it does read, so the caches of the processor hold fewer of the rows that it reads. Each
	// later value of forgetAbove allows at least minForgetBytes more than what has just stayed, up
	// to maxCleanBytes.
	minForgetBytes = 128 << 20
)

// Init makes o an overlay without rows above a database, or without a database if db is nil. keep
// is about how many bytes of clean rows may stay in memory after a commit. merge may be nil if the
// fold never calls Merge.
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

// Reset forgets all rows. No row may be dirty, because its write would be lost. Reset keeps the
// memory of the rows for later rows.
func (o *Overlay) Reset() {
	o.dbFinder.Close()
	o.merges.reset()
	o.data = o.data[:0]
	o.rows = o.rows[:0]

	// If the hash table has grown, replace it by one of the initial size, so that its memory is
	// freed. Init has no table yet, and gets its first one here.
	if len(o.slots) != 1<<10 {
		o.slots = make([]tableEntry, 1<<10)
	} else {
		clear(o.slots)
	}
}

// Reuse forgets all rows of o, none of which may be dirty, and takes over the memory of another
// overlay, whose rows are dropped. The other overlay must not be used any more. It may be a zero
// Overlay, which has no memory to take over.
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

// findRow looks for the row of a key in memory, but not in the database. It returns the index of
// the row in rows, and its slot. If the row is not in memory, findRow returns -1 and the free slot
// at which addRow must add the row. hash is the hash of the key.
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

// keyOf returns the key of a row. The key is a part of data and not a copy. Its capacity ends with
// it, so an append to the key does not overwrite what follows in data.
func (o *Overlay) keyOf(r *record) []byte {
	return o.data[r.keyOffset : r.keyOffset+r.keyLen : r.keyOffset+r.keyLen]
}

// valueOf returns the value of a row, as a part of data like the key in keyOf. If the row does not
// have rowHasValue, this is an old value, or empty.
func (o *Overlay) valueOf(r *record) []byte {
	return o.data[r.valueOffset : r.valueOffset+r.valueLen : r.valueOffset+r.valueLen]
}

// addRow adds a row for a key that has none, at the slot that findRow returned, and returns its
// index. The new row is clean and its state is 0, so the caller must set the state.
func (o *Overlay) addRow(key []byte, hash uint64, slot int) (row int) {
	// Keep a quarter of the slots free. With fewer, lookups would pass over many entries of other
	// rows.
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

// growTable doubles the number of slots.
func (o *Overlay) growTable() {
	o.slots = make([]tableEntry, 2*len(o.slots))
	o.fillTable()
}

// fillTable adds all rows to the hash table, which must be empty.
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

// storeValue sets the value of a row to a copy of value. It copies it over the old value if there
// is enough space, and otherwise to the end of data. The caller must set rowHasValue.
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

// prefetchKeys makes it faster to go through a sorted list of rows. The caller calls it for each
// row before it reads the row; at is the index of the row in the list. If at is a multiple of 32,
// prefetchKeys reads the first byte of the keys of 32 rows, from this row on. Otherwise it does
// nothing. Rows that follow each other in the list are mostly far apart in memory, so each first
// read of a key waits for memory. Here the reads come right after each other, so the processor
// waits for many of them at the same time, and later finds the keys in its caches.
func (o *Overlay) prefetchKeys(rows []dirtyRow, at int) {
	const group = 32
	if at%group != 0 {
		return
	}

	// The position of a key is known only after its record was read. With two loops, no read waits
	// for another one of the same loop.
	var offsets [group]uint32
	next := rows[at:min(at+group, len(rows))]
	for i, d := range next {
		offsets[i] = o.rows[d.row].keyOffset
	}
	for i := range next {
		o.prefetchSink += o.data[offsets[i]]
	}
}

// IsDirty reports whether rows or ranges were written or deleted since the last commit. A commit
// may still have nothing to write, if all these rows were created and deleted again.
func (o *Overlay) IsDirty() bool { return len(o.dirty) > 0 || len(o.deletedRanges) > 0 }

// MaxBatch is how many bytes data may have in addition to the clean rows that Init allowed, before
// IsFull returns true. The limit exists because the offsets of a record reach only 4 GiB. The store
// allows at most 2 GiB of clean rows, so at least 1 GiB remains for the rows that are added after
// the last call of IsFull that returned false.
const MaxBatch = 1 << 30

// IsFull reports whether data has so many bytes that its end may come near the 4 GiB that the
// offsets of a record can reach. The fold must then write nothing more, and fail. Rows that were
// only read count, too, because they are in data like those that were written. The operands of
// Merge do not count.
func (o *Overlay) IsFull() bool { return len(o.data) > MaxBatch+o.maxCleanBytes }

// Iter returns an iterator over the rows with lower <= key < upper, dirty ones and those of the
// database together. A nil upper means no bound. MaxIdle of scans must be 0, because an idle
// iterator would not see later commits. The caller must not write to the overlay before it closes
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

// Get returns the value of a key, and whether there is such a row. The value is valid until the
// next call of a method of the overlay. Get keeps what it has read from the database in memory for
// the next lookup: a value of at most maxCachedValue bytes, or the fact that there is no row.
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
		return value, true, nil // to keep it would leave no space for many small values
	}

	// Keep the result in memory, even if it is that there is no row.
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

// isAbsentWorthKeeping adds a lookup that found no row to lookupCounts, and reports whether
// forgetRows should treat the fact that there is no row like a row that was read, and keep it. This
// is so if lookups of the tag of key find a row more often than none. Rows of such a tag, for
// example counts, are read again after they are created. Keys of other tags are mostly looked up
// once, to see whether there is a row. To keep them would leave less space for rows that are read
// again.
func (o *Overlay) isAbsentWorthKeeping(key []byte) bool {
	n := &o.lookupCounts[key[2]]
	n.absent++
	if n.absent+n.found > 1<<20 {
		// Halve both counts from time to time, so that recent lookups count more than older ones.
		n.absent /= 2
		n.found /= 2
	}
	return n.found > n.absent
}

// findInDatabase returns the value of a key in the database, and whether there is such a row. The
// value is valid until the next lookup in the database. findInDatabase finds no row in a range that
// was deleted since the last commit, although the database still has such a row. Without a database
// it finds nothing.
func (o *Overlay) findInDatabase(key []byte, hash uint64) ([]byte, bool, error) {
	if o.db == nil || o.isInDeletedRange(key) {
		return nil, false, nil
	}
	if o.unflushed.excludes(key, hash) {
		return o.unflushed.tables.find(o.db, key)
	}
	return o.dbFinder.Find(o.db, key)
}

// Set writes a row. It copies key and value. If the overlay has the current value of the row in
// memory and value equals it, Set does nothing. Set does not read the database to find out.
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

	// After markDirty, dirtyBytes includes the size of the old value, whether the row was clean or
	// dirty before. So only the difference to the size of the new value is still to be added.
	o.markDirty(row)
	o.dirtyBytes += len(value) - r.countedValueBytes()
	o.storeValue(r, value)
	r.lastOperand = 0
	r.state = r.state&^rowBaseInDB | rowHasValue
}

// Delete deletes a row. If the overlay knows that the row does not exist, Delete does nothing.
// Otherwise the next commit writes a deletion, unless rowNotInDB is set. Delete does not read the
// database to find out whether there is such a row.
func (o *Overlay) Delete(key []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.findRow(key, hash)
	o.applyRangeDeletes(row)
	if row < 0 {
		// The database may have the row, so add a row without a value, for which the commit writes
		// a deletion.
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

// exists reports whether a row exists, in an overlay without a database. Above a database it would
// miss rows whose value is only there.
func (r *record) exists() bool { return r.state&rowHasValue != 0 || r.lastOperand != 0 }

// countedValueBytes returns how many bytes the value of a row adds to dirtyBytes if the row is
// dirty. Operands do not count.
func (r *record) countedValueBytes() int {
	if r.state&rowHasValue == 0 {
		return 0
	}
	return int(r.valueLen)
}

// markDirty marks a row as dirty, and adds its size to dirtyBytes, including that of the value that
// it has in memory. It does nothing if the row is dirty already. The caller must then add to
// dirtyBytes how much it changes the size of the row.
func (o *Overlay) markDirty(row int) {
	r := &o.rows[row]
	if r.state&rowDirty != 0 {
		return
	}
	r.state |= rowDirty
	o.dirty = append(o.dirty, uint32(row))
	o.dirtyBytes += nodeBytes + int(r.keyLen) + r.countedValueBytes()
}

// Size returns the number of bytes by which the caller decides whether to commit. It is the larger
// of two sizes: dirtyBytes, which is about what the commit adds to a memtable, and the size by
// which all rows in memory exceed forgetAbove. Because of the second one, a fold that only reads
// rows also commits at some time, which is when rows are forgotten.
func (o *Overlay) Size() int { return max(o.dirtyBytes, o.Memory()-o.forgetAbove) }

// Memory returns about how many bytes the rows and the operands take in memory. Without a database
// it also counts the data that the last ForgetDeleted has left in spareData, because a build limits
// its memory by Memory. Above a database it does not count spareData: Size and Commit compare
// Memory with forgetAbove, and forgetting rows does not make spareData smaller.
func (o *Overlay) Memory() int {
	n := len(o.data) + rowOverhead*len(o.rows) + o.merges.memoryBytes()
	if o.db == nil {
		n += len(o.spareData)
	}
	return n
}

// Commit writes the deleted ranges and the dirty rows to the database in one Pebble batch. All rows
// in memory are clean afterwards. If they take more than forgetAbove, Commit also forgets some of
// them. After an error, some rows may count as clean although the database does not have them, so
// the overlay must not be used any more.
//
// The rows in the batch are in the order of their keys, which makes inserting them into the
// memtable several times faster. The batch is not synced, so a crash may lose it. The fold then
// repeats what was lost: the position of the fold is a row of the same batch, so it is lost
// together with the other rows (I3).
func (o *Overlay) Commit() error {
	o.batch.Reset()

	// The ranges come first, so that they do not delete rows that the fold has written after
	// DeleteRange. Rows that it wrote before are already marked as deleted.
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
		case r.state&rowNotInDB != 0: // created and deleted since the last commit: write nothing
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
		// The overlay has no values for the rows that commitOperands wrote, and is about to forget
		// the rows of deleted ranges. So the iterator of dbFinder must be newer than this commit.
		o.dbFinder.Close()
		o.merges.reset()
	}
	if len(o.deletedRanges) > 0 {
		o.deletedRanges = nil
		o.Reset() // clean rows may be in a range that is no longer in deletedRanges
	}
	if o.Memory() > o.forgetAbove {
		o.forgetRows()
		// forgetRows copies all rows that stay. So the more rows have stayed now, the more rows
		// must be added before it runs again.
		o.forgetAbove = min(o.maxCleanBytes, o.Memory()+max(minForgetBytes, o.Memory()/2))
	}
	return nil
}

// ForgetDeleted drops all rows that do not exist from an overlay without a database, if there were
// enough deletions since it last did so. Rows that were only looked up and not found are also
// dropped. Above a database it does nothing, because there a deleted row in memory hides the row of
// the database. It must not be called while an iterator is open, because the indexes of rows
// change.
func (o *Overlay) ForgetDeleted() {
	// Dropping rows takes time in proportion to the number of slots: all of them are cleared, and
	// the rows that stay, at most three for every four slots, are copied. Wait for one deletion for
	// every four slots, so that this costs little per deletion.
	if o.db != nil || 4*o.deleteCount < len(o.slots) {
		return
	}
	o.deleteCount = 0

	// Copy the rows that exist, all of which are dirty, because no commit has made them clean.
	// Records are copied within their slice: no record moves to a higher index, so the loop never
	// overwrites one that it has not read yet.
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

	// The indexes of the rows have changed. So make the list of dirty rows again, and drop the
	// order, which the next iterator makes again.
	o.chainedCount = 0
	clear(o.orderByPrefix)
	for i := range o.rows {
		o.markDirty(i)
	}
}

// forgetRows drops clean rows. It always drops the rows that are not worth keeping, most of which
// the fold has only written (see age). If the others take more than three quarters of
// maxCleanBytes, it also drops the oldest of them, one age after the other, until the rest takes no
// more than that. If even the rows of age 1 take more, it drops all rows. No row may be dirty.
func (o *Overlay) forgetRows() {
	// Make rows that were not read since the last call older by 1, but only if not all rows that
	// are worth keeping can stay.
	maxBytes := o.maxCleanBytes / 4 * 3
	aging := 0
	sizes, useful := o.sizesByAge(aging)
	if useful > maxBytes {
		aging = 1
		sizes, _ = o.sizesByAge(aging)
	}

	// Find the highest age that stays.
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

	// From now on, the dropped rows are read from the database. They may have been written after
	// dbFinder created its iterator, which then does not see them.
	o.dbFinder.Close()

	// Copy the rows that stay, as in ForgetDeleted, and store their ages.
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

// replaceRows replaces all rows by those that stay, whose records are in rows and whose keys and
// values were copied into data. It keeps the old data as spareData for the next time. It fills the
// hash table again and does not change the number of slots.
func (o *Overlay) replaceRows(data []byte, rows []record) {
	o.spareData = o.data
	o.data = data
	o.rows = rows
	clear(o.slots)
	o.fillTable()
}

// sizesByAge returns the size of the rows of each age in bytes, and in useful the sum for all ages
// above 0. aging is as in age.
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
// Otherwise it is the age that forgetRows stored, plus aging, which is 1 if forgetRows makes such
// rows older and 0 if not. An age of 0 means that the row is not worth keeping: none of its
// rowUseBits is set, for example because the fold has only written it, or its age would exceed
// maxAge, or its value is only in the database.
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

// BeforeFlush must be called before the caller starts a flush of the database. It closes the
// iterator of dbFinder, which would keep the flushed memtables in memory as long as it is open.
func (o *Overlay) BeforeFlush() { o.dbFinder.Close() }

// FlushStarted must be called after the database has begun to flush everything that is committed.
// The goroutine of the fold must call it before the next commit, because the rows of that commit
// are not part of the flush.
func (o *Overlay) FlushStarted() { o.unflushed.flushStarted() }

// FlushEnded must be called after the flush for which FlushStarted was last called has ended. It
// must not be called for an earlier flush while a later one is under way. The goroutine of the fold
// must call it.
func (o *Overlay) FlushEnded() { o.unflushed.flushEnded() }

// IsFlushUseful reports whether so many rows were written since the last flush began that unflushed
// excludes few keys any more. A flush then makes lookups faster, because more of them skip the
// memtables afterwards.
func (o *Overlay) IsFlushUseful() bool { return o.unflushed.isFull() }

// DatabaseChanged must be called after something other than Commit, such as a repair, has written
// rows of the database. It forgets all rows in memory, because they may differ from those of the
// database now. No row may be dirty.
func (o *Overlay) DatabaseChanged() {
	o.Reset()
	o.unflushed.recordUnknownWrites()
}

// Close drops all rows, including dirty ones, and closes the batch and the iterators of dbFinder
// and unflushed. It does not close the database.
func (o *Overlay) Close() {
	o.dbFinder.Close()
	o.unflushed.tables.Close()
	if o.batch != nil {
		_ = o.batch.Close()
	}
	*o = Overlay{}
}

// keyHead is the first 16 bytes of a key as two big-endian numbers. A shorter key is filled up with
// zeros. If two heads differ, the keys have the same order as the heads. If the heads are equal,
// which is rare, the keys themselves must be compared. Comparing heads is faster than comparing
// keys.
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

// dirtyRow is the index of a dirty row in rows, together with the head of its key for sorting.
type dirtyRow struct {
	keyHead
	row uint32
}

// sortedRows returns the rows with the given indexes in the order of their keys. The result is
// valid until the next call.
func (o *Overlay) sortedRows(rows []uint32) []dirtyRow {
	o.sortScratch = o.sortScratch[:0]
	for _, row := range rows {
		o.sortScratch = append(o.sortScratch, o.newDirtyRow(row))
	}
	sorted := o.sortByShard(o.sortedScratch, o.sortScratch)
	if len(sorted) > 0 && &sorted[0] != &o.sortScratch[0] {
		// sortByShard has returned the rows in the memory of sortedScratch, or in larger memory.
		o.sortedScratch = sorted
	}
	return sorted
}

func (o *Overlay) newDirtyRow(row uint32) dirtyRow {
	return dirtyRow{newKeyHead(o.keyOf(&o.rows[row])), row}
}

// sortRows sorts rows in place by their keys.
func (o *Overlay) sortRows(rows []dirtyRow) {
	slices.SortFunc(rows, func(a, b dirtyRow) int {
		if c := a.compare(b.keyHead); c != 0 {
			return c
		}
		return bytes.Compare(o.keyOf(&o.rows[a.row]), o.keyOf(&o.rows[b.row]))
	})
}
