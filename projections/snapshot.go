package projections

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// position is a whole position: no envelope is half folded.
type position struct {
	rows    *snapshot
	cursor  events.Cursor
	rejects uint64
	// version is that of the rows, queryCache what queries keep of them.
	version    uint64
	queryCache QueryCache
	// holding and down are those of the store.
	holding *Holding
	down    <-chan struct{}
}

// snapshot is a Pebble snapshot that several positions and any number of views share.
type snapshot struct {
	*pebble.Snapshot
	// refs counts the views, and one for the store while it is current. At 0 it is closed for ever.
	refs atomic.Int64
	all  *snapshots
	// idle is an iterator of a finder for the next view: to make one costs as much as to use it.
	idle atomic.Pointer[pebble.Iterator]
}

func (sn *snapshot) take() *pebble.Iterator { return sn.idle.Swap(nil) }

func (sn *snapshot) give(f *overlay.Finder) {
	if f.It != nil && f.It.Error() == nil {
		f.It = sn.idle.Swap(f.It)
	}
	f.Close()
}

// keptScans is how many iterators of closed scans a view keeps for later ones.
const keptScans = 4

// open returns a view of a position whose rows the caller has acquired.
func (p *position) open() *View { return &View{at: p, scans: overlay.Scans{Keep: keptScans}} }

// snapshots counts the snapshots of a store that are not closed.
type snapshots struct {
	mu   sync.Mutex
	open int
	// none is closed when no view is open. It exists only while a caller waits for that.
	none chan struct{}
}

func (all *snapshots) add(n int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.open += n
	if all.open == 0 && all.none != nil {
		close(all.none)
	}
}

// wait waits until no snapshot is open, until the channel is closed (nil: it is) and then for so long. There is no new one
// by then.
func (all *snapshots) wait(patience <-chan struct{}, most time.Duration) error {
	all.mu.Lock()
	if all.open == 0 {
		all.mu.Unlock()
		return nil
	}
	all.none = make(chan struct{})
	all.mu.Unlock()
	if patience != nil {
		select {
		case <-all.none:
			return nil
		case <-patience:
		}
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-all.none:
		return nil
	case <-timer.C:
		return errOpenViews
	}
}

var errOpenViews = errors.New("projections: the store cannot be closed: views of it are open")

// drop closes the idle iterator.
func (sn *snapshot) drop() {
	if it := sn.take(); it != nil {
		_ = it.Close() // it was at no error
	}
}

func (sn *snapshot) acquire() bool {
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

func (sn *snapshot) release() {
	if sn.refs.Add(-1) == 0 {
		sn.drop()
		_ = sn.Close() // always nil
		sn.all.add(-1)
	}
}

// publish makes the state of the fold, which stands at a whole position, visible to queries. Without new rows the
// snapshot stays.
func (s *Store) publish(newRows bool) {
	last := s.current.Load()
	next := &position{cursor: s.fold.cursor, rejects: s.fold.rejects, queryCache: s.queryCache, holding: &s.holding, down: s.state.Down()}
	if last != nil && !newRows {
		next.rows = last.rows
	} else {
		s.snapshots.add(1)
		next.rows = &snapshot{Snapshot: s.db.NewSnapshot(), all: &s.snapshots}
		next.rows.refs.Store(1)
		s.version++
	}
	next.version = s.version
	s.current.Store(next)
	if last != nil && last.rows != next.rows {
		last.rows.release()
	}
	s.state.Reached(next.cursor.Seq)
}

// View returns the store at its last whole position. It fails with [ErrNotReady] while an event that a crash has cut
// is not finished, and with [ErrStopped] once the projection failed or the store is closed.
func (s *Store) View() (*View, error) {
	if s.state.HasFailed() {
		return nil, s.state.Stopped()
	}
	for {
		p := s.current.Load()
		if p == nil {
			if err := s.state.Stopped(); err != nil {
				return nil, err
			}
			return nil, ErrNotReady
		}
		if p.rows.acquire() {
			return p.open(), nil
		}
	}
}
