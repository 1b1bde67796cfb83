package overlay

import "github.com/cockroachdb/pebble/v2"

// Finder finds single rows. It keeps an iterator instead of calling Pebble's Get, which does not use the Bloom filters of the lowest
// level. Most rows are there, and most lookups miss.
type Finder struct {
	// It is the iterator; nil until the first lookup. The caller may set it to an iterator over the same rows.
	It *pebble.Iterator
}

// Find returns the value of a key, valid until the next call, and reports whether there is one. Every call until Close must pass the
// same rows.
func (f *Finder) Find(rows pebble.Reader, key []byte) (value []byte, ok bool, err error) {
	if f.It == nil {
		if f.It, err = rows.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, false, err
		}
	}
	// For the filters, the prefix of a key is the whole key. So the iterator is at this key or nowhere.
	if f.It.SeekPrefixGE(key) {
		value, err = f.It.ValueAndErr()
	} else if err = f.It.Error(); err == nil {
		return nil, false, nil
	}
	if err != nil {
		f.Close() // the next lookup must not depend on where the failed one has left the iterator
		return nil, false, err
	}
	return value, true, nil
}

// Close closes the iterator.
func (f *Finder) Close() {
	if f.It != nil {
		_ = f.It.Close() // Find has returned its errors
		f.It = nil
	}
}

// Scans makes the iterators of one reader. It belongs to one goroutine.
type Scans struct {
	// Keep is how many closed iterators are kept for the next scans, because making one costs as much as using it. They show the rows
	// as they were when they were made, so a reader whose rows change keeps none.
	Keep int
	open int
	// first is the newest iterator that is not closed. The others follow it, linked by older and newer.
	first *Scan
	kept  []*pebble.Iterator
}

// Open returns the number of iterators that are not closed.
func (s *Scans) Open() int { return s.open }

// CloseOpen closes the iterators that are not closed, as after a panic between opening one and closing it, and returns their number. An
// open iterator holds tables of the database, which Pebble cannot close then.
func (s *Scans) CloseOpen() (n int) {
	for ; s.first != nil; n++ {
		_ = s.first.Close() // whoever did not close it reads no row from it
	}
	return n
}

// Drop closes the iterators that are kept. Later ones are not kept.
func (s *Scans) Drop() {
	for _, it := range s.kept {
		_ = it.Close() // it was at no error
	}
	s.Keep, s.kept = 0, nil
}

// Scan is an iterator over rows of the database. It keeps its first error: Pebble's iterators forget theirs with the next seek, so a
// walk that seeks from list to list on one iterator would take a list that cannot be read for an empty one.
type Scan struct {
	it     *pebble.Iterator // nil means there is no database
	of     *Scans
	moved  bool
	closed bool
	// older and newer are its neighbors among the open iterators.
	older, newer *Scan
	// err is the first error. The scan does not move any more once it is set.
	err error
}

// Scan returns an iterator over the keys k with lower <= k < upper. With nil rows it is empty. Every call must pass the same rows.
func (s *Scans) Scan(rows pebble.Reader, lower, upper []byte) *Scan {
	s.open++
	scan := &Scan{of: s, older: s.first}
	if s.first != nil {
		s.first.newer = scan
	}
	s.first = scan
	if rows == nil {
		return scan
	}
	if last := len(s.kept) - 1; last >= 0 {
		scan.it, s.kept = s.kept[last], s.kept[:last]
		scan.it.SetBounds(lower, upper)
		return scan
	}
	scan.it, scan.err = rows.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return scan
}

// Next moves to the next row, at first to the first one. It returns false at the end and after an error.
func (s *Scan) Next() bool {
	switch {
	case s.err != nil || s.it == nil:
		return false
	case s.moved:
		return s.found(s.it.Next())
	}
	s.moved = true
	return s.found(s.it.First())
}

// SeekGE moves to the first row whose key is at or after key. It returns false if there is none, and after an error.
func (s *Scan) SeekGE(key []byte) bool {
	if s.err != nil || s.it == nil {
		return false
	}
	s.moved = true
	return s.found(s.it.SeekGE(key))
}

// found keeps the error of a move that has found no row.
func (s *Scan) found(ok bool) bool {
	if !ok {
		s.err = s.it.Error()
	}
	return ok
}

// Error returns the first error.
func (s *Scan) Error() error { return s.err }

// Key returns the key of the row, valid until the iterator moves.
func (s *Scan) Key() []byte { return s.it.Key() }

// Value returns the value of the row, valid until the iterator moves. Error and Close return the error of one that cannot be read.
func (s *Scan) Value() []byte {
	value, err := s.it.ValueAndErr()
	if err != nil && s.err == nil {
		s.err = err
	}
	return value
}

// Close ends the iterator and returns its first error. It may be called again.
func (s *Scan) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	s.unlink()
	if s.it == nil {
		return s.err
	}
	if s.err == nil && len(s.of.kept) < s.of.Keep {
		s.of.kept = append(s.of.kept, s.it)
		return nil
	}
	if err := s.it.Close(); s.err == nil {
		s.err = err
	}
	return s.err
}

// unlink takes the iterator out of the list of open ones.
func (s *Scan) unlink() {
	s.of.open--
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		s.of.first = s.older
	}
	if s.older != nil {
		s.older.newer = s.newer
	}
	s.older, s.newer = nil, nil
}
