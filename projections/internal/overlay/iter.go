package overlay

import (
	"bytes"
	"slices"
)

// Iterator walks over rows in the order of their keys. Key and value are good until the next call.
type Iterator interface {
	Next() bool
	SeekGE(key []byte) bool
	Key() []byte
	Value() []byte
	Close() error
}

// merged is an iterator over dirty rows and those of the database under them.
type merged struct {
	over  *Overlay
	dirty []dirtyRow
	at    int // in dirty
	scan  *Scan
	// gone are the ranges of the database that are deleted.
	gone []keyRange
	// valid reports whether the scan is at a row, onDirty which of the two the iterator shows, tied that the scan is at the
	// row that the dirty one is merged into.
	valid, onDirty, tied, moved bool
	// value is that of a dirty row with operands.
	value []byte
	err   error
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

// pick finds the row to show: the lesser of the two, and of equal ones the dirty one, if it lives.
func (m *merged) pick() bool {
	m.skipGone()
	m.onDirty, m.tied = false, false
	for ; m.at < len(m.dirty) && m.err == nil; m.at++ {
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
			return m.err == nil
		case order == 0:
			m.valid = m.scan.Next()
			m.skipGone()
		}
		if r.state&rowLives != 0 {
			m.onDirty = true
			return true
		}
	}
	return m.valid && m.err == nil
}

// baseOf returns what a row with operands is without them.
func (m *merged) baseOf(r *cell) []byte {
	switch {
	case r.state&rowLives != 0:
		return m.over.valueOf(r)
	case r.state&rowUnknown != 0 && m.tied:
		return append([]byte{}, m.scan.Value()...) // not nil
	}
	return nil
}

// skipGone moves the scan out of deleted ranges.
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

func (m *merged) Close() error {
	err := m.scan.Close()
	if m.err != nil {
		return m.err
	}
	return err
}
