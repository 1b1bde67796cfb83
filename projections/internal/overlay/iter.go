package overlay

import (
	"bytes"
	"slices"
)

// Iterator walks over rows in the order of their keys. Key and value are valid until the iterator moves.
type Iterator interface {
	// Next moves to the next row, at first to the first one. It returns false after the last row, and after an error.
	Next() bool
	// SeekGE moves to the first row whose key is at or after key. It returns false if there is none, and after an error.
	SeekGE(key []byte) bool
	// Key returns the key of the row.
	Key() []byte
	// Value returns the value of the row.
	Value() []byte
	// Error returns the first error that the iterator has met. After one, Next and SeekGE return false for ever.
	Error() error
	// Close ends the iterator, and returns the same error.
	Close() error
}

// merged is an iterator over the dirty rows and the rows of the database under them. Of two rows with the same key it shows the dirty
// one, and a dirty row that is deleted hides the one under it.
type merged struct {
	over  *Overlay
	dirty []dirtyRow
	at    int // in dirty
	scan  *Scan
	// gone are the ranges of the database that are deleted.
	gone []keyRange
	// valid: the scan is at a row. onDirty: the iterator shows dirty[at], else the row of the scan. tied: the scan is at the row into
	// which dirty[at] is merged, so both move together. moved: Next or SeekGE was called.
	valid, onDirty, tied, moved bool
	// value is that of a dirty row with operands.
	value []byte
	// err is the first error of a merge; the scan keeps its own.
	err error
}

func (m *merged) Next() bool {
	switch {
	case !m.moved:
		m.moved = true
		m.valid = m.scan.Next()
	case m.onDirty:
		m.at++
		if m.tied {
			m.valid = m.scan.Next()
		}
	default:
		m.valid = m.valid && m.scan.Next()
	}
	return m.pick()
}

func (m *merged) SeekGE(key []byte) bool {
	m.moved = true
	m.at, _ = slices.BinarySearchFunc(m.dirty, key, func(d dirtyRow, key []byte) int {
		return bytes.Compare(m.over.keyOf(&m.over.rows[d.row]), key)
	})
	m.valid = m.scan.SeekGE(key)
	return m.pick()
}

// pick finds the row to show: the one with the lesser key, and of two equal keys the dirty row. Dirty rows that are deleted are skipped,
// together with the row of the database that they hide.
func (m *merged) pick() bool {
	m.skipGone()
	m.onDirty, m.tied = false, false
	for ; m.at < len(m.dirty) && m.Error() == nil; m.at++ {
		m.over.lookAhead(m.dirty, m.at)
		r := &m.over.rows[m.dirty[m.at].row]
		order := -1
		if m.valid {
			order = bytes.Compare(m.over.keyOf(r), m.scan.Key())
		}
		switch {
		case order > 0:
			return true
		case r.operand != 0:
			m.onDirty, m.tied = true, order == 0
			m.value, m.err = m.over.mergeOver(r, m.baseOf(r))
			m.value = bytes.Clone(m.value)
			return m.Error() == nil
		case order == 0:
			m.valid = m.scan.Next()
			m.skipGone()
			if m.Error() != nil {
				return false
			}
		}
		if r.state&rowLives != 0 {
			m.onDirty = true
			return true
		}
	}
	return m.valid && m.Error() == nil
}

// baseOf returns the value into which the operands of a row are merged; nil means there is none.
func (m *merged) baseOf(r *cell) []byte {
	switch {
	case r.state&rowLives != 0:
		return m.over.valueOf(r)
	case r.state&rowUnknown != 0 && m.tied:
		return append([]byte{}, m.scan.Value()...) // not nil
	}
	return nil
}

// skipGone moves the scan past deleted ranges.
func (m *merged) skipGone() {
	for m.valid {
		i := slices.IndexFunc(m.gone, func(r keyRange) bool { return r.has(m.scan.Key()) })
		if i < 0 {
			return
		}
		m.valid = m.scan.SeekGE(m.gone[i].upper)
	}
}

func (m *merged) Key() []byte {
	if m.onDirty {
		return m.over.keyOf(&m.over.rows[m.dirty[m.at].row])
	}
	return m.scan.Key()
}

func (m *merged) Value() []byte {
	if !m.onDirty {
		return m.scan.Value()
	}
	r := &m.over.rows[m.dirty[m.at].row]
	if r.operand != 0 {
		return m.value
	}
	return m.over.valueOf(r)
}

func (m *merged) Error() error {
	if m.err != nil {
		return m.err
	}
	return m.scan.Error()
}

func (m *merged) Close() error {
	err := m.scan.Close()
	if m.err != nil {
		return m.err
	}
	return err
}
