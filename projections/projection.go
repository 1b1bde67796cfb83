package projections

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// Projection defines one set of rows as a pure fold of the log: which events it reads, and which
// rows each event changes. The home of a row is the user or item to which the row belongs; the
// other rows belong to the store as a whole.
type Projection interface {
	// Name returns the name of the projection, such as "graph". The directory of its stores has
	// this name, and their fingerprints contain it. A name is never reused for another projection.
	Name() string
	// Version returns the version of the fold. A change of the fold must raise it, and stores that
	// were built with another version must then be rebuilt from the log.
	Version() uint32
	// Kinds returns the kinds of events that the projection reads. They are part of the fingerprint
	// of its stores.
	Kinds() []events.Kind
	// Route adds to partitions the partition of every home whose rows the event may change. It
	// decides by the event alone. A store that holds none of these partitions does not apply the
	// event. It calls Route only with events of Kinds.
	Route(ev *events.Event, partitions *events.Partitions)
	// Apply folds one event of Kinds. The event is well-formed, because the store does not pass on
	// malformed events. Apply is pure: it reads only ev and b, and writes only through b (I1, I4).
	// It reads and writes only rows of homes that b holds and rows of the store as a whole (I13).
	//
	// After a crash within Apply, the store calls Apply with the same event once more. The rows
	// then contain what the first call wrote before its last [Batch.Step] that committed. Apply
	// must still produce the rows of a single call.
	//
	// An error stops the projection. Apply returns an error only if rows are corrupt or b has
	// returned an error.
	Apply(ev events.Event, b *Batch) error
}

// SettingsProvider is implemented by a projection whose fold depends on settings.
type SettingsProvider interface {
	// Settings returns the value of each setting by its name. The settings are part of the
	// fingerprint: the program refuses to open a store that was built with other values (I4).
	Settings() map[string]string
}

// ClockTicker is implemented by a projection whose rows also change because log time passes, such
// as rows that expire.
type ClockTicker interface {
	// Tick is called before each event of [Projection.Kinds], even if the store holds none of the
	// partitions of its route. now is the time at which the log received the event. Tick is as pure
	// as Apply. A build leaves out some calls, so several calls in a row must have the same effect
	// as the last of them alone.
	Tick(now events.Micros, b *Batch) error
}

// VersionReader is implemented by a projection whose queries can read rows that earlier versions of
// its fold wrote. After a change of the version, its old store answers queries until the rebuild
// ends, but folds no more events, so the answers stay at the last position of that store. A
// projection that does not implement VersionReader answers no queries during this time.
type VersionReader interface {
	// CanRead reports whether the queries can read the rows of a store that was built with this
	// fingerprint.
	CanRead(built Fingerprint) bool
}

// MergerProvider is implemented by a projection that writes with [Batch.Merge].
type MergerProvider interface {
	// Merger returns the merger of the projection. Pebble stores the name of the merger in its
	// files and does not open them with a merger of another name. So if the result of merging
	// changes, the name must change, too.
	Merger() Merger
}

// Merger merges the values that were written to one key into one value.
//
// Merging must be associative: merge(a, merge(b, c)) equals merge(merge(a, b), c), byte by byte.
// Pebble merges adjacent values in flushes, compactions and reads, in any grouping, but never
// changes their order. Two builds of a store group the values differently and must still have the
// same rows (I4).
type Merger struct {
	// Name identifies the merger in the files of Pebble.
	Name string
	// Merge appends the merged value of the key to dst and returns the extended slice. There are at
	// least two values, oldest first. After an error, reads of the key return an
	// [UnreadableRowError].
	Merge func(dst, key []byte, values [][]byte) ([]byte, error)
}

// UnreadableRowError is returned for a row whose values cannot be merged. It wraps [ErrCorrupt].
type UnreadableRowError struct {
	Key []byte
	// Err is the error of the merger.
	Err error
}

// Error returns a message that contains the key in hexadecimal.
func (e *UnreadableRowError) Error() string {
	return fmt.Sprintf("%v: key %x: %v", ErrCorrupt, e.Key, e.Err)
}

// Unwrap returns [ErrCorrupt] and the error of the merger.
func (e *UnreadableRowError) Unwrap() []error { return []error{ErrCorrupt, e.Err} }

// IteratedOnly is implemented by a projection that reads the rows of some tags, such as the entries
// of lists, only with iterators and not with Get. The Bloom filters of Pebble's tables leave these
// rows out, which saves 10 bits per row. Get still finds such a row, but more slowly.
type IteratedOnly interface {
	// IteratedTags returns the tags whose rows are only iterated.
	IteratedTags() []Tag
}

// QueryCacher is implemented by a projection whose queries cache in memory what they read from
// rows.
type QueryCacher interface {
	// NewQueryCache returns an empty cache for one open store, or nil if queries of this store are
	// not to be cached. The store closes the cache.
	NewQueryCache() QueryCache
}

// QueryCache caches in memory what queries read from the rows of one open store. It identifies the
// rows by the version of a view ([View.Version]). The position would not do, because a repair
// changes rows without changing the position.
//
// A fold that changes rows gets the cache from [Batch.QueryCache] and invalidates the entries of
// these rows, beginning with the version that [Batch.Version] returns. No view of that version
// exists yet. A query therefore finds every invalidation up to the version of its own view in the
// cache.
type QueryCache interface {
	// Repaired invalidates all entries for views of this version and later ones, because a repair
	// may have changed any row. It is called before the first view of the version exists.
	Repaired(version uint64)
	// Close is called once, when no new view can be opened; some views may still be open. The cache
	// must drop its entries and accept no new ones.
	Close()
}

// Reader reads the rows of one store at one position. [Batch] and [View] implement it. A batch also
// shows its own writes.
type Reader interface {
	// Get returns the value of a key; ok is false if there is no such row. The value is valid until
	// the next call of a method of the reader.
	Get(key []byte) (value []byte, ok bool, err error)
	// Iter returns an iterator over the keys k with lower <= k < upper in ascending order. A nil
	// bound is no limit. The iterator is positioned before the first key. A fold must not write to
	// its batch while an iterator is open.
	Iter(lower, upper []byte) Iterator
}

// Iterator iterates over rows in key order. The slices that Key and Value return are valid until
// the next call of Next, SeekGE or Close.
//
//	it := r.Iter(lower, upper)
//	for it.Next() { use(it.Key(), it.Value()) }
//	return it.Close()
//
// Next and SeekGE return false both at the end of the rows and at a row that cannot be read. A
// caller must therefore check the result of Error or Close before it uses what it has collected.
type Iterator interface {
	// Next moves to the next row and reports whether there is one. It returns false at the end and
	// after an error.
	Next() bool
	// SeekGE moves to the first row whose key is not less than key, and reports whether there is
	// one. Next continues from there. SeekGE returns false after an error.
	SeekGE(key []byte) bool
	// Key returns the key of the current row.
	Key() []byte
	// Value returns the value of the current row.
	Value() []byte
	// Error returns the first error of the iterator. After an error the iterator does not move
	// anymore.
	Error() error
	// Close releases the iterator and returns its first error. It must be called.
	Close() error
}

// RemoteLookup answers the questions of a query about homes whose partitions the store does not
// hold. Each projection extends the interface with a method for each question that its queries ask,
// such as whether one user follows another.
//
// If RemoteLookup does not know an answer yet, it records the question, and the query continues
// with the zero value. The caller of the query then discards the result, fetches the answers to all
// recorded questions from other nodes, at the position of the view or a later one, and runs the
// query again. So the answers come in batches instead of one by one, and the code of a query does
// not depend on where its rows are.
type RemoteLookup interface {
	// Holds reports whether the store of the query holds the partition of a user or item. The query
	// then reads the rows.
	Holds(home string) bool
	// Unresolved reports whether a question was recorded. The result of the query must then be
	// discarded.
	Unresolved() bool
	// Full reports whether enough questions for one batch are recorded. The query should then
	// return [ErrUnresolved].
	Full() bool
}

// CacheDropper is implemented by a projection that caches the contents of rows from one event to
// the next.
type CacheDropper interface {
	// DropCache drops the cached contents, because a repair has changed rows without a call of
	// Apply. It is never called during Apply.
	DropCache()
}
