package overlay

import (
	"bytes"
	"slices"
)

// Iterator iterates over rows in the order of their keys. Key and value are valid until it moves.
type Iterator interface {
	// Next moves to the next row. The first call moves to the first row. It returns false after the
	// last row and after an error.
	Next() bool
	// SeekGE moves to the first row whose key is at or after key. It returns false if there is
	// none, and after an error.
	SeekGE(key []byte) bool
	// Key returns the key of the row.
	Key() []byte
	// Value returns the value of the row.
	Value() []byte
	// Error returns the first error of the iterator. After an error, Next and SeekGE always return
	// false.
	Error() error
	// Close closes the iterator and returns its first error.
	Close() error
}

// mergedIterator iterates over the dirty rows and the rows of the database together. If both have a
// row with the same key, it shows the dirty one. If the dirty row is deleted, it shows neither.
type mergedIterator struct {
	overlay    *Overlay
	dirty      []dirtyRow
	dirtyIndex int
	scan       *Scan
	// deletedRanges has the ranges whose rows in the database are deleted.
	deletedRanges []keyRange
	// scanValid is set while scan is at a row. showsDirty is set if the iterator shows the row
	// dirty[dirtyIndex], and not that of scan. sameKey is set if scan is at the row into which the
	// operands of dirty[dirtyIndex] are merged, so that both must move together. positioned is set
	// by the first Next or SeekGE.
	scanValid, showsDirty, sameKey, positioned bool
	// value is the value of a shown row that has operands.
	value []byte
	// err is the first error of a merge. scan keeps its own errors.
	err error
}

// Next implements [Iterator].
func (m *mergedIterator) Next() bool {
	switch {
	case !m.positioned:
		m.positioned = true
		m.scanValid = m.scan.Next()
	case m.showsDirty:
		m.dirtyIndex++
		if m.sameKey {
			m.scanValid = m.scan.Next()
		}
	default:
		m.scanValid = m.scanValid && m.scan.Next()
	}
	return m.chooseRow()
}

// SeekGE implements [Iterator].
func (m *mergedIterator) SeekGE(key []byte) bool {
	m.positioned = true
	m.dirtyIndex, _ = slices.BinarySearchFunc(m.dirty, key, func(d dirtyRow, key []byte) int {
		return bytes.Compare(m.overlay.keyOf(&m.overlay.rows[d.row]), key)
	})
	m.scanValid = m.scan.SeekGE(key)
	return m.chooseRow()
}

// chooseRow decides which row to show: the one with the lower key, and the dirty row if the keys
// are equal. It skips dirty rows that are deleted, together with the rows of the database that they
// hide. It returns false if there is no row.
func (m *mergedIterator) chooseRow() bool {
	m.skipDeletedRanges()
	m.showsDirty = false
	m.sameKey = false
	for ; m.dirtyIndex < len(m.dirty) && m.Error() == nil; m.dirtyIndex++ {
		m.overlay.prefetchKeys(m.dirty, m.dirtyIndex)
		r := &m.overlay.rows[m.dirty[m.dirtyIndex].row]

		order := -1 // of the dirty row, compared with that of scan
		if m.scanValid {
			order = bytes.Compare(m.overlay.keyOf(r), m.scan.Key())
		}
		switch {
		case order > 0:
			return true
		case r.lastOperand != 0:
			m.showsDirty = true
			m.sameKey = order == 0
			m.value, m.err = m.overlay.mergeOperands(r, m.valueBelowOperands(r))
			m.value = bytes.Clone(m.value) // the next merge overwrites the scratch memory
			return m.Error() == nil
		case order == 0: // the dirty row hides that of the database
			m.scanValid = m.scan.Next()
			m.skipDeletedRanges()
			if m.Error() != nil {
				return false
			}
		}

		if r.state&rowHasValue != 0 {
			m.showsDirty = true
			return true
		}
		// The dirty row is deleted: continue with the next.
	}
	return m.scanValid && m.Error() == nil
}

// valueBelowOperands returns the value into which the operands of a row are merged, or nil if there
// is none.
func (m *mergedIterator) valueBelowOperands(r *record) []byte {
	switch {
	case r.state&rowHasValue != 0:
		return m.overlay.valueOf(r)
	case r.state&rowBaseInDB != 0 && m.sameKey:
		return append([]byte{}, m.scan.Value()...) // a copy that is never nil
	}
	return nil
}

// skipDeletedRanges moves scan behind the deleted ranges at its position.
func (m *mergedIterator) skipDeletedRanges() {
	for m.scanValid {
		i := slices.IndexFunc(m.deletedRanges, func(r keyRange) bool { return r.contains(m.scan.Key()) })
		if i < 0 {
			return
		}
		m.scanValid = m.scan.SeekGE(m.deletedRanges[i].upper)
	}
}

// Key implements [Iterator].
func (m *mergedIterator) Key() []byte {
	if m.showsDirty {
		return m.overlay.keyOf(&m.overlay.rows[m.dirty[m.dirtyIndex].row])
	}
	return m.scan.Key()
}

// Value implements [Iterator].
func (m *mergedIterator) Value() []byte {
	if !m.showsDirty {
		return m.scan.Value()
	}
	r := &m.overlay.rows[m.dirty[m.dirtyIndex].row]
	if r.lastOperand != 0 {
		return m.value
	}
	return m.overlay.valueOf(r)
}

// Error implements [Iterator].
func (m *mergedIterator) Error() error {
	if m.err != nil {
		return m.err
	}
	return m.scan.Error()
}

// Close implements [Iterator].
func (m *mergedIterator) Close() error {
	err := m.scan.Close()
	if m.err != nil {
		return m.err
	}
	return err
}
