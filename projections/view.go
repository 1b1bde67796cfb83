package projections

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// View is the store at one whole position. It belongs to one goroutine and must be closed; what it holds of older rows
// is kept on disk until then. Its iterators must be closed first.
type View struct {
	position *WholePosition
	finder   overlay.Finder
	scans    overlay.Scans
}

var _ Reader = (*View)(nil)

// WholePosition is a position of a store at which no envelope is half folded, with all that views show there.
type WholePosition struct {
	// Rows are those at the position.
	Rows   *overlay.Snapshot
	Cursor events.Cursor
	// Rejects counts the malformed events up to the position.
	Rejects uint64
	// Version is that of the rows. See [View.Version].
	Version uint64
	// QueryCache is what queries keep of the rows; nil means nothing.
	QueryCache QueryCache
	// Holding is that of the store.
	Holding *Holding
	// Down is closed when the store has failed or is to be closed.
	Down <-chan struct{}
}

// keptScans is how many iterators of closed scans a view keeps for later ones.
const maxIdleScans = 4

// Open returns a view of the position. The caller has acquired the rows; closing the view releases them.
func (p *WholePosition) Open() *View {
	return &View{position: p, scans: overlay.Scans{Keep: maxIdleScans}}
}

// Cursor returns the position that the rows reflect.
func (v *View) Cursor() events.Cursor { return v.position.Cursor }

// Get returns the value of a key. It may be kept only until the next call.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	if v.finder.It == nil {
		v.finder.It = v.position.Rows.TakeIterator()
	}
	return v.finder.Find(v.position.Rows, key)
}

// Iter returns an iterator over the keys k with lower <= k < upper; a nil bound is none.
func (v *View) Iter(lower, upper []byte) Iterator {
	return v.scans.Scan(v.position.Rows, lower, upper)
}

// Close releases the view. It is an error if an iterator is open, which it closes.
func (v *View) Close() error {
	if v.position == nil {
		return nil
	}
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

// Down is closed when the store has failed, or is to be closed, as after a cut-over. That waits for the view, which is to be closed soon.
func (v *View) Down() <-chan struct{} { return v.position.Down }

// Holds reports whether the view has the rows of a user or item: whether the store holds its partition. A question about others has
// no answer here.
func (v *View) Holds(id string) bool { return v.position.Holding.Has(id) }

// Partitions returns the partitions whose rows the view has: those of its generation, which never change.
func (v *View) Partitions() events.Partitions { return v.position.Holding.Partitions() }

// QueryCache returns what is kept beside the store; nil means nothing.
func (v *View) QueryCache() QueryCache { return v.position.QueryCache }

// Version numbers the states of the rows that the open store has shown, from 1. Views of one version have the same rows.
func (v *View) Version() uint64 { return v.position.Version }
