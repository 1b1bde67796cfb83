package projections

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// Projection defines one set of rows as a pure fold of the log: which events it reads, and which rows each of them changes.
type Projection interface {
	// Name names the directory of the stores and appears in their fingerprint. A name is never reused for another projection.
	Name() string
	// Version is raised whenever the fold changes. A new generation must then be built by replaying the log.
	Version() uint32
	// Kinds returns the kinds of events that the projection reads. They are part of the fingerprint of a generation.
	Kinds() []events.Kind
	// Route adds to the set the partitions of the homes that an event concerns. It decides by the event alone. A store that
	// holds none of these partitions does not apply the event.
	Route(ev *events.Event, to *events.Partitions)
	// Apply folds one event. It is pure: it reads only ev and b, and writes only through b (I1, I4). It reads and writes
	// only rows of homes that b holds and rows of the store as a whole (I13).
	//
	// If Apply is interrupted at a [Batch.Step], it runs again over the rows that the interrupted call committed, and must
	// then produce the same rows as one call that was not interrupted.
	//
	// An error means that our own data is corrupt, and never that the event is malformed. It stops the projection.
	Apply(ev events.Event, b *Batch) error
}

// SettingsProvider is implemented by a projection whose fold depends on settings.
type SettingsProvider interface {
	// Settings returns the settings by name. They are part of the fingerprint, so a store that was built with other values
	// is refused at start (I4).
	Settings() map[string]string
}

// ClockTicker is implemented by a projection whose rows also change because log time passes, such as rows that expire.
type ClockTicker interface {
	// Tick is called before each event that the projection reads, with the log time of that event, even if the event
	// concerns only partitions that the store does not hold. Tick is as pure as Apply. A build skips calls, so several
	// calls in a row must have the same effect as the last of them alone.
	Tick(now events.Micros, b *Batch) error
}

// VersionReader is implemented by a projection whose queries can read rows that earlier versions of its fold wrote. A
// generation of such a version answers queries from its last position, without folding, until it is rebuilt. A projection
// that does not implement VersionReader answers no query between a raised Version and the end of the rebuild.
type VersionReader interface {
	// CanRead reports whether the queries can read the rows of a store that was built with this fingerprint.
	CanRead(built Fingerprint) bool
}

// MergerProvider is implemented by a projection that writes with [Batch.Merge].
type MergerProvider interface {
	// Merger returns the merger of the projection. The files of the store contain the name of the merger, and Pebble opens
	// them with no other. The name must therefore change whenever the result of merging changes.
	Merger() Merger
}

// Merger merges the values that were written to one key into one value.
//
// Merging must be associative: merge(a, merge(b, c)) equals merge(merge(a, b), c). Pebble merges adjacent values in flushes,
// compactions and reads, in any grouping, but never changes their order. Equal contents must be equal bytes, so that two
// builds agree on every row (I4).
type Merger struct {
	// Name identifies the merger in the files of the store.
	Name string
	// Merge appends the merged value to dst and returns the extended slice. There are at least two values, oldest first.
	Merge func(dst, key []byte, values [][]byte) ([]byte, error)
}

// UnreadableRowError is returned for a row whose values cannot be merged. It wraps [ErrCorrupt].
type UnreadableRowError struct {
	Key []byte
	Err error
}

// Error returns a message that contains the key in hexadecimal.
func (e *UnreadableRowError) Error() string {
	return fmt.Sprintf("%v: key %x: %v", ErrCorrupt, e.Key, e.Err)
}

// Unwrap returns [ErrCorrupt] and the error of the merger.
func (e *UnreadableRowError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// IteratedOnly is implemented by a projection that reads the rows of some tags only with iterators, and never with Get, such as
// the entries of lists. The Bloom filters of tables leave these rows out, which saves 10 bits per row. Get still finds such
// a row, but more slowly.
type IteratedOnly interface {
	// IteratedTags returns the tags of these rows.
	IteratedTags() []Tag
}

// QueryCacher is implemented by a projection whose queries cache in memory what they read from rows.
type QueryCacher interface {
	// NewQueryCache returns an empty cache for one open store. The cache is closed with the store. nil means no cache.
	NewQueryCache() QueryCache
}

// QueryCache caches in memory what queries read from the rows of one open store. Its entries are identified by the
// [View.Version] and not by the position, because a repair changes rows without changing the position.
//
// The fold tells the cache which entries it invalidates ([Batch.QueryCache], [Batch.Version]). It does so before the first
// view of the new version exists. A query with a view therefore finds every change up to the version of its view recorded.
type QueryCache interface {
	// Repaired invalidates all entries for views from this version on, because a repair may have changed any row. It is
	// called before the first view of the version exists.
	Repaired(version uint64)
	// Close is called once, when no new view can be opened. The cache must drop its entries and accept no new ones. Views
	// may still be open.
	Close()
}

// Reader reads the rows of one store at one position. It is implemented by [Batch], which also sees its own writes, and by
// [View].
type Reader interface {
	// Get returns the value of a key. The value is valid until the next call on the reader.
	Get(key []byte) (value []byte, ok bool, err error)
	// Iter returns an iterator over the keys k with lower <= k < upper in ascending order. It is positioned before the first
	// key. Nothing may be written through the reader while the iterator is open.
	Iter(lower, upper []byte) Iterator
}

// Iterator walks over rows in key order. The slices that Key and Value return are valid until the next move.
//
//	it := r.Iter(lower, upper)
//	for it.Next() { use(it.Key(), it.Value()) }
//	return it.Close()
//
// Next and SeekGE return false both at the end of the rows and at a row that cannot be read. A caller must therefore check
// Error, or the result of Close, before it draws a conclusion from having reached the end or uses what it has collected.
type Iterator interface {
	// Next moves to the next row and reports whether there is one. It returns false at the end and after an error.
	Next() bool
	// SeekGE moves to the first row at or after key and reports whether there is one. Next continues from there. It returns false after an
	// error.
	SeekGE(key []byte) bool
	// Key returns the key of the current row.
	Key() []byte
	// Value returns the value of the current row.
	Value() []byte
	// Error returns the first error of the iterator. After an error the iterator does not move anymore.
	Error() error
	// Close releases the iterator and returns its first error. It must be called.
	Close() error
}

// RemoteLookup answers the questions of a query about homes whose partitions the store does not hold. Each projection extends
// it with the questions that its queries ask. A question is about facts of the projection, never about rows.
//
// If an answer is not known yet, RemoteLookup records the question, and the query continues as if the answer were no. The
// caller of the query then fetches the answers to all recorded questions from other nodes, at the position of the view or a
// later one, and runs the query again. The code of a query is therefore the same wherever its rows are, and remote answers
// are fetched in batches instead of one by one.
type RemoteLookup interface {
	// Holds reports whether the store of the query has the rows of a user or item.
	Holds(home string) bool
	// Unresolved reports whether an answer was missing. The result of the query must then be discarded.
	Unresolved() bool
	// Full reports whether enough questions for one batch are recorded. The query then ends early with [ErrUnresolved].
	Full() bool
}

// CacheDropper is implemented by a projection that caches the contents of rows from one event to the next.
type CacheDropper interface {
	// DropCache drops this cache, because a repair has changed rows without the fold. It is never called during Apply.
	DropCache()
}
