package overlay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot is a snapshot of the database that any number of readers share. It is closed when the last of them has released it.
type Snapshot struct {
	*pebble.Snapshot

	// refs counts those who hold the snapshot. At 0 it is closed for good.
	refs atomic.Int64
	all  *Snapshots
	// idle is an iterator of a [Finder] for the next reader, because making one costs as much as using it.
	idle atomic.Pointer[pebble.Iterator]
}

// TakeIterator returns an iterator that an earlier reader has left; nil means there is none.
func (sn *Snapshot) TakeIterator() *pebble.Iterator { return sn.idle.Swap(nil) }

// LeaveIterator closes a finder, and leaves its iterator to the next reader.
func (sn *Snapshot) LeaveIterator(f *Finder) {
	if f.It != nil && f.It.Error() == nil {
		f.It = sn.idle.Swap(f.It)
	}
	f.Close()
}

// DropIterator closes the iterator that was left.
func (sn *Snapshot) DropIterator() {
	if it := sn.TakeIterator(); it != nil {
		_ = it.Close() // it was at no error
	}
}

// Acquire holds the snapshot until it is released. It returns false if the snapshot is closed.
func (sn *Snapshot) Acquire() bool {
	for {
		n := sn.refs.Load()
		if n == 0 {
			return false
		}
		if sn.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends an Acquire, or the hold of whoever made the snapshot.
func (sn *Snapshot) Release() {
	if sn.refs.Add(-1) == 0 {
		sn.DropIterator()
		_ = sn.Close() // always nil
		sn.all.add(-1)
	}
}

// Snapshots makes the snapshots of a database and counts those that are not closed.
type Snapshots struct {
	mu   sync.Mutex
	open int
	// none is closed when no snapshot is open. It exists only while a caller waits for that.
	none chan struct{}
}

// Make makes a snapshot, which the caller holds.
func (all *Snapshots) Make(db *pebble.DB) *Snapshot {
	all.add(1)
	sn := &Snapshot{Snapshot: db.NewSnapshot(), all: all}
	sn.refs.Store(1)
	return sn
}

func (all *Snapshots) add(n int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open += n
	if all.open == 0 && all.none != nil {
		close(all.none)
	}
}

// Wait blocks until no snapshot is open and returns true. It returns false if one is still open after patience is closed (a nil patience
// counts as closed) and the time most has passed since then. No snapshot may be made meanwhile.
func (all *Snapshots) Wait(patience <-chan struct{}, most time.Duration) bool {
	all.mu.Lock()
	if all.open == 0 {
		all.mu.Unlock()
		return true
	}
	all.none = make(chan struct{})
	all.mu.Unlock()
	if patience != nil {
		select {
		case <-all.none:
			return true
		case <-patience:
		}
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-all.none:
		return true
	case <-timer.C:
		return false
	}
}
