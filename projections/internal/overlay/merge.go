package overlay

import (
	"bytes"
	"slices"

	"github.com/zeebo/xxh3"
)

// MergeFunc merges the values of a key, at least two, the oldest first. It appends the result to dst.
type MergeFunc func(dst, key []byte, values [][]byte) ([]byte, error)

// merges holds the operands that were written since the last commit and are not merged yet. The operands of a row stay a list until the
// fold reads the row, or until the commit. So a row that grows by a little a thousand times in a batch is not read at all, and written
// once.
type merges struct {
	merge MergeFunc
	// list has the operands of all rows. Those of one row are linked from the last to the first.
	list []operand
	data []byte
	// values and out are scratch memory for merging.
	values [][]byte
	out    []byte
}

// operand is a value to merge into a row: data[at:at+len].
type operand struct {
	at, len uint32
	before  uint32 // the operand of the same row before it, + 1
}

const operandBytes = 12

func (m *merges) reset() { m.list, m.data = m.list[:0], m.data[:0] }

func (m *merges) memory() int { return len(m.data) + operandBytes*len(m.list) }

// keyRange is the range of keys k with lower <= k < upper.
type keyRange struct{ lower, upper []byte }

func (r keyRange) has(key []byte) bool {
	return bytes.Compare(key, r.lower) >= 0 && bytes.Compare(key, r.upper) < 0
}

// Merge merges a value into the row of a key, or creates the row. Key and value are copied.
func (o *Overlay) Merge(key, value []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.find(key, hash)
	o.applyRangeDeletes(row)
	if row < 0 {
		row = o.add(key, hash, slot)
		o.rows[row].state = rowUnknown
		if o.inDeleted(key) {
			o.rows[row].state = rowAbsent
		}
	}
	o.touch(row)
	r, m := &o.rows[row], &o.merges
	m.list = append(m.list, operand{uint32(len(m.data)), uint32(len(value)), r.operand})
	m.data = append(m.data, value...)
	r.operand = uint32(len(m.list))
	o.dirtyBytes += len(value)
}

// mergeOver merges the operands of a row over base, the value without them; a nil base means that there is none. The result is valid
// until the next call.
func (o *Overlay) mergeOver(r *cell, base []byte) ([]byte, error) {
	m := &o.merges
	m.values = m.values[:0]
	for at := r.operand; at != 0; at = m.list[at-1].before {
		op := &m.list[at-1]
		m.values = append(m.values, m.data[op.at:op.at+op.len])
	}
	if base != nil {
		m.values = append(m.values, base)
	}
	if len(m.values) == 1 {
		return m.values[0], nil
	}
	slices.Reverse(m.values)
	var err error
	m.out, err = m.merge(m.out[:0], o.keyOf(r), m.values)
	return m.out, err
}

// getMerged returns the value of a row with operands.
func (o *Overlay) getMerged(r *cell) ([]byte, bool, error) {
	base, err := o.baseOf(r)
	if err != nil {
		return nil, false, err
	}
	value, err := o.mergeOver(r, base)
	return value, err == nil, err
}

// baseOf returns the value of a row without its operands; nil means that the row does not exist without them.
func (o *Overlay) baseOf(r *cell) ([]byte, error) {
	switch {
	case r.state&rowLives != 0:
		return o.valueOf(r), nil
	case r.state&rowUnknown != 0:
		value, ok, err := o.base(o.keyOf(r), r.hash)
		if ok && value == nil {
			value = []byte{}
		}
		return value, err
	}
	return nil, nil
}

// writeMerged writes a row with operands to the batch: as a merge if the value under them was never read, else as a set. Afterwards the
// row is unknown here, and the next reader asks the database.
func (o *Overlay) writeMerged(r *cell) error {
	var base []byte
	if r.state&rowLives != 0 {
		base = o.valueOf(r)
	}
	value, err := o.mergeOver(r, base)
	if err != nil {
		return err
	}
	if r.state&rowUnknown != 0 {
		op := o.batch.MergeDeferred(int(r.keyLen), len(value))
		copy(op.Key, o.keyOf(r))
		copy(op.Value, value)
		_ = op.Finish() // fails only on an indexed batch
	} else {
		op := o.batch.SetDeferred(int(r.keyLen), len(value))
		copy(op.Key, o.keyOf(r))
		copy(op.Value, value)
		_ = op.Finish()
	}
	r.operand, r.state = 0, rowUnknown
	return nil
}

// DeleteRange removes all rows k with lower <= k < upper. It changes dirty rows at once. Rows that are clean here are found to be deleted
// when they are next looked up, and the database deletes its rows at the commit.
func (o *Overlay) DeleteRange(lower, upper []byte) {
	for _, d := range o.within(lower, upper) {
		r := &o.rows[d.row]
		r.operand = 0
		r.state &^= rowLives | rowUnknown
	}
	if o.db == nil {
		return // there is nothing under the rows
	}
	o.deleted = append(o.deleted, keyRange{bytes.Clone(lower), bytes.Clone(upper)})
	o.dirtyBytes += len(lower) + len(upper)
}

// applyRangeDeletes marks a clean row as absent if a deleted range has its key; -1 means no row. A dirty row needs no mark: it was
// written after the range was deleted, or DeleteRange has changed it.
func (o *Overlay) applyRangeDeletes(row int) {
	if row < 0 || len(o.deleted) == 0 {
		return
	}
	if r := &o.rows[row]; r.state&rowDirty == 0 && o.inDeleted(o.keyOf(r)) {
		r.state = rowAbsent | r.state&rowUsed
	}
}

func (o *Overlay) inDeleted(key []byte) bool {
	return slices.ContainsFunc(o.deleted, func(r keyRange) bool { return r.has(key) })
}

// deletedWithin returns the deleted ranges that overlap lower to upper, in the order of their deletion; a nil upper means no bound.
func (o *Overlay) deletedWithin(lower, upper []byte) []keyRange {
	var within []keyRange
	for _, d := range o.deleted {
		if bytes.Compare(lower, d.upper) < 0 && (upper == nil || bytes.Compare(d.lower, upper) < 0) {
			within = append(within, d)
		}
	}
	return within
}
