package projections

import (
	"errors"
	"fmt"
)

// Errors of a store. They arrive wrapped, with what is known of the cause.
var (
	// ErrFingerprint: the store was built by another fold, or with other settings (I4).
	ErrFingerprint = errors.New("projections: the store was built differently")
	// ErrStopped: the projection does not continue by itself.
	ErrStopped = errors.New("projections: stopped")
	// ErrClosed is the ErrStopped of a store that was closed.
	ErrClosed = fmt.Errorf("%w: the store is closed", ErrStopped)
	// ErrPartial: the store holds only some partitions, as that of a node of a cluster does, and was to be opened as a whole one.
	ErrPartial = errors.New("projections: the store holds only some of the partitions")
	// ErrNotReady: an event that was cut by a crash is not finished yet, so there is no whole position to read at.
	ErrNotReady = errors.New("projections: not ready")
	// ErrNoStore: there is no store to be opened for reading only.
	ErrNoStore = errors.New("projections: no store")
	// ErrInUse: another store, of this process or another, has the files open.
	ErrInUse = errors.New("projections: the store is in use by another process")
	// ErrCorrupt: files that are damaged, or a row that neither the runtime nor a fold can have written, see [RowError].
	ErrCorrupt = errors.New("projections: corrupt store")
	// ErrLog: the envelopes do not continue where the store stands.
	ErrLog = errors.New("projections: not the log of this store")
	// ErrPassed says that the store has gone beyond the position that was asked for.
	ErrPassed = errors.New("projections: the store is beyond the position")
	// ErrElsewhere ends a query that must be run again with more known.
	ErrElsewhere = errors.New("projections: the query needs answers from elsewhere")
	// ErrFormat means that the files of the store have a format that this program does not know.
	ErrFormat = errors.New("projections: the store was written by a later release")
)
