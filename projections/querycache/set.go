package querycache

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/skein-feed/skein/projections"
)

// Set has the entries of one kind for one open store. The caller chooses what an entry holds, and
// the hash of its owner. The package documentation says when an entry answers. A Set is safe for
// concurrent use, except that only the fold may call MarkChanged and Repaired.
type Set[V any] struct {
	// Seed is a random seed for the caller's hashes. A client that does not know it cannot choose
	// ids whose hashes collide.
	Seed uint64

	cache *Cache
	// bucketShift shifts a hash to the index of its bucket.
	bucketShift uint8
	buckets     []bucket[V]
	// ghosts count the questions about owners that have no entry, ghostsPerBucket for each bucket:
	// 24 bits of the owner's hash, and 8 bits for the number of questions.
	ghosts []atomic.Uint32
	// clockHand is the bucket at which the search for entries to evict continues.
	clockHand atomic.Uint64
	// makeLocks are locked while an entry is made, by the hash of the owner, so that no entry is
	// made twice at a time.
	makeLocks [stripes]struct {
		sync.Mutex
		closed bool
	}
}

// bucket fills one cache line.
type bucket[V any] struct {
	// changed is explained in the package documentation. Only the fold writes it.
	changed atomic.Uint64
	// tags has a byte of the hash for each of entries. It spares reading the entries of other
	// owners, each of which is a cache line of its own.
	tags    atomic.Uint64
	entries [entriesPerBucket]atomic.Pointer[entry[V]]
}

// entry does not change after it was stored, except for recentlyUsed and the atomic fields of its
// value.
type entry[V any] struct {
	// version is the version of the view from which the entry was made.
	version uint64
	size    uint32
	// recentlyUsed is set to 1 by a query that uses the entry, and to 0 when the clock hand passes.
	recentlyUsed atomic.Uint32
	value        V
}

// EntryBytes is the memory that an entry takes in addition to its value.
const EntryBytes = 16

// NewSet returns an empty set for a store that has just been opened.
func NewSet[V any](c *Cache) *Set[V] {
	return &Set[V]{
		Seed:        rand.Uint64(),
		cache:       c,
		bucketShift: uint8(64 - bits.Len64(uint64(c.bucketsPerSet)) + 1),
		buckets:     make([]bucket[V], c.bucketsPerSet),
		ghosts:      make([]atomic.Uint32, c.bucketsPerSet*ghostsPerBucket),
	}
}

var _ projections.QueryCache = (*Set[int])(nil)

func (s *Set[V]) bucketOf(hash uint64) *bucket[V] { return &s.buckets[hash>>s.bucketShift] }

// hashTag returns the byte of a hash that is kept in tags.
func hashTag(hash uint64) byte { return byte(hash >> 8) }

// MarkChanged records that a row of an owner changes with the views of a version. Only the fold may
// call it, and only before there is such a view.
func (s *Set[V]) MarkChanged(hash, version uint64) { s.bucketOf(hash).raiseChanged(version) }

// raiseChanged needs no compare-and-swap, because only the fold writes changed.
func (b *bucket[V]) raiseChanged(version uint64) {
	if b.changed.Load() < version {
		b.changed.Store(version)
	}
}

// Repaired is part of [projections.QueryCache].
func (s *Set[V]) Repaired(version uint64) {
	for i := range s.buckets {
		s.buckets[i].raiseChanged(version)
	}
}

// Close is part of [projections.QueryCache].
func (s *Set[V]) Close() {
	// Wait for entries that are being made, and refuse new ones. After that no entry can be stored.
	for i := range s.makeLocks {
		s.makeLocks[i].Lock()
		s.makeLocks[i].closed = true
		s.makeLocks[i].Unlock()
	}

	for i := range s.buckets {
		b := &s.buckets[i]
		for k := range b.entries {
			s.remove(b, k, b.entries[k].Load())
		}
	}
}

// Find returns the value of an entry of the owner with this hash. isWanted tells the wanted entry
// from others. answers reports whether the entry answers at a view of the version. value is nil if
// there is no entry.
func (s *Set[V]) Find(hash, version uint64, isWanted func(*V) bool) (value *V, answers bool) {
	e, answers := s.bucketOf(hash).find(hash, version, isWanted)
	if e == nil {
		return nil, false
	}
	// Readers write recentlyUsed only if it changes, so that they do not compete for the cache
	// line.
	if answers && e.recentlyUsed.Load() == 0 {
		e.recentlyUsed.Store(1)
	}
	return &e.value, answers
}

func (b *bucket[V]) find(hash, version uint64, isWanted func(*V) bool) (e *entry[V], answers bool) {
	// Compare all six tags at once. different has a zero byte for each equal tag; matches has the
	// high bit of these bytes, and rarely that of one more.
	const ones = 0x0000_0101_0101_0101
	different := b.tags.Load() ^ ones*uint64(hashTag(hash))
	matches := (different - ones) &^ different & (ones << 7)

	for ; matches != 0; matches &= matches - 1 { // clear the lowest bit
		e := b.entries[bits.TrailingZeros64(matches)/8].Load()
		if e == nil || !isWanted(&e.value) {
			continue
		}
		// changed must be loaded after the entry (see the package documentation).
		return e, b.changed.Load() <= min(e.version, version)
	}
	return nil, false
}

// Count adds questions about an owner to the statistics. hit says that an entry answered them, and
// not rows.
func (s *Set[V]) Count(hash uint64, questions int, hit bool) {
	counters := &s.cache.questions[hash%stripes]
	if hit {
		counters.hits.Add(uint64(questions))
	} else {
		counters.misses.Add(uint64(questions))
	}
}

// MaxUnanswered is the largest number to which [Set.CountUnanswered] counts.
const MaxUnanswered = 0xff

// CountUnanswered adds to the number of questions about an owner without an entry, and returns how
// many there were before. It remembers only a few owners for each bucket, and forgets others at
// random.
func (s *Set[V]) CountUnanswered(hash uint64, questions int) int {
	first := hash >> s.bucketShift * ghostsPerBucket
	ghosts := s.ghosts[first:][:ghostsPerBucket]

	// The owner is in the high 24 bits of a ghost. Setting the low bits makes ghosts comparable
	// whatever their number is.
	owner := uint32(hash>>16) | MaxUnanswered
	free := -1
	for i := range ghosts {
		ghost := ghosts[i].Load()
		if ghost == 0 {
			free = i
			continue
		}
		if ghost|MaxUnanswered == owner {
			before := int(ghost & MaxUnanswered)
			ghosts[i].Store(owner&^MaxUnanswered | uint32(min(before+questions, MaxUnanswered)))
			return before
		}
	}

	if free < 0 {
		free = rand.IntN(ghostsPerBucket)
	}
	ghosts[free].Store(owner&^MaxUnanswered | uint32(min(questions, MaxUnanswered)))
	return 0
}

// Make makes an entry from a view of the version and stores it, if there is room, instead of an
// older entry for which isWanted is true. fill must fill the value and return the bytes that it
// takes. Make returns nil without calling fill if the entry would not answer at the view, if
// another entry with the same lock is being made, or if the set is closed.
func (s *Set[V]) Make(
	hash, version uint64, isWanted func(*V) bool, fill func(*V) (bytes int64),
) *V {
	if s.bucketOf(hash).changed.Load() > version {
		return nil
	}

	lock := &s.makeLocks[hash%stripes]
	if !lock.TryLock() { // a query that would have to wait reads its rows instead
		return nil
	}
	defer lock.Unlock()
	if lock.closed {
		return nil
	}

	e := &entry[V]{version: version}
	size := fill(&e.value) + EntryBytes
	s.store(hash, e, isWanted, size)
	return &e.value
}

// store stores an entry, if there is room, instead of an older one. The caller holds the lock for
// the hash.
func (s *Set[V]) store(hash uint64, e *entry[V], isWanted func(*V) bool, size int64) {
	b := s.bucketOf(hash)
	if last, _ := b.find(hash, 0, isWanted); last != nil {
		if last.version >= e.version {
			return // the stored entry is from a later view, and so answers for longer
		}
		for k := range b.entries {
			s.remove(b, k, last)
		}
	}

	if !s.reserve(size) {
		return
	}
	e.size = uint32(size)

	// Other entries may take the place that is freed, so try a few times.
	for range 3 {
		for k := range b.entries {
			if b.entries[k].CompareAndSwap(nil, e) {
				b.setTag(k, hashTag(hash))
				return
			}
		}
		s.evictUnused(b, 1)
	}
	s.cache.used.Add(-size)
}

func (b *bucket[V]) setTag(index int, tag byte) {
	shift := 8 * index
	for {
		last := b.tags.Load()
		tags := last&^(0xff<<shift) | uint64(tag)<<shift
		if b.tags.CompareAndSwap(last, tags) {
			return
		}
	}
}

// remove removes an entry if it is at the index. It reports whether it has removed the entry.
func (s *Set[V]) remove(b *bucket[V], index int, e *entry[V]) bool {
	if e == nil || !b.entries[index].CompareAndSwap(e, nil) {
		return false
	}
	s.cache.used.Add(-int64(e.size))
	return true
}

// reserve adds to the used bytes of the cache, and evicts entries of this set until the limit
// allows that. It returns false if the entry is too large, or if other sets use the memory.
func (s *Set[V]) reserve(size int64) bool {
	c := s.cache
	limit := c.limit.Load()
	if size > min(limit/8, math.MaxUint32) { // no entry may displace most others, and entry.size has 32 bits
		return false
	}

	// The first time around, the clock hand removes entries that were not used; the second time,
	// those that were.
	steps := 2*len(s.buckets) + 1
	for {
		used := c.used.Load()
		if used+size <= limit {
			if c.used.CompareAndSwap(used, used+size) {
				return true
			}
			continue
		}

		if steps == 0 {
			return false
		}
		steps--
		hand := s.clockHand.Add(1) % uint64(len(s.buckets))
		s.evictUnused(&s.buckets[hand], entriesPerBucket)
	}
}

// evictUnused removes up to n entries of a bucket that were not used since it was last called for
// the bucket.
func (s *Set[V]) evictUnused(b *bucket[V], n int) {
	for k := 0; k < entriesPerBucket && n > 0; k++ {
		e := b.entries[k].Load()
		switch {
		case e == nil:
		case e.recentlyUsed.Load() != 0:
			e.recentlyUsed.Store(0)
		case s.remove(b, k, e):
			s.cache.evictions.Add(1)
			n--
		}
	}
}
