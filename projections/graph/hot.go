package graph

import (
	"math/bits"
	"math/rand/v2" //nolint:depguard // it decides what is kept in memory, and no row
	"sync"
	"sync/atomic"

	"github.com/skein-feed/skein/projections"
)

// HotCache bounds what the stores of a process keep decoded of the users that are asked about again and again, and counts.
// It may be shared by generations of the graph and of what embeds it; each has entries of its own. It is safe for concurrent use.
type HotCache struct {
	// limit bounds used: the bytes of the entries of all stores.
	limit, used atomic.Int64
	// fixed is what the tables of one store take.
	fixed   int64
	buckets int

	evictions atomic.Uint64
	// asked counts apart what different users are asked about: one counter would be the busiest line of memory.
	asked [hotStripes]hotAsked
}

type hotAsked struct {
	hits, misses atomic.Uint64
	_            [48]byte // a line of its own
}

// DefaultHotBytes are enough for some hundred thousand users who follow ten, or ten thousand who follow two hundred.
const DefaultHotBytes = 64 << 20

// HotStats count questions about a user by who answered them, and entries that made room for others.
type HotStats struct {
	// Hits were answered from memory, Misses from rows.
	Hits, Misses, Evictions uint64
	// Bytes is what the entries take at the moment.
	Bytes int64
}

const (
	hotStripes = 16
	// hotWays is how many entries a bucket has room for.
	hotWays = 6
	// hotGhosts is how many users that have no entry are remembered for each bucket.
	hotGhosts = 4
	// bucketBytes is what of the bound there is a bucket for, in each of hotSets: most entries are smaller than the ways have room for.
	bucketBytes = 2 << 10
	// hotSets is how many stores share a cache: those of graph and inbox, while both are rebuilt.
	hotSets = 4
	// maxHotEdges is how many edges a user may have who is kept.
	maxHotEdges = 1 << 14
	// rowsAMiss is how many rows may be read to make an entry for every question that it would have answered: as long as
	// there were fewer, to go on reading single rows costs less.
	rowsAMiss = 16
)

// NewHotCache returns a cache of so many bytes, of which [hotSets] generations take 16 % for tables; nil, which keeps nothing, if
// that is not enough for one bucket.
func NewHotCache(bytes int64) *HotCache {
	if bytes < hotSets*bucketBytes {
		return nil
	}
	c := &HotCache{buckets: 1 << (bits.Len64(uint64(bytes/bucketBytes)) - 1)}
	c.fixed = int64(c.buckets) * (64 + 4*hotGhosts)
	c.limit.Store(bytes - hotSets*c.fixed)
	return c
}

// Stats returns the counts. Of a nil cache they are 0.
func (c *HotCache) Stats() (s HotStats) {
	if c == nil {
		return s
	}
	for i := range c.asked {
		s.Hits += c.asked[i].hits.Load()
		s.Misses += c.asked[i].misses.Load()
	}
	s.Evictions, s.Bytes = c.evictions.Load(), c.used.Load()
	return s
}

// hotSet are the entries of one open store. What decides which answer is right:
//
//   - A bucket says in changed the version of the last views that may have another row of one of its users than the views
//     before. An entry was made from a view of version e, and a question is asked at a view of version v. The entry
//     answers if changed ≤ min(e, v): nothing of its users changed between the two.
//   - The fold raises changed while no view of the version that it names exists: before it is published. Publishing is an
//     atomic store, and taking a view an atomic load of what was stored. So whoever has a view of version v finds changed
//     at v or above, if v brought a change.
//   - Who asks has a view of version v, then loads the entry, then changed. Who made the entry had a view of version e
//     before the entry was stored. So changed is loaded after all changes up to max(e, v) were named: if it is not above
//     min(e, v), no change lies between.
//
// What comes later than the load of changed is of a version above v, and no concern of a view of version v. Versions
// rise with every view of other rows, so a repair, which changes no position, is named like a change.
//
// Entries and users are compared by their ids, never by hash alone. What is in tags, ghosts and used may be anything: it
// decides what is kept, and never what is answered.
type hotSet struct {
	cache   *HotCache
	seed    uint64
	shift   uint8
	buckets []hotBucket
	// ghosts are the users that were asked about and have no entry: the high bits of their hash, and how often.
	ghosts []atomic.Uint32
	// hand is the bucket at which the search for what makes room goes on.
	hand atomic.Uint64
	// making is held by who makes or stores an entry of the stripe: nothing is made twice at a time.
	making [hotStripes]struct {
		sync.Mutex
		closed bool
	}
}

// hotBucket is one line of memory.
type hotBucket struct {
	// changed is written by the fold alone.
	changed atomic.Uint64
	// tags has a byte of the hash for each way, so that a line is not read for an entry that is of another user.
	tags atomic.Uint64
	ways [hotWays]atomic.Pointer[hotEntry]
}

func (c *HotCache) newSet() *hotSet {
	return &hotSet{
		cache: c, seed: rand.Uint64(), shift: uint8(64 - bits.Len64(uint64(c.buckets)) + 1),
		buckets: make([]hotBucket, c.buckets), ghosts: make([]atomic.Uint32, c.buckets*hotGhosts),
	}
}

var _ projections.Hot = (*hotSet)(nil)

func (s *hotSet) bucket(hash uint64) *hotBucket { return &s.buckets[hash>>s.shift] }

func (s *hotSet) stripe(hash uint64) int { return int(hash % hotStripes) }

func tagOf(hash uint64) byte { return byte(hash >> 8) }

// touched says that a row of a user changes with the views of a version. The fold alone calls it, see [hotSet].
func (s *hotSet) touched(user string, version uint64) {
	if id, ok := hotIDOf(user, s.seed); ok {
		s.bucket(id.hash).touched(version)
	}
}

func (b *hotBucket) touched(version uint64) {
	if b.changed.Load() < version {
		b.changed.Store(version)
	}
}

// Mended is part of [projections.Hot].
func (s *hotSet) Mended(version uint64) {
	for i := range s.buckets {
		s.buckets[i].touched(version)
	}
}

// Close is part of [projections.Hot].
func (s *hotSet) Close() {
	for i := range s.making {
		s.making[i].Lock()
		s.making[i].closed = true
		s.making[i].Unlock()
	}
	for i := range s.buckets {
		for k := range s.buckets[i].ways {
			s.remove(&s.buckets[i], k, s.buckets[i].ways[k].Load())
		}
	}
}

// find returns the entry of a user, and whether it answers at a view of a version; nil: there is none.
func (s *hotSet) find(id *hotID, version uint64) (e *hotEntry, answers bool) {
	const ones = 0x0000_0101_0101_0101
	b := s.bucket(id.hash)
	other := b.tags.Load() ^ ones*uint64(tagOf(id.hash))
	// The ways whose byte is 0, and now and then one more.
	for same := (other - ones) &^ other & (ones << 7); same != 0; same &= same - 1 {
		e := b.ways[bits.TrailingZeros64(same)/8].Load()
		if e == nil || !e.is(id) {
			continue
		}
		// In this order: the entry was loaded before.
		return e, b.changed.Load() <= min(e.version, version)
	}
	return nil, false
}

// seen counts questions about a user without an entry, and returns how many there were before. Of the users of a bucket so
// many are remembered.
func (s *hotSet) seen(id *hotID, questions int) int {
	ghosts := s.ghosts[id.hash>>s.shift*hotGhosts:][:hotGhosts]
	who := uint32(id.hash>>16) | 0xff
	place := -1
	for i := range ghosts {
		switch last := ghosts[i].Load(); {
		case last|0xff == who && last != 0:
			before := int(last & 0xff)
			ghosts[i].Store(who&^0xff | uint32(min(before+questions, 0xff)))
			return before
		case last == 0:
			place = i
		}
	}
	if place < 0 {
		place = rand.IntN(hotGhosts)
	}
	ghosts[place].Store(who&^0xff | uint32(min(questions, 0xff)))
	return 0
}

// add stores an entry in the place of an older one of the user, if there is one. The stripe is held.
func (s *hotSet) add(id *hotID, e *hotEntry) {
	b := s.bucket(id.hash)
	if last, _ := s.find(id, 0); last != nil {
		if last.version >= e.version {
			return // of a later view: it answers for longer
		}
		for k := range b.ways {
			s.remove(b, k, last)
		}
	}
	if !s.reserve(e.bytes()) {
		return
	}
	for range 3 {
		for k := range b.ways {
			if b.ways[k].CompareAndSwap(nil, e) {
				b.tag(k, tagOf(id.hash))
				return
			}
		}
		s.makeWay(b, 1)
	}
	s.cache.used.Add(-e.bytes())
}

func (b *hotBucket) tag(way int, tag byte) {
	for {
		last := b.tags.Load()
		if b.tags.CompareAndSwap(last, last&^(0xff<<(8*way))|uint64(tag)<<(8*way)) {
			return
		}
	}
}

// remove takes an entry out of a way, if it is there.
func (s *hotSet) remove(b *hotBucket, way int, e *hotEntry) bool {
	if e == nil || !b.ways[way].CompareAndSwap(e, nil) {
		return false
	}
	s.cache.used.Add(-e.bytes())
	return true
}

// reserve makes room for an entry. It fails if there is none: the entry is too large, or others have it.
func (s *hotSet) reserve(bytes int64) bool {
	c := s.cache
	limit := c.limit.Load()
	if bytes > limit/8 {
		return false
	}
	// Once around takes what nobody uses, twice what somebody does.
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
		s.makeWay(&s.buckets[s.hand.Add(1)%uint64(len(s.buckets))], hotWays)
	}
}

// makeWay takes entries, at most so many, out of a bucket that were not used since it was last called.
func (s *hotSet) makeWay(b *hotBucket, most int) {
	for k := 0; k < hotWays && most > 0; k++ {
		e := b.ways[k].Load()
		switch {
		case e == nil:
		case e.used.Load() != 0:
			e.used.Store(0)
		case s.remove(b, k, e):
			s.cache.evictions.Add(1)
			most--
		}
	}
}
