package graph

import (
	"math/bits"
	"sync/atomic"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/querycache"
)

// cacheValue is what an edge says: since when, and a set of bits. 0: nothing.
type cacheValue uint64

const (
	cachedExplicit cacheValue = 1 << iota
	cachedImplicit
	cachedBoards
	cachedBlocking
	cachedBlockedBy
	cachedMuting
	cachedHidingRepins
)

const (
	// cacheSinceShift is how many bits there are.
	cacheSinceShift = 7
	// maxCacheSince bounds the times that there is room for: up to the year 6500.
	maxCacheSince events.Micros = 1<<(64-cacheSinceShift) - 1
)

// cacheValueOf packs what an edge says. It is not ok where there is no room for the time.
func cacheValueOf(e *edge) (v cacheValue, ok bool) {
	f := e.follows()
	switch f.Kind {
	case Explicit:
		v = cachedExplicit
	case Implicit:
		v = cachedImplicit
	}
	for _, b := range [...]struct {
		is  bool
		bit cacheValue
	}{
		{e.boards, cachedBoards},
		{e.block.holds(), cachedBlocking},
		{e.blockedBy.holds(), cachedBlockedBy},
		{e.mute.holds(), cachedMuting},
		{e.repins.holds(), cachedHidingRepins},
	} {
		if b.is {
			v |= b.bit
		}
	}
	return v | cacheValue(f.Since)<<cacheSinceShift, f.Since >= 0 && f.Since <= maxCacheSince
}

func (v cacheValue) has(bit cacheValue) bool { return v&bit != 0 }

func (v cacheValue) follow() Follow {
	switch {
	case v.has(cachedExplicit):
		return Follow{Explicit, events.Micros(v >> cacheSinceShift)}
	case v.has(cachedImplicit):
		return Follow{Implicit, events.Micros(v >> cacheSinceShift)}
	}
	return Follow{}
}

// cacheEntry is what all edges of one user say, as the views of one version show it. An edge that says nothing is not in it. With
// what the cache adds it takes one line of memory.
type cacheEntry struct {
	num uint64
	// nums are the edges to users whose ids are numbers: open addressing, value 0: free. One at least is.
	nums []cacheSlot
	// rest is nil where all ids are numbers, the user's own too.
	rest *cacheTexts
	// missed counts the questions since it cannot answer any more. All else does not change.
	missed atomic.Uint32
	// bypass says that the user has more edges than fit, and that the entry has none of them.
	bypass bool
}

type cacheSlot struct {
	id    uint64
	value cacheValue
}

type cacheTexts struct {
	text  string
	slots []cacheTextSlot
}

type cacheTextSlot struct {
	hash  uint64
	id    string
	value cacheValue
}

// is reports whether the entry is that of a user.
func (e *cacheEntry) is(id *cacheID) bool {
	if e.rest == nil {
		return id.text == "" && e.num == id.num
	}
	return e.rest.text == id.text && e.num == id.num
}

// find returns what the edge to a user says.
func (e *cacheEntry) find(id *cacheID) cacheValue {
	if id.text != "" {
		return e.findText(id)
	}
	n := uint64(len(e.nums))
	if n == 0 {
		return 0
	}
	for i, _ := bits.Mul64(id.hash, n); ; {
		s := &e.nums[i]
		if s.id == id.num || s.value == 0 {
			return s.value
		}
		if i++; i == n {
			i = 0
		}
	}
}

func (e *cacheEntry) findText(id *cacheID) cacheValue {
	if e.rest == nil || len(e.rest.slots) == 0 {
		return 0
	}
	n := uint64(len(e.rest.slots))
	for i, _ := bits.Mul64(id.hash, n); ; {
		s := &e.rest.slots[i]
		if s.value == 0 || s.hash == id.hash && s.id == id.text {
			return s.value
		}
		if i++; i == n {
			i = 0
		}
	}
}

// cacheEdge is an edge on its way into an entry.
type cacheEdge struct {
	id    cacheID
	value cacheValue
}

// fill packs the edges of a user into an empty entry. No id stands in them twice.
func (e *cacheEntry) fill(id *cacheID, edges []cacheEdge) {
	e.num = id.num
	texts := 0
	for i := range edges {
		if edges[i].id.text != "" {
			texts++
		}
	}
	if texts > 0 || id.text != "" {
		e.rest = &cacheTexts{text: id.text}
	}
	// Three slots of five are taken: a lookup meets a free one soon.
	if n := len(edges) - texts; n > 0 {
		e.nums = make([]cacheSlot, n*5/3+1)
	}
	if texts > 0 {
		e.rest.slots = make([]cacheTextSlot, texts*5/3+1)
	}
	for i := range edges {
		if b := &edges[i]; b.id.text == "" {
			e.addNumber(b)
		} else {
			e.addText(b)
		}
	}
}

func (e *cacheEntry) addNumber(b *cacheEdge) {
	n := uint64(len(e.nums))
	i, _ := bits.Mul64(b.id.hash, n)
	for e.nums[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.nums[i] = cacheSlot{b.id.num, b.value}
}

func (e *cacheEntry) addText(b *cacheEdge) {
	n := uint64(len(e.rest.slots))
	i, _ := bits.Mul64(b.id.hash, n)
	for e.rest.slots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.rest.slots[i] = cacheTextSlot{b.id.hash, b.id.text, b.value}
}

// Bytes of the parts of an entry.
const (
	cacheEntryBytes    = 48
	cacheTextsBytes    = 40
	cacheSlotBytes     = 16
	cacheTextSlotBytes = 32
)

// bytes is about what an entry takes in memory, with what the allocator rounds up.
func (e *cacheEntry) bytes() int64 {
	n := querycache.EntryBytes + cacheEntryBytes + cacheSlotBytes*len(e.nums)
	if r := e.rest; r != nil {
		n += cacheTextsBytes + len(r.text) + cacheTextSlotBytes*len(r.slots)
		for i := range r.slots {
			n += len(r.slots[i].id)
		}
	}
	return int64(n + n/8 - querycache.EntryBytes)
}

// edges is about how many rows are read to make the entry again.
func (e *cacheEntry) edges() int {
	if e.bypass {
		return 4 * maxCachedEdges // it will hardly be smaller
	}
	n := len(e.nums)
	if e.rest != nil {
		n += len(e.rest.slots)
	}
	return n * 3 / 5
}
