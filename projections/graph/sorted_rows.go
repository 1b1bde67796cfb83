package graph

import (
	"bytes"
	"fmt"
	"slices"
)

// sortedRows is a [projections.Iterator] over rows of a list that are not stored in this form: they
// were made from other rows, and sorted in memory.
type sortedRows struct {
	// rows has the rows in the order of their keys. Each is the key followed by the value, whose
	// size is valueSize. Sorting them whole sorts them by key, because no key is a prefix of
	// another.
	rows      [][]byte
	valueSize int
	// next is the index of the row after the current one.
	next int
	// err is the error of reading the other rows. With it, the iterator has no row.
	err error
}

// Next is part of [projections.Iterator].
func (s *sortedRows) Next() bool {
	if s.err != nil || s.next >= len(s.rows) {
		return false
	}
	s.next++
	return true
}

// Error is part of [projections.Iterator].
func (s *sortedRows) Error() error {
	if s.err != nil {
		return fmt.Errorf("make the rows of a list: %w", s.err)
	}
	return nil
}

// SeekGE is part of [projections.Iterator].
func (s *sortedRows) SeekGE(key []byte) bool {
	s.next, _ = slices.BinarySearchFunc(s.rows, key, func(row, key []byte) int {
		return bytes.Compare(row[:len(row)-s.valueSize], key)
	})
	return s.Next()
}

// Key is part of [projections.Iterator].
func (s *sortedRows) Key() []byte {
	row := s.rows[s.next-1]
	return row[:len(row)-s.valueSize]
}

// Value is part of [projections.Iterator].
func (s *sortedRows) Value() []byte {
	row := s.rows[s.next-1]
	value := row[len(row)-s.valueSize:]
	if s.valueSize == 1 && value[0] == 0 {
		return nil // no setting is on: settingsValue returns nil, too
	}
	return value
}

// Close is part of [projections.Iterator].
func (s *sortedRows) Close() error { return s.Error() }
