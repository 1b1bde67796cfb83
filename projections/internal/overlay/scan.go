package overlay

import "github.com/cockroachdb/pebble/v2"

// Finder finds single rows. It keeps an iterator: Pebble's own Get asks no Bloom filter of the lowest level, where most
// rows are, and most lookups miss.
type Finder struct {
	// It is the iterator; nil until it is needed. It may be one that was used before on the same rows.
	It *pebble.Iterator
}

// Find returns the value of a key, good until the next call. The rows must be the same in every call until Close.
func (f *Finder) Find(rows pebble.Reader, key []byte) (value []byte, ok bool, err error) {
	if f.It == nil {
		if f.It, err = rows.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, false, err
		}
	}
	// The prefix of a key that filters know is all of it, so the iterator is at the key or nowhere.
	if !f.It.SeekPrefixGE(key) {
		return nil, false, f.It.Error()
	}
	value, err = f.It.ValueAndErr()
	return value, err == nil, err
}

// Close closes the iterator.
func (f *Finder) Close() {
	if f.It != nil {
		_ = f.It.Close() // Find has returned its error
		f.It = nil
	}
}

// Scan is an iterator over rows of the database.
type Scan struct {
	it     *pebble.Iterator // nil: there is no database
	open   *int             // counts the open iterators of the reader
	moved  bool
	closed bool
	err    error
}

// NewScan returns an iterator over the keys k with lower <= k < upper, which counts itself in open; rows nil: there are none.
func NewScan(rows pebble.Reader, lower, upper []byte, open *int) *Scan {
	*open++
	s := &Scan{open: open}
	if rows == nil {
		return s
	}
	s.it, s.err = rows.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return s
}

// Next goes to the next row, the first at first.
func (s *Scan) Next() bool {
	switch {
	case s.err != nil || s.it == nil:
		return false
	case s.moved:
		return s.it.Next()
	}
	s.moved = true
	return s.it.First()
}

// SeekGE goes to the first row that is not before a key.
func (s *Scan) SeekGE(key []byte) bool {
	if s.err != nil || s.it == nil {
		return false
	}
	s.moved = true
	return s.it.SeekGE(key)
}

// Key is that of the row.
func (s *Scan) Key() []byte { return s.it.Key() }

// Value is that of the row.
func (s *Scan) Value() []byte {
	value, err := s.it.ValueAndErr()
	if err != nil && s.err == nil {
		s.err = err
	}
	return value
}

// Close ends the iterator and returns its error.
func (s *Scan) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	*s.open--
	if s.it != nil {
		if err := s.it.Close(); s.err == nil {
			s.err = err
		}
	}
	return s.err
}
