package projections

import (
	"fmt"

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
	Route(ev *events.Event, to *events.Partitions)
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
	// Reads reports whether the queries read the rows of a store with the fingerprint.
	Reads(was Fingerprint) bool
}

// Merging is implemented by a projection that writes with [Batch.Merge].
type Merging interface {
	// Merger says how. Its name is part of the files of the store, which open with no other: it changes with what merging
	// means.
	Merger() Merger
}

// Merger merges values that were written to one key.
//
// A merged value is a value again, and it never matters in which groups values were merged, as long as their order stays:
// merge(a, merge(b, c)) is merge(merge(a, b), c). Pebble merges whenever it meets values of one key, in flushes, compactions
// and reads. Two builds agree on every row if equal contents are equal bytes (I4).
type Merger struct {
	Name string
	// Merge appends the value that some values, oldest first, at least two, amount to.
	Merge func(dst, key []byte, values [][]byte) ([]byte, error)
}

// UnreadableRowError is the error of reading a row whose values cannot be merged. It is an [ErrCorrupt].
type UnreadableRowError struct {
	Key []byte
	Err error
}

// Error names the key.
func (e *UnreadableRowError) Error() string {
	return fmt.Sprintf("%v: key %x: %v", ErrCorrupt, e.Key, e.Err)
}

// Unwrap gives [ErrCorrupt] and the error of the merger.
func (e *UnreadableRowError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// Walked is implemented by a projection that never asks for rows of some tags by their keys, as for those of lists, which are
// only walked over. The filters of tables leave them out: that is a byte and a quarter of each. To ask for one all the same is
// slower, not wrong.
type Walked interface {
	Walked() []Tag
}

// QueryCacher is implemented by a projection whose queries keep in memory what they have found in rows.
type QueryCacher interface {
	// NewQueryCache makes what is kept beside one store while it is open: nothing of it outlives the store. nil: nothing is kept.
	NewQueryCache() QueryCache
}

// QueryCache is what queries keep in memory beside the rows of one open store. Views tell it apart by their [View.Version], since
// a repair changes rows and no position.
//
// The fold says what it changes by [Batch.QueryCache] and [Batch.Version], and it does so before a view of that version exists:
// who holds a view finds all that was said of its version and the ones before it.
type QueryCache interface {
	// Repaired says that views of this version, of which there is none yet, may differ in any row from those before.
	Repaired(version uint64)
	// Close is called once, when there will be no new view: nothing is kept from then on. Views may still be open.
	Close()
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
//
// A row that cannot be read looks like the end of the rows. A walk must therefore look at Error before it concludes anything from the end
// of one of several lists, or uses what it has collected, unless it looks at what Close returns.
type Iterator interface {
	// Next moves to the next row and reports whether there is one. It returns false at the end, and after an error.
	Next() bool
	// SeekGE moves to the first row at or after key and reports whether there is one. Next continues from there. It returns false after an
	// error.
	SeekGE(key []byte) bool
	Key() []byte
	Value() []byte
	// Error returns the first error met. Once there is one, the iterator does not move any more.
	Error() error
	// Close returns the first error met. It must be called.
	Close() error
}

// Elsewhere is what a query knows of the homes whose rows are not in its state, because the store holds some partitions only. Each
// projection adds the questions that its queries ask, which have a meaning of their own and never are rows. An answer that is not known
// is noted as wanted, and the query continues as if it were no; whoever runs the query then fetches all that is wanted, at or after the
// position of the state, and runs it again. So a query is the same code wherever its rows are, and asks in rounds instead of one by one.
type Elsewhere interface {
	// Holds reports whether the rows of a user or item are in the state.
	Holds(home string) bool
	// Wanting reports that the query has lacked an answer, so that its result will not count.
	Wanting() bool
	// Full reports that enough is wanted for one round. The query then ends with [ErrElsewhere].
	Full() bool
}

// Forgetful is implemented by a projection that keeps, from one event to the next, a copy of what stands in rows.
type Forgetful interface {
	// Forget drops the copy: rows were changed beside the fold. It is never called during Apply.
	Forget()
}
