package conformance

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections/store"
)

// FailingRead makes a single read of a file fail.
type FailingRead struct {
	// left is the number of reads until one fails, including that one. If it is 0 or less, no
	// further read fails.
	left   atomic.Int64
	failed atomic.Bool
}

// FileSystem returns a file system with the files of fs on which the read fails. A nil fs means an
// empty file system in memory.
func (f *FailingRead) FileSystem(fs store.FS) store.FS {
	if fs == nil {
		fs = vfs.NewMem()
	}
	return errorfs.Wrap(fs, f)
}

// FailAt makes the n-th read from now on fail. The first read is number 1. With 0, no read fails.
func (f *FailingRead) FailAt(n int64) {
	f.failed.Store(false)
	f.left.Store(n)
}

// HasFailed reports whether a read has failed since the last call of FailAt.
func (f *FailingRead) HasFailed() bool { return f.failed.Load() }

// countingReads is the value of left while reads are counted. It is so large that it never reaches
// 0.
const countingReads = 1 << 40

// Count calls do and returns how many reads it made. No read fails meanwhile.
func (f *FailingRead) Count(do func()) int64 {
	f.FailAt(countingReads)
	do()
	n := countingReads - f.left.Load()
	f.FailAt(0)
	return n
}

// String implements [errorfs.Injector].
func (*FailingRead) String() string { return "one read fails" }

// MaybeError implements [errorfs.Injector]. It is called before every operation on the file system.
func (f *FailingRead) MaybeError(op errorfs.Op) error {
	if op.Kind != errorfs.OpFileReadAt && op.Kind != errorfs.OpFileRead || f.left.Add(-1) != 0 {
		return nil
	}
	f.failed.Store(true)
	return errorfs.ErrInjected
}
