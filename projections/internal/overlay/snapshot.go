package overlay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// Snapshot is a snapshot of the database that several readers share. It is closed when the last of
// them releases it.
type Snapshot struct {
	*pebble.Snapshot

	// refs is the number of readers that hold the snapshot. At 0 the snapshot is closed, and cannot
	// be acquired any more.
	refs  atomic.Int64
	owner *Snapshots
	// idleIterator is an iterator of a [Finder] that a reader has left for the next one, because
	// creating an iterator costs as much as using it.
	idleIterator atomic.Pointer[pebble.Iterator]
}

// TakeIterator returns the iterator that an earlier reader has left, or nil.
func (sn *Snapshot) TakeIterator() *pebble.Iterator { return sn.idleIterator.Swap(nil) }

// LeaveIterator closes a finder. It leaves the iterator of the finder for the next reader, unless
// the iterator has failed.
func (sn *Snapshot) LeaveIterator(f *Finder) {
	if f.It != nil && f.It.Error() == nil {
		f.It = sn.idleIterator.Swap(f.It)
	}
	f.Close()
}

// DropIterator closes the iterator that was left, if there is one.
func (sn *Snapshot) DropIterator() {
	if it := sn.TakeIterator(); it != nil {
		_ = it.Close() // it was at no error
	}
}

// Acquire adds a reader that holds the snapshot. It returns false if the snapshot is closed.
func (sn *Snapshot) Acquire() bool {
	// A plain increment could revive a snapshot that the last reader is closing at the same time.
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

// Release removes a reader. The caller of [Snapshots.Make] counts as one.
func (sn *Snapshot) Release() {
	if sn.refs.Add(-1) == 0 {
		sn.DropIterator() // Pebble cannot be closed while an iterator is open
		_ = sn.Close()    // always nil
		sn.owner.addOpen(-1)
	}
}

// Snapshots makes snapshots of a database, and counts those that are open.
type Snapshots struct {
	mu   sync.Mutex
	open int
	// noneOpen is closed when no snapshot is open any more. It is nil until a caller waits for
	// that.
	noneOpen chan struct{}
}

// Make makes a snapshot that the caller holds.
func (s *Snapshots) Make(db *pebble.DB) *Snapshot {
	s.addOpen(1)
	sn := &Snapshot{Snapshot: db.NewSnapshot(), owner: s}
	sn.refs.Store(1)
	return sn
}

func (s *Snapshots) addOpen(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	if s.open == 0 && s.noneOpen != nil {
		close(s.noneOpen)
	}
}

// Wait waits until no snapshot is open, and then returns true. It returns false if a snapshot is
// still open when patience is closed and the time grace has passed after that. A nil patience
// counts as closed. No snapshot may be made meanwhile.
func (s *Snapshots) Wait(patience <-chan struct{}, grace time.Duration) bool {
	s.mu.Lock()
	if s.open == 0 {
		s.mu.Unlock()
		return true
	}
	s.noneOpen = make(chan struct{})
	s.mu.Unlock()

	if patience != nil {
		select {
		case <-s.noneOpen:
			return true
		case <-patience:
		}
	}

	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-s.noneOpen:
		return true
	case <-timer.C:
		return false
	}
}
