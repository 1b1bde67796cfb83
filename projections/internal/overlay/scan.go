package overlay

import "github.com/cockroachdb/pebble/v2"

// Finder finds single rows. It uses an iterator instead of the Get of Pebble, because Get does not
// use the Bloom filters of the lowest level. Most rows are there, and most lookups find nothing.
type Finder struct {
	// It is the iterator, or nil before the first lookup. The caller may set it to an iterator over
	// the same rows.
	It *pebble.Iterator
}

// Find returns the value of a key, which is valid until the next call, and reports whether there is
// one. Every call until Close must pass the same rows.
func (f *Finder) Find(rows pebble.Reader, key []byte) (value []byte, ok bool, err error) {
	if f.It == nil {
		if f.It, err = rows.NewIter(&pebble.IterOptions{UseL6Filters: true}); err != nil {
			return nil, false, err
		}
	}
	// For the filters, the prefix of a key is the whole key. So the iterator is at this key or
	// nowhere.
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

// Scans makes the iterators of one reader. Only one goroutine may use it.
type Scans struct {
	// MaxIdle is the number of closed iterators that are kept for later scans, because creating an
	// iterator costs as much as using it. An iterator shows the rows as they were when it was
	// created, so MaxIdle must be 0 for a reader whose rows change.
	MaxIdle int
	open    int
	// newestOpen is the newest iterator that is not closed. The open iterators are linked by older
	// and newer.
	newestOpen *Scan
	idle       []*pebble.Iterator
}

// Open returns the number of iterators that are not closed.
func (s *Scans) Open() int { return s.open }

// CloseOpen closes the iterators that are not closed and returns their number. There may be some
// after a panic. Pebble cannot be closed while they are open.
func (s *Scans) CloseOpen() (n int) {
	for ; s.newestOpen != nil; n++ {
		_ = s.newestOpen.Close() // whoever did not close it reads no row from it
	}
	return n
}

// Drop closes the idle iterators, and sets MaxIdle to 0.
func (s *Scans) Drop() {
	for _, it := range s.idle {
		_ = it.Close() // it was at no error
	}
	s.MaxIdle = 0
	s.idle = nil
}

// Scan is an iterator over rows of the database. It keeps its first error. A Pebble iterator
// forgets its error with the next seek, so a caller that seeks from list to list with one iterator
// would take a list that cannot be read for an empty one.
type Scan struct {
	it         *pebble.Iterator // nil if there is no database
	owner      *Scans
	positioned bool
	closed     bool
	// older and newer are its neighbors in the list of open iterators.
	older, newer *Scan
	// err is the first error. The scan does not move once it is set.
	err error
}

// Scan returns an iterator over the rows with lower <= key < upper. It is empty if rows is nil.
// Every call must pass the same rows.
func (s *Scans) Scan(rows pebble.Reader, lower, upper []byte) *Scan {
	s.open++
	scan := &Scan{owner: s, older: s.newestOpen}
	if s.newestOpen != nil {
		s.newestOpen.newer = scan
	}
	s.newestOpen = scan
	if rows == nil {
		return scan
	}

	if last := len(s.idle) - 1; last >= 0 {
		scan.it = s.idle[last]
		s.idle = s.idle[:last]
		scan.it.SetBounds(lower, upper)
		return scan
	}
	scan.it, scan.err = rows.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	return scan
}

// Next moves to the next row. The first call moves to the first row. It returns false after the
// last row and after an error.
func (s *Scan) Next() bool {
	switch {
	case s.err != nil || s.it == nil:
		return false
	case s.positioned:
		return s.recordMove(s.it.Next())
	}
	s.positioned = true
	return s.recordMove(s.it.First())
}

// SeekGE moves to the first row whose key is at or after key. It returns false if there is none,
// and after an error.
func (s *Scan) SeekGE(key []byte) bool {
	if s.err != nil || s.it == nil {
		return false
	}
	s.positioned = true
	return s.recordMove(s.it.SeekGE(key))
}

// recordMove keeps the error of a move that has found no row. It returns ok.
func (s *Scan) recordMove(ok bool) bool {
	if !ok {
		s.err = s.it.Error()
	}
	return ok
}

// Error returns the first error.
func (s *Scan) Error() error { return s.err }

// Key returns the key of the row. It is valid until the iterator moves.
func (s *Scan) Key() []byte { return s.it.Key() }

// Value returns the value of the row. It is valid until the iterator moves. If the value cannot be
// read, Error and Close return the error.
func (s *Scan) Value() []byte {
	value, err := s.it.ValueAndErr()
	if err != nil && s.err == nil {
		s.err = err
	}
	return value
}

// Close closes the iterator and returns its first error. Further calls do nothing and return the
// same error.
func (s *Scan) Close() error {
	if s.closed {
		return s.err
	}
	s.closed = true
	s.unlink()
	if s.it == nil {
		return s.err
	}
	if s.err == nil && len(s.owner.idle) < s.owner.MaxIdle {
		s.owner.idle = append(s.owner.idle, s.it)
		return nil
	}
	if err := s.it.Close(); s.err == nil {
		s.err = err
	}
	return s.err
}

// unlink removes the iterator from the list of open ones.
func (s *Scan) unlink() {
	s.owner.open--
	if s.newer != nil {
		s.newer.older = s.older
	} else {
		s.owner.newestOpen = s.older
	}
	if s.older != nil {
		s.older.newer = s.newer
	}
	s.older, s.newer = nil, nil
}
