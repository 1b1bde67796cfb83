package overlay

import (
	"bytes"
	"slices"

	"github.com/zeebo/xxh3"
)

// MergeFunc merges the values of a key, of which there are at least two, the oldest first. It
// appends the result to dst.
type MergeFunc func(dst, key []byte, values [][]byte) ([]byte, error)

// pendingMerges has the operands that were written since the last commit and are not merged into
// their rows yet. They are merged only when the fold reads the row, or at the commit. So a row to
// which a little is added a thousand times in a batch is not read at all, and is written once.
type pendingMerges struct {
	merge MergeFunc
	// operands has the operands of all rows. Those of one row are linked from the newest to the
	// oldest. data has their values.
	operands []operand
	data     []byte
	// values and merged are scratch memory of mergeOperands.
	values [][]byte
	merged []byte
}

// operand is a value that is to be merged into a row: data[offset:offset+length].
type operand struct {
	offset, length uint32
	previous       uint32 // 1 + the index of the operand of the same row that was written before
}

// operandBytes is the size of an operand in memory.
const operandBytes = 12

// reset drops all operands and keeps the memory.
func (m *pendingMerges) reset() {
	m.operands = m.operands[:0]
	m.data = m.data[:0]
}

func (m *pendingMerges) memoryBytes() int { return len(m.data) + operandBytes*len(m.operands) }

// keyRange is the range of keys with lower <= key < upper.
type keyRange struct{ lower, upper []byte }

func (r keyRange) contains(key []byte) bool {
	return bytes.Compare(key, r.lower) >= 0 && bytes.Compare(key, r.upper) < 0
}

// Merge merges a value into the row of a key, or creates the row. It copies key and value.
func (o *Overlay) Merge(key, value []byte) {
	hash := xxh3.Hash(key)
	row, slot := o.findRow(key, hash)
	o.applyRangeDeletes(row)
	if row < 0 {
		row = o.addRow(key, hash, slot)
		// Do not read the row, only remember where its value is.
		o.rows[row].state = rowBaseInDB
		if o.isInDeletedRange(key) {
			o.rows[row].state = rowNotInDB
		}
	}
	o.markDirty(row)

	r := &o.rows[row]
	m := &o.merges
	m.operands = append(m.operands, operand{uint32(len(m.data)), uint32(len(value)), r.lastOperand})
	m.data = append(m.data, value...)
	r.lastOperand = uint32(len(m.operands))
	o.dirtyBytes += len(value)
}

// mergeOperands merges the operands of a row into base and returns the result, which is valid until
// the next call. A nil base means that the row does not exist without them.
func (o *Overlay) mergeOperands(r *record, base []byte) ([]byte, error) {
	m := &o.merges
	m.values = m.values[:0]
	for at := r.lastOperand; at != 0; at = m.operands[at-1].previous {
		op := &m.operands[at-1]
		m.values = append(m.values, m.data[op.offset:op.offset+op.length])
	}
	if base != nil {
		m.values = append(m.values, base)
	}
	if len(m.values) == 1 {
		return m.values[0], nil
	}
	slices.Reverse(m.values) // the oldest first
	var err error
	m.merged, err = m.merge(m.merged[:0], o.keyOf(r), m.values)
	return m.merged, err
}

// getMerged returns the value of a row that has operands.
func (o *Overlay) getMerged(r *record) ([]byte, bool, error) {
	base, err := o.valueBelowOperands(r)
	if err != nil {
		return nil, false, err
	}
	value, err := o.mergeOperands(r, base)
	return value, err == nil, err
}

// valueBelowOperands returns the value of a row without its operands, or nil if the row does not
// exist without them.
func (o *Overlay) valueBelowOperands(r *record) ([]byte, error) {
	switch {
	case r.state&rowHasValue != 0:
		return o.valueOf(r), nil
	case r.state&rowBaseInDB != 0:
		value, ok, err := o.findInDatabase(o.keyOf(r), r.hash)
		if ok && value == nil {
			value = []byte{} // an empty value, and not no value
		}
		return value, err
	}
	return nil, nil
}

// commitOperands writes a row that has operands to the batch of a commit. If the value below the
// operands was never read, it writes a merge, which Pebble applies. Otherwise it writes the merged
// value. Afterwards the value is only in the database.
func (o *Overlay) commitOperands(r *record) error {
	var base []byte
	if r.state&rowHasValue != 0 {
		base = o.valueOf(r)
	}
	value, err := o.mergeOperands(r, base)
	if err != nil {
		return err
	}

	if r.state&rowBaseInDB != 0 {
		op := o.batch.MergeDeferred(int(r.keyLen), len(value))
		copy(op.Key, o.keyOf(r))
		copy(op.Value, value)
		_ = op.Finish() // fails only on an indexed batch, as below
	} else {
		op := o.batch.SetDeferred(int(r.keyLen), len(value))
		copy(op.Key, o.keyOf(r))
		copy(op.Value, value)
		_ = op.Finish()
	}

	// The merged value may be large, and the fold may never read it, so it is not kept in memory.
	r.lastOperand = 0
	r.state = rowBaseInDB
	return nil
}

// DeleteRange deletes all rows with lower <= key < upper. It changes dirty rows at once. The next
// lookup of a clean row finds that it is deleted, and the next commit deletes the range in the
// database.
func (o *Overlay) DeleteRange(lower, upper []byte) {
	for _, d := range o.dirtyRowsWithin(lower, upper) {
		o.deleteCount++
		r := &o.rows[d.row]
		r.lastOperand = 0
		r.state &^= rowHasValue | rowBaseInDB
	}
	if o.db == nil {
		return // without a database, all rows are dirty
	}
	o.deletedRanges = append(o.deletedRanges, keyRange{bytes.Clone(lower), bytes.Clone(upper)})
	o.dirtyBytes += len(lower) + len(upper)
}

// applyRangeDeletes marks a clean row as not existing if a deleted range has its key. A row of -1
// means no row. Dirty rows need no mark, because they were written after the range was deleted, or
// DeleteRange has changed them.
func (o *Overlay) applyRangeDeletes(row int) {
	if row < 0 || len(o.deletedRanges) == 0 {
		return
	}
	if r := &o.rows[row]; r.state&rowDirty == 0 && o.isInDeletedRange(o.keyOf(r)) {
		r.state = rowNotInDB | r.state&rowUseBits
	}
}

// isInDeletedRange reports whether a range that was deleted since the last commit has the key.
func (o *Overlay) isInDeletedRange(key []byte) bool {
	return slices.ContainsFunc(o.deletedRanges, func(r keyRange) bool { return r.contains(key) })
}

// deletedRangesWithin returns the deleted ranges that overlap the range from lower to upper, in the
// order of their deletion. A nil upper means no bound.
func (o *Overlay) deletedRangesWithin(lower, upper []byte) []keyRange {
	var within []keyRange
	for _, d := range o.deletedRanges {
		if bytes.Compare(lower, d.upper) < 0 && (upper == nil || bytes.Compare(d.lower, upper) < 0) {
			within = append(within, d)
		}
	}
	return within
}
