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
	f := e.currentFollow()
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
		{e.hasBoards, cachedBoards},
		{e.block.holds(), cachedBlocking},
		{e.blockedBy.holds(), cachedBlockedBy},
		{e.mute.holds(), cachedMuting},
		{e.hideRepins.holds(), cachedHidingRepins},
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
	userNumber uint64
	// nums are the edges to users whose ids are numbers: open addressing, value 0: free. One at least is.
	numberSlots []cacheNumberSlot
	// rest is nil where all ids are numbers, the user's own too.
	texts *cacheTexts
	// missed counts the questions since it cannot answer any more. All else does not change.
	unanswered atomic.Uint32
	// bypass says that the user has more edges than fit, and that the entry has none of them.
	tooLarge bool
}

type cacheNumberSlot struct {
	number uint64
	value  cacheValue
}

type cacheTexts struct {
	userText string
	slots    []cacheTextSlot
}

type cacheTextSlot struct {
	hash  uint64
	id    string
	value cacheValue
}

// is reports whether the entry is that of a user.
func (e *cacheEntry) belongsTo(id *cacheID) bool {
	if e.texts == nil {
		return id.text == "" && e.userNumber == id.number
	}
	return e.texts.userText == id.text && e.userNumber == id.number
}

// find returns what the edge to a user says.
func (e *cacheEntry) find(id *cacheID) cacheValue {
	if id.text != "" {
		return e.findText(id)
	}
	n := uint64(len(e.numberSlots))
	if n == 0 {
		return 0
	}
	for i, _ := bits.Mul64(id.hash, n); ; {
		s := &e.numberSlots[i]
		if s.number == id.number || s.value == 0 {
			return s.value
		}
		if i++; i == n {
			i = 0
		}
	}
}

func (e *cacheEntry) findText(id *cacheID) cacheValue {
	if e.texts == nil || len(e.texts.slots) == 0 {
		return 0
	}
	n := uint64(len(e.texts.slots))
	for i, _ := bits.Mul64(id.hash, n); ; {
		s := &e.texts.slots[i]
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
	e.userNumber = id.number
	texts := 0
	for i := range edges {
		if edges[i].id.text != "" {
			texts++
		}
	}
	if texts > 0 || id.text != "" {
		e.texts = &cacheTexts{userText: id.text}
	}
	// Three slots of five are taken: a lookup meets a free one soon.
	if n := len(edges) - texts; n > 0 {
		e.numberSlots = make([]cacheNumberSlot, n*5/3+1)
	}
	if texts > 0 {
		e.texts.slots = make([]cacheTextSlot, texts*5/3+1)
	}
	for i := range edges {
		if b := &edges[i]; b.id.text == "" {
			e.addNumberEdge(b)
		} else {
			e.addTextEdge(b)
		}
	}
}

func (e *cacheEntry) addNumberEdge(b *cacheEdge) {
	n := uint64(len(e.numberSlots))
	i, _ := bits.Mul64(b.id.hash, n)
	for e.numberSlots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.numberSlots[i] = cacheNumberSlot{b.id.number, b.value}
}

func (e *cacheEntry) addTextEdge(b *cacheEdge) {
	n := uint64(len(e.texts.slots))
	i, _ := bits.Mul64(b.id.hash, n)
	for e.texts.slots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.texts.slots[i] = cacheTextSlot{b.id.hash, b.id.text, b.value}
}

// Bytes of the parts of an entry.
const (
	entryBytes    = 48
	textsBytes    = 40
	slotBytes     = 16
	textSlotBytes = 32
)

// bytes is about what an entry takes in memory, with what the allocator rounds up.
func (e *cacheEntry) sizeBytes() int64 {
	n := querycache.EntryBytes + entryBytes + slotBytes*len(e.numberSlots)
	if r := e.texts; r != nil {
		n += textsBytes + len(r.userText) + textSlotBytes*len(r.slots)
		for i := range r.slots {
			n += len(r.slots[i].id)
		}
	}
	return int64(n + n/8 - querycache.EntryBytes)
}

// edges is about how many rows are read to make the entry again.
func (e *cacheEntry) edgeEstimate() int {
	if e.tooLarge {
		return 4 * maxCachedEdges // it will hardly be smaller
	}
	n := len(e.numberSlots)
	if e.texts != nil {
		n += len(e.texts.slots)
	}
	return n * 3 / 5
}
