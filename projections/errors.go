package projections

import (
	"errors"
	"fmt"
)

// Errors of a store. They are returned wrapped, with details of the cause.
var (
	// ErrFingerprint means that the store was built by another version of the fold or with other
	// settings (I4).
	ErrFingerprint = errors.New("projections: the store was built differently")
	// ErrStopped means that the projection has stopped and does not continue by itself.
	ErrStopped = errors.New("projections: stopped")
	// ErrClosed means that the store was closed. It wraps ErrStopped.
	ErrClosed = fmt.Errorf("%w: the store is closed", ErrStopped)
	// ErrPartial means that the store holds only some partitions, as on a node of a cluster, and
	// the caller needs others.
	ErrPartial = errors.New("projections: the store holds only some of the partitions")
	// ErrNotReady means that the store cannot be read yet: a crash has interrupted the fold within
	// an envelope, and the store has not folded the rest of it.
	ErrNotReady = errors.New("projections: not ready")
	// ErrNoStore means that a store does not exist that was to be opened for reading only.
	ErrNoStore = errors.New("projections: no store")
	// ErrInUse means that this process or another one has the files open already.
	ErrInUse = errors.New("projections: the store is in use by another process")
	// ErrCorrupt means that files are damaged, or that a row has contents that neither the store
	// nor a fold can have written (see [RowError]).
	ErrCorrupt = errors.New("projections: corrupt store")
	// ErrLog means that envelopes do not continue at the position of the store, or are of another
	// log.
	ErrLog = errors.New("projections: not the log of this store")
	// ErrPositionPassed means that the store is beyond the requested position.
	ErrPositionPassed = errors.New("projections: the store is beyond the position")
	// ErrUnresolved is returned by a query that needs answers from other nodes (see
	// [RemoteLookup]).
	ErrUnresolved = errors.New("projections: the query needs answers from elsewhere")
	// ErrFormat means that the files of the store have a format that is newer than this program.
	ErrFormat = errors.New("projections: the store was written by a later release")
)
