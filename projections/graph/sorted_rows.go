package graph

import (
	"bytes"
	"fmt"
	"slices"
)

// sortedRows is an iterator over rows of a list that were sorted in memory.
type sortedRows struct {
	// rows are the keys, each followed by its value of valueSize bytes. No key is the beginning of
	// another, so they are sorted by key.
	rows      [][]byte
	valueSize int
	// next is the index of the row after the current one.
	next int
	err  error
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
		return fmt.Errorf("read whom a user follows: %w", s.err)
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
		return nil // as settingsValue writes a follow without settings
	}
	return value
}

// Close is part of [projections.Iterator].
func (s *sortedRows) Close() error { return s.Error() }
