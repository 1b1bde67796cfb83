package projections

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// View reads the rows of a store at one whole position. A View is not safe for concurrent use. Its
// iterators must be closed first, and then the view. Until then the store keeps the rows that the
// view reads on disk, even if later events delete them.
type View struct {
	// snapshot is nil after Close.
	snapshot *Snapshot
	finder   overlay.Finder
	scans    overlay.Scans
}

var _ Reader = (*View)(nil)

// Snapshot is the state of a store at a whole position. All views at this position share it.
type Snapshot struct {
	// Rows are the rows at the position. Rows counts its references: each view has one.
	Rows *overlay.Snapshot
	// Cursor is the position.
	Cursor events.Cursor
	// Rejects is the number of malformed events in the log up to the position.
	Rejects uint64
	// Version is the version of the rows (see [View.Version]).
	Version uint64
	// QueryCache is the query cache of the store. It is nil if the projection has none.
	QueryCache QueryCache
	// Holding says which partitions the store holds.
	Holding *Holding
	// Settings are those of the fingerprint of the store (see [View.Settings]).
	Settings map[string]string
	// Outdated reports whether the store is outdated (see [View.IsOutdated]).
	Outdated bool
	// Down is closed when the store has failed or begins to close.
	Down <-chan struct{}
}

// maxIdleScans is how many closed iterators a view keeps for its next calls of Iter.
const maxIdleScans = 4

// Open returns a view of the snapshot. The caller must have acquired a reference of Rows, which
// [View.Close] releases.
func (s *Snapshot) Open() *View {
	return &View{snapshot: s, scans: overlay.Scans{MaxIdle: maxIdleScans}}
}

// Cursor returns the position of the rows.
func (v *View) Cursor() events.Cursor { return v.snapshot.Cursor }

// Get implements [Reader].
func (v *View) Get(key []byte) (value []byte, ok bool, err error) {
	// Close leaves the Pebble iterator of a view to the next view of the snapshot, so that few
	// views have to open one.
	if v.finder.It == nil {
		v.finder.It = v.snapshot.Rows.TakeIterator()
	}
	return v.finder.Find(v.snapshot.Rows, key)
}

// Iter implements [Reader].
func (v *View) Iter(lower, upper []byte) Iterator {
	return v.scans.Scan(v.snapshot.Rows, lower, upper)
}

// Close releases the view, of which only Close may be called afterwards, without effect. If
// iterators are still open, Close closes them and returns an error.
func (v *View) Close() error {
	if v.snapshot == nil {
		return nil
	}

	// Pebble iterators must be closed before the snapshot that they read.
	v.snapshot.Rows.LeaveIterator(&v.finder)
	leaked := v.scans.CloseOpen()
	v.scans.Drop()
	v.snapshot.Rows.Release()
	v.snapshot = nil

	if leaked > 0 {
		return errOpenScan
	}
	return nil
}

// Down returns a channel that is closed when the store has failed or begins to close, for example
// because another generation takes its place. The store cannot close before all views are closed,
// so the user of the view should then close it soon.
func (v *View) Down() <-chan struct{} { return v.snapshot.Down }

// Holds reports whether the store holds the partition of a user or item. If it returns false, the
// view has no rows of that user or item, although another node may have some.
func (v *View) Holds(id string) bool { return v.snapshot.Holding.Has(id) }

// Partitions returns the partitions that the store holds. They never change.
func (v *View) Partitions() events.Partitions { return v.snapshot.Holding.Partitions() }

// Settings returns the settings with which the rows were folded. They are those of the fingerprint
// of the store, and differ from those of the program if the store is outdated. The caller must not
// change the map.
func (v *View) Settings() map[string]string { return v.snapshot.Settings }

// IsOutdated reports whether the store was folded by another version or with other settings than
// the program has. Such a store is open for reading only, so it never gets beyond this position.
func (v *View) IsOutdated() bool { return v.snapshot.Outdated }

// QueryCache returns the query cache of the store. It is nil if the projection has none.
func (v *View) QueryCache() QueryCache { return v.snapshot.QueryCache }

// Version returns the version of the rows. A store counts versions from 1 each time it is opened,
// and begins a new one whenever it shows changed rows. Views of one version show the same rows.
func (v *View) Version() uint64 { return v.snapshot.Version }
