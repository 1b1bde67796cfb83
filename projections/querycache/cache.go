package querycache

import (
	"math/bits"
	"sync/atomic"
)

// Cache limits the memory of all sets of a process, and counts what they answer. All stores and
// their generations may share one Cache; each store has sets of its own. It is safe for concurrent
// use.
type Cache struct {
	// limit is the largest value of used, which is the bytes of the entries of all sets.
	limit, used atomic.Int64
	// bucketsPerSet is the number of buckets of each set. It is a power of two.
	bucketsPerSet int

	evictions atomic.Uint64
	// questions counts questions in several places, by the hash of the owner. A single counter
	// would be a cache line for which all processors compete.
	questions [stripes]questionCounters
}

type questionCounters struct {
	hits, misses atomic.Uint64
	_            [48]byte // fills a cache line of 64 bytes
}

// DefaultBytes is the default size of a cache. It is enough for the follows of some hundred
// thousand users who follow ten, or ten thousand who follow two hundred.
const DefaultBytes = 64 << 20

// Stats are statistics of a cache.
type Stats struct {
	// Hits counts the questions answered from memory, Misses those answered from rows, and
	// Evictions the entries that were removed to make room for others.
	Hits, Misses, Evictions uint64
	// Bytes is the memory that the entries take now.
	Bytes int64
}

const (
	// stripes is the number of question counters, and of locks of a set.
	stripes = 16
	// entriesPerBucket is chosen so that a bucket fills a cache line: six pointers and two other
	// words.
	entriesPerBucket = 6
	// ghostsPerBucket is how many owners without an entry are remembered for each bucket.
	ghostsPerBucket = 4
	// bytesPerBucket is how many bytes of the cache's size there are for each bucket of a set. A
	// bucket has room for more, because most entries are small.
	bytesPerBucket = 2 << 10
	// maxSets is how many sets share a cache: one of graph and two of inbox, and the same again
	// while both are rebuilt.
	maxSets = 6
)

// New returns a cache that takes at most the given number of bytes. The tables of [maxSets] sets
// take up to 23 % of them. It returns nil, which caches nothing, if the bytes are not enough for
// one bucket in each set.
func New(bytes int64) *Cache {
	if bytes < maxSets*bytesPerBucket {
		return nil
	}

	c := &Cache{bucketsPerSet: 1 << (bits.Len64(uint64(bytes/bytesPerBucket)) - 1)}
	const tableBytesPerBucket = 64 + 4*ghostsPerBucket
	c.limit.Store(bytes - maxSets*int64(c.bucketsPerSet)*tableBytesPerBucket)
	return c
}

// Limit returns how many bytes the entries of all sets may take.
func (c *Cache) Limit() int64 { return c.limit.Load() }

// Charge counts memory of the caller against the limit, or, if bytes is negative, no longer counts
// it. The caller limits that memory on its own. Sets evict entries to make room for it when they
// add entries.
func (c *Cache) Charge(bytes int64) { c.used.Add(bytes) }

// Stats returns the statistics. They are all 0 for a nil cache.
func (c *Cache) Stats() (s Stats) {
	if c == nil {
		return s
	}
	for i := range c.questions {
		s.Hits += c.questions[i].hits.Load()
		s.Misses += c.questions[i].misses.Load()
	}
	s.Evictions = c.evictions.Load()
	s.Bytes = c.used.Load()
	return s
}
