package projections

import (
	"github.com/skein-feed/skein/events"
)

// Projection is a store that is a pure fold of the log.
type Projection interface {
	// Name names the store and its checkpoint. It is never reused.
	Name() string
	// Version is raised when the fold changes: a new generation is then built by replay.
	Version() uint32
	// Kinds is what it reads. It is part of the fingerprint of a generation.
	Kinds() []events.Kind
	// Route adds the partitions of the homes that an event concerns, from the event alone. Where none of them is held, the
	// event is not applied.
	Route(ev *events.Event, to *Partitions)
	// Apply folds one event. It is pure: it reads only ev and b, and writes only through b (I1, I4). It reads and writes
	// rows of homes that b holds, and rows of the store as a whole (I13). It must give
	// the same rows when it is run again over what a part of it, cut at a [Batch.Step], left behind.
	// An error is our own corruption, never the event's fault: it stops the projection.
	Apply(ev events.Event, b *Batch) error
}

// Configured is implemented by a projection whose fold reads settings. They are part of the fingerprint: a store
// that was built with other values is refused at start (I4).
type Configured interface {
	Settings() map[string]string
}

// Clocked is implemented by a projection whose rows also change as log time goes by.
type Clocked interface {
	// Tick is called with the log time of every event that the projection reads, held or not, before it is applied. It is
	// as pure as Apply. It depends on the events that are not held by their times alone, and several calls do what the last
	// of them would have done alone.
	Tick(now events.Micros, b *Batch) error
}

// Compatible is implemented by a projection whose queries can read rows that earlier versions of its fold wrote: a
// generation of such a version serves, frozen where it stands, until it is rebuilt. Without it a raised Version answers
// nothing before that.
type Compatible interface {
	// Reads reports whether the queries read rows of a version.
	Reads(version uint32) bool
}

// Reader reads the rows of one store at one position. A [Batch] is one (it sees its own writes), a [View] is one.
type Reader interface {
	// Get returns the value of a key. It may be kept only until the next call on the reader.
	Get(key []byte) (value []byte, ok bool, err error)
	// Iter returns an iterator over the keys k with lower <= k < upper, in order, before the first.
	// The reader must not be written to while it is open.
	Iter(lower, upper []byte) Iterator
}

// Iterator walks over rows in key order. Key and Value may be kept only until the next move.
//
//	it := r.Iter(lower, upper)
//	for it.Next() { use(it.Key(), it.Value()) }
//	return it.Close()
type Iterator interface {
	// Next moves to the next row and reports whether there is one.
	Next() bool
	// SeekGE moves to the first row at or after key and reports whether there is one. Next continues from there.
	SeekGE(key []byte) bool
	Key() []byte
	Value() []byte
	// Close returns the first error met. It must be called.
	Close() error
}
