package querycache

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/skein-feed/skein/projections"
)

// Set has the entries of one kind beside one open store. The caller chooses the contents of an entry, and the hash that names its owner.
// The package doc says when an entry is valid.
type Set[V any] struct {
	// Seed is that of hashes: a sender of ids that does not know it finds none that meet.
	Seed uint64

	cache       *Cache
	bucketShift uint8
	buckets     []bucket[V]
	// ghosts are the owners that were asked about and have no entry: the high bits of their hash, and how often.
	ghosts []atomic.Uint32
	// hand is the bucket at which the search for what makes room continues.
	clockHand atomic.Uint64
	// making is held while an entry of the stripe is made: nothing is made twice at a time.
	stripes [stripes]struct {
		sync.Mutex
		closed bool
	}
}

// bucket is one line of memory.
type bucket[V any] struct {
	// changed is written by the fold alone.
	changed atomic.Uint64
	// tags has a byte of the hash for each way, so that a line is not read for an entry of another owner.
	tags    atomic.Uint64
	entries [entriesPerBucket]atomic.Pointer[entry[V]]
}

// entry does not change, but for used and what of its value is atomic.
type entry[V any] struct {
	version uint64
	size    uint32
	// used is set by who uses it, and cleared as the hand of the clock goes by.
	recentlyUsed atomic.Uint32
	value        V
}

// EntryBytes is what an entry takes beside its value.
const EntryBytes = 16

// NewSet returns an empty set, for a store that has just been opened.
func NewSet[V any](c *Cache) *Set[V] {
	return &Set[V]{
		Seed: rand.Uint64(), cache: c, bucketShift: uint8(64 - bits.Len64(uint64(c.bucketsPerSet)) + 1),
		buckets: make([]bucket[V], c.bucketsPerSet), ghosts: make([]atomic.Uint32, c.bucketsPerSet*ghostsPerBucket),
	}
}

var _ projections.QueryCache = (*Set[int])(nil)

func (s *Set[V]) bucketOf(hash uint64) *bucket[V] { return &s.buckets[hash>>s.bucketShift] }

func hashTag(hash uint64) byte { return byte(hash >> 8) }

// Changed says that a row of an owner changes with the views of a version. The fold alone calls it, before there is such a view.
func (s *Set[V]) Changed(hash, version uint64) { s.bucketOf(hash).raiseChanged(version) }

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
	for i := range s.stripes {
		s.stripes[i].Lock()
		s.stripes[i].closed = true
		s.stripes[i].Unlock()
	}
	for i := range s.buckets {
		for k := range s.buckets[i].entries {
			s.remove(&s.buckets[i], k, s.buckets[i].entries[k].Load())
		}
	}
}

// Find returns the value of an entry among those of an owner, by what it is of, and whether it answers at a view of a version; nil
// means there is none.
func (s *Set[V]) Find(hash, version uint64, is func(*V) bool) (value *V, answers bool) {
	e, answers := s.bucketOf(hash).find(hash, version, is)
	if e == nil {
		return nil, false
	}
	if answers && e.recentlyUsed.Load() == 0 {
		e.recentlyUsed.Store(1)
	}
	return &e.value, answers
}

func (b *bucket[V]) find(hash, version uint64, is func(*V) bool) (e *entry[V], answers bool) {
	const ones = 0x0000_0101_0101_0101
	other := b.tags.Load() ^ ones*uint64(hashTag(hash))
	// The ways whose byte is 0, and now and then one more.
	for same := (other - ones) &^ other & (ones << 7); same != 0; same &= same - 1 {
		e := b.entries[bits.TrailingZeros64(same)/8].Load()
		if e == nil || !is(&e.value) {
			continue
		}
		// In this order: the entry was loaded before.
		return e, b.changed.Load() <= min(e.version, version)
	}
	return nil, false
}

// Count counts questions about an owner by what answered them: an entry, or rows.
func (s *Set[V]) Count(hash uint64, questions int, hit bool) {
	a := &s.cache.counters[hash%stripes]
	if hit {
		a.hits.Add(uint64(questions))
	} else {
		a.misses.Add(uint64(questions))
	}
}

// MaxAsked is as far as [Set.Asked] counts.
const MaxAsked = 0xff

// Asked counts questions about an owner without an entry, and returns how many there were before. Of the owners of a bucket a few
// are remembered.
func (s *Set[V]) Asked(hash uint64, questions int) int {
	set := s.ghosts[hash>>s.bucketShift*ghostsPerBucket:][:ghostsPerBucket]
	who := uint32(hash>>16) | MaxAsked
	victim := -1
	for i := range set {
		switch last := set[i].Load(); {
		case last|MaxAsked == who && last != 0:
			before := int(last & MaxAsked)
			set[i].Store(who&^MaxAsked | uint32(min(before+questions, MaxAsked)))
			return before
		case last == 0:
			victim = i
		}
	}
	if victim < 0 {
		victim = rand.IntN(ghostsPerBucket)
	}
	set[victim].Store(who&^MaxAsked | uint32(min(questions, MaxAsked)))
	return 0
}

// Make makes an entry of a view of a version and keeps it, instead of the last one of the same, if there is room. fill fills the value
// and returns the bytes that it takes. It is not called, and nil returned, if the entry would not answer at the view, if an
// entry of the stripe is being made, or if the set is closed.
func (s *Set[V]) Make(hash, version uint64, is func(*V) bool, fill func(*V) (bytes int64)) *V {
	b := s.bucketOf(hash)
	if b.changed.Load() > version {
		return nil
	}
	m := &s.stripes[hash%stripes]
	if !m.TryLock() {
		return nil
	}
	defer m.Unlock()
	if m.closed {
		return nil
	}
	e := &entry[V]{version: version}
	s.store(hash, e, is, fill(&e.value)+EntryBytes)
	return &e.value
}

// add stores an entry instead of an older one of the same, if there is one. The stripe is held.
func (s *Set[V]) store(hash uint64, e *entry[V], is func(*V) bool, bytes int64) {
	b := s.bucketOf(hash)
	if last, _ := b.find(hash, 0, is); last != nil {
		if last.version >= e.version {
			return // of a later view: it answers for longer
		}
		for k := range b.entries {
			s.remove(b, k, last)
		}
	}
	if !s.reserve(bytes) {
		return
	}
	e.size = uint32(bytes)
	for range 3 {
		for k := range b.entries {
			if b.entries[k].CompareAndSwap(nil, e) {
				b.setTag(k, hashTag(hash))
				return
			}
		}
		s.evictUnused(b, 1)
	}
	s.cache.used.Add(-bytes)
}

func (b *bucket[V]) setTag(way int, tag byte) {
	for {
		last := b.tags.Load()
		if b.tags.CompareAndSwap(last, last&^(0xff<<(8*way))|uint64(tag)<<(8*way)) {
			return
		}
	}
}

// remove takes an entry out of a way, if it is there.
func (s *Set[V]) remove(b *bucket[V], way int, e *entry[V]) bool {
	if e == nil || !b.entries[way].CompareAndSwap(e, nil) {
		return false
	}
	s.cache.used.Add(-int64(e.size))
	return true
}

// reserve makes room for an entry. It fails if there is none: the entry is too large, or other sets have it.
func (s *Set[V]) reserve(bytes int64) bool {
	c := s.cache
	limit := c.limit.Load()
	if bytes > min(limit/8, math.MaxUint32) {
		return false
	}
	// Once around takes what was not used, twice what was.
	for left := 2*len(s.buckets) + 1; ; {
		used := c.used.Load()
		if used+bytes <= limit {
			if c.used.CompareAndSwap(used, used+bytes) {
				return true
			}
			continue
		}
		if left == 0 {
			return false
		}
		left--
		s.evictUnused(&s.buckets[s.clockHand.Add(1)%uint64(len(s.buckets))], entriesPerBucket)
	}
}

// makeWay takes entries, at most so many, out of a bucket that were not used since it was last called.
func (s *Set[V]) evictUnused(b *bucket[V], most int) {
	for k := 0; k < entriesPerBucket && most > 0; k++ {
		e := b.entries[k].Load()
		switch {
		case e == nil:
		case e.recentlyUsed.Load() != 0:
			e.recentlyUsed.Store(0)
		case s.remove(b, k, e):
			s.cache.evictions.Add(1)
			most--
		}
	}
}
