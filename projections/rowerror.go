package projections

import "fmt"

// RowError returns an [ErrCorrupt] about a row that no fold can have written: what the row is, and its key or its value. A fold that
// returns it stops its store, which then counts as damaged and is rebuilt.
func RowError(what string, row []byte) error { return fmt.Errorf("%w: %s %x", ErrCorrupt, what, row) }
