package conformance

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections/store"
)

// FailingRead makes a single read of a file fail.
type FailingRead struct {
	// left is the number of reads up to the one that fails, that one included. With 0 or less, none fails any more.
	left   atomic.Int64
	failed atomic.Bool
}

// FileSystem returns a file system on which the read fails: the files of fs, or, if it is nil, an empty one in memory.
func (f *FailingRead) FileSystem(fs store.FS) store.FS {
	if fs == nil {
		fs = vfs.NewMem()
	}
	return errorfs.Wrap(fs, f)
}

// FailAt makes the n-th read from now on fail, counted from 1. With 0, none fails.
func (f *FailingRead) FailAt(n int64) {
	f.failed.Store(false)
	f.left.Store(n)
}

// HasFailed reports whether a read has failed since the last call of FailAt.
func (f *FailingRead) HasFailed() bool { return f.failed.Load() }

// countingReads is the number of reads after which one would fail while reads are only counted. It is never reached.
const countingReads = 1 << 40

// Count returns how many reads do makes. None of them fails.
func (f *FailingRead) Count(do func()) int64 {
	f.FailAt(countingReads)
	do()
	n := countingReads - f.left.Load()
	f.FailAt(0)
	return n
}

// String is part of [errorfs.Injector].
func (*FailingRead) String() string { return "one read fails" }

// MaybeError is part of [errorfs.Injector]. It is called before every operation on the file system.
func (f *FailingRead) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileReadAt && op.Kind != errorfs.OpFileRead || f.left.Add(-1) != 0 {
		return nil
	}
	f.failed.Store(true)
	return errorfs.ErrInjected
}
