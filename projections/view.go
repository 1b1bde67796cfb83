package projections

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// View reads the rows of a store at one whole position. A View is not safe for concurrent use. It must be closed after its
// iterators. Until then the store keeps the older rows on disk that the view reads.
type View struct {
	position *Snapshot
	finder   overlay.Finder
	scans    overlay.Scans
}

var _ Reader = (*View)(nil)

// Snapshot is a position at which a store has folded no envelope only in part, together with everything that views at
// this position show.
type Snapshot struct {
	// Rows are the rows at the position. Views share the snapshot, which counts its references.
	Rows *overlay.Snapshot
	// Cursor is the position.
	Cursor events.Cursor
	// Rejects is the number of malformed events up to the position.
	Rejects uint64
	// Version is the version of the rows (see [View.Version]).
	Version uint64
	// QueryCache is the query cache of the store. It is nil if the projection has none.
	QueryCache QueryCache
	// Holding names the partitions that the store holds.
	Holding *Holding
	// Down is closed when the store has failed or begins to close.
	Down <-chan struct{}
}

// keptScans is how many iterators of closed scans a view keeps for reuse by later scans.
const maxIdleScans = 4

// Open returns a view of the position. The caller must have acquired Rows before. [View.Close] releases them.
func (p *Snapshot) Open() *View {
	return &View{position: p, scans: overlay.Scans{MaxIdle: maxIdleScans}}
}

// Cursor returns the position that the rows reflect.
func (v *View) Cursor() events.Cursor { return v.position.Cursor }

// Get returns the value of a key. The value is valid until the next call.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	// Views of one position hand down one Pebble iterator for lookups, so that not every view has to open one.
	if v.finder.It == nil {
		v.finder.It = v.position.Rows.TakeIterator()
	}
	return v.finder.Find(v.position.Rows, key)
}

// Iter returns an iterator over the keys k with lower <= k < upper. A nil bound is no limit.
func (v *View) Iter(lower, upper []byte) Iterator {
	return v.scans.Scan(v.position.Rows, lower, upper)
}

// Close releases the view. If iterators are still open, Close closes them and returns an error. Further calls do nothing.
func (v *View) Close() error {
	if v.position == nil {
		return nil
	}

	// Pebble iterators must be closed before the snapshot that they read.
	v.position.Rows.LeaveIterator(&v.finder)
	leaked := v.scans.CloseOpen()
	v.scans.Drop()
	v.position.Rows.Release()
	v.position = nil

	if leaked > 0 {
		return errOpenScan
	}
	return nil
}

// Down returns a channel that is closed when the store has failed or begins to close, for example after a cut-over. Closing
// the store waits for the view, so the holder should then close the view soon.
func (v *View) Down() <-chan struct{} { return v.position.Down }

// Holds reports whether the store holds the partition of a user or item. If it does not, the view has no rows of that user or
// item, which says nothing about whether such rows exist.
func (v *View) Holds(id string) bool { return v.position.Holding.Has(id) }

// Partitions returns the partitions that the store holds. The partitions of a generation never change.
func (v *View) Partitions() events.Partitions { return v.position.Holding.Partitions() }

// QueryCache returns the query cache of the store. It is nil if the projection has none.
func (v *View) QueryCache() QueryCache { return v.position.QueryCache }

// Version returns the version of the rows. The open store counts versions from 1 and starts a new one whenever it publishes
// changed rows. Views of one version show the same rows.
func (v *View) Version() uint64 { return v.position.Version }
