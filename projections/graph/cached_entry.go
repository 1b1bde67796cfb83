package graph

import (
	"math/bits"
	"sync/atomic"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/querycache"
)

// cacheValue says what holds by an edge: a set of bits, and above them the time since when the
// follow holds. 0 means that nothing holds.
type cacheValue uint64

const (
	cachedExplicit cacheValue = 1 << iota
	cachedImplicit
	cachedBoards
	cachedBlocking
	cachedBlockedBy
	cachedMuting
	cachedHidingRepins
	// cachedTimedMute says that there is a mute that ends by itself. Whether it holds depends on
	// the position of the view, so the row must be read.
	cachedTimedMute
	// cachedMoreSettings says that the follow has other settings than hide_repins, which only the
	// row has.
	cachedMoreSettings
)

const (
	// cacheSinceShift is the number of bits below the time.
	cacheSinceShift = 9
	// maxCacheSince is the latest time for which there is room, in the year 3100.
	maxCacheSince events.Micros = 1<<(64-cacheSinceShift) - 1
)

// cacheValueOf packs what holds by an edge. ok is false if there is no room for the time.
func cacheValueOf(e *edge) (v cacheValue, ok bool) {
	follow := e.currentFollow()
	switch follow.Kind {
	case Explicit:
		v = cachedExplicit
	case Implicit:
		v = cachedImplicit
	}

	for _, flag := range [...]struct {
		isSet bool
		bit   cacheValue
	}{
		{e.hasBoards, cachedBoards},
		{e.block.holds(), cachedBlocking},
		{e.blockedBy.holds(), cachedBlockedBy},
		{e.mute.endlessState().holds, cachedMuting},
		{e.followSettings().Has(events.SettingHideRepins), cachedHidingRepins},
		{e.mute.isSet() && e.mute.until() != 0, cachedTimedMute},
		{e.followSettings()&^events.SettingHideRepins != 0, cachedMoreSettings},
	} {
		if flag.isSet {
			v |= flag.bit
		}
	}

	v |= cacheValue(follow.Since) << cacheSinceShift
	return v, follow.Since >= 0 && follow.Since <= maxCacheSince
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

// cacheEntry has all edges of one user as the views of one version show them. It has no edges by
// which nothing holds. Only unanswered changes after the entry was made. Together with what the
// cache adds, the struct fills one cache line of 64 bytes.
//
// The edges are in two hash tables with open addressing: one by number, for ids that are decimal
// numbers, and one by text, for all others. A slot whose value is 0 is free.
type cacheEntry struct {
	// userNumber is the user's id, if that is a number.
	userNumber uint64
	// numberSlots are the edges to users whose ids are numbers. At least one slot is free, unless
	// there are none.
	numberSlots []cacheNumberSlot
	// texts has the edges to other users, and the user's own id if that is no number. It is nil if
	// all ids are numbers.
	texts *cacheTexts
	// unanswered counts the questions since the entry no longer answers, because the user's edges
	// have changed.
	unanswered atomic.Uint32
	// tooLarge says that the user has more edges than fit, and that the entry has none of them.
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

// belongsTo reports whether the entry is that of the user with this id.
func (e *cacheEntry) belongsTo(id *cacheID) bool {
	if e.texts == nil {
		return id.text == "" && e.userNumber == id.number
	}
	return e.texts.userText == id.text && e.userNumber == id.number
}

// find returns the value of the edge to a user, or 0 if there is no edge. It takes the first slot
// from the high bits of the hash, by a multiplication instead of a division, and then tries one
// slot after the other.
func (e *cacheEntry) find(id *cacheID) cacheValue {
	if id.text != "" {
		return e.findText(id)
	}

	n := uint64(len(e.numberSlots))
	if n == 0 {
		return 0
	}
	for i, _ := bits.Mul64(id.hash, n); ; {
		slot := &e.numberSlots[i]
		if slot.number == id.number || slot.value == 0 {
			return slot.value
		}
		if i++; i == n {
			i = 0
		}
	}
}

// findText is find for an id that is no number.
func (e *cacheEntry) findText(id *cacheID) cacheValue {
	if e.texts == nil || len(e.texts.slots) == 0 {
		return 0
	}

	n := uint64(len(e.texts.slots))
	for i, _ := bits.Mul64(id.hash, n); ; {
		slot := &e.texts.slots[i]
		if slot.value == 0 || slot.hash == id.hash && slot.id == id.text {
			return slot.value
		}
		if i++; i == n {
			i = 0
		}
	}
}

// cacheEdge is an edge that is being added to an entry.
type cacheEdge struct {
	id    cacheID
	value cacheValue
}

// fill adds the edges of a user to an empty entry. No id may occur twice.
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

	// Three of five slots are used, so that a lookup soon meets a free one.
	if numbers := len(edges) - texts; numbers > 0 {
		e.numberSlots = make([]cacheNumberSlot, numbers*5/3+1)
	}
	if texts > 0 {
		e.texts.slots = make([]cacheTextSlot, texts*5/3+1)
	}

	for i := range edges {
		if edges[i].id.text == "" {
			e.addNumberEdge(&edges[i])
		} else {
			e.addTextEdge(&edges[i])
		}
	}
}

func (e *cacheEntry) addNumberEdge(edge *cacheEdge) {
	n := uint64(len(e.numberSlots))
	i, _ := bits.Mul64(edge.id.hash, n)
	for e.numberSlots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.numberSlots[i] = cacheNumberSlot{edge.id.number, edge.value}
}

func (e *cacheEntry) addTextEdge(edge *cacheEdge) {
	n := uint64(len(e.texts.slots))
	i, _ := bits.Mul64(edge.id.hash, n)
	for e.texts.slots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.texts.slots[i] = cacheTextSlot{edge.id.hash, edge.id.text, edge.value}
}

// The sizes in bytes of the parts of an entry.
const (
	entryBytes    = 48
	textsBytes    = 40
	slotBytes     = 16
	textSlotBytes = 32
)

// sizeBytes returns about how much memory the entry takes, without querycache.EntryBytes, which the
// cache adds. One eighth is added for what the allocator rounds up.
func (e *cacheEntry) sizeBytes() int64 {
	n := querycache.EntryBytes + entryBytes + slotBytes*len(e.numberSlots)
	if texts := e.texts; texts != nil {
		n += textsBytes + len(texts.userText) + textSlotBytes*len(texts.slots)
		for i := range texts.slots {
			n += len(texts.slots[i].id)
		}
	}
	return int64(n + n/8 - querycache.EntryBytes)
}

// edgeEstimate returns about how many rows are read to make the entry again.
func (e *cacheEntry) edgeEstimate() int {
	if e.tooLarge {
		return 4 * maxCachedEdges // the user hardly has fewer edges the next time
	}
	slots := len(e.numberSlots)
	if e.texts != nil {
		slots += len(e.texts.slots)
	}
	return slots * 3 / 5
}
