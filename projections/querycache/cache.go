package querycache

import (
	"math/bits"
	"sync/atomic"
)

// Cache bounds what the sets of a process keep, and counts. It may be shared by all stores and their generations; each has sets of its
// own. It is safe for concurrent use.
type Cache struct {
	// limit bounds used: the bytes of the entries of all sets.
	limit, used atomic.Int64
	// buckets is how many each set has.
	bucketsPerSet int

	evictions atomic.Uint64
	// asked counts apart what different owners are asked about: one counter would be the busiest line of memory.
	counters [stripes]questionCounters
}

type questionCounters struct {
	hits, misses atomic.Uint64
	_            [48]byte // a line of its own
}

// DefaultBytes are enough for the follows of some hundred thousand users who follow ten, or ten thousand who follow two hundred.
const DefaultBytes = 64 << 20

// Stats count questions by what answered them, and entries that made room for others.
type Stats struct {
	// Hits were answered from memory, Misses from rows.
	Hits, Misses, Evictions uint64
	// Bytes is what the entries take at the moment.
	Bytes int64
}

const (
	stripes = 16
	// ways is how many entries a bucket has room for.
	entriesPerBucket = 6
	// ghosts is how many owners that have no entry are remembered for each bucket.
	ghostsPerBucket = 4
	// bucketBytes is what of the bound there is a bucket for, in each set: most entries are smaller than the ways have room for.
	bucketBytes = 2 << 10
	// maxSets is how many sets share a cache: one of graph and two of inbox, while both are rebuilt.
	maxSets = 6
)

// New returns a cache of so many bytes, of which the tables of [maxSets] sets take 23 % at most; nil, which keeps nothing, if that is
// not enough for a bucket in each.
func New(bytes int64) *Cache {
	if bytes < maxSets*bucketBytes {
		return nil
	}
	c := &Cache{bucketsPerSet: 1 << (bits.Len64(uint64(bytes/bucketBytes)) - 1)}
	c.limit.Store(bytes - maxSets*int64(c.bucketsPerSet)*(64+4*ghostsPerBucket))
	return c
}

// Bound returns what the entries of all sets may take, in bytes.
func (c *Cache) Bound() int64 { return c.limit.Load() }

// Charge counts bytes that the caller keeps beside the sets against the bound, or, if they are negative, no longer. The caller
// bounds them; sets make room for them as they add entries.
func (c *Cache) Charge(bytes int64) { c.used.Add(bytes) }

// Stats returns the counts. Of a nil cache they are 0.
func (c *Cache) Stats() (s Stats) {
	if c == nil {
		return s
	}
	for i := range c.counters {
		s.Hits += c.counters[i].hits.Load()
		s.Misses += c.counters[i].misses.Load()
	}
	s.Evictions, s.Bytes = c.evictions.Load(), c.used.Load()
	return s
}
