package graph

import (
	"math/bits"
	"sync/atomic"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/querycache"
)

// cacheValue has the relations of user A to user B, derived from the edge and packed into a word: a
// set of bits, and above them the time since when the follow holds. 0 means that no relation holds.
type cacheValue uint64

const (
	cachedExplicit  cacheValue = 1 << iota // A follows B explicitly
	cachedImplicit                         // A follows B implicitly
	cachedBoards                           // edge.mayHaveBoardEdges
	cachedBlocking                         // A blocks B
	cachedBlockedBy                        // B blocks A
	cachedMuting                           // A mutes B for an unlimited time
	cachedHidingRepins
	// cachedTimedMute says that A mutes B until a time. Whether this mute holds depends on the
	// position of the view, so the caller must read the row.
	cachedTimedMute
	// cachedMoreSettings says that the follow has other settings than hide_repins. They do not fit
	// here, so the caller must read the row.
	cachedMoreSettings
)

const (
	// cacheSinceShift is the number of bits below the time: one for each constant above.
	cacheSinceShift = 9
	// maxCacheSince is the latest time that fits into the bits above, in the year 3100.
	maxCacheSince events.Micros = 1<<(64-cacheSinceShift) - 1
)

// cacheValueOf packs the relations of an edge. ok is false if the time does not fit.
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
		{e.mayHaveBoardEdges, cachedBoards},
		{e.block.holds(), cachedBlocking},
		{e.blockedBy.holds(), cachedBlockedBy},
		{e.mute.endlessMute().holds, cachedMuting},
		{e.followSettings().Has(events.SettingHideRepins), cachedHidingRepins},
		{e.mute.hasTimedEnd(), cachedTimedMute},
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

// follow returns how A follows B.
func (v cacheValue) follow() Follow {
	switch {
	case v.has(cachedExplicit):
		return Follow{Explicit, events.Micros(v >> cacheSinceShift)}
	case v.has(cachedImplicit):
		return Follow{Implicit, events.Micros(v >> cacheSinceShift)}
	}
	return Follow{}
}

// cacheEntry has the relations of one user to all others, as the views of one version show them. It
// leaves out edges without any relation. An entry is immutable, except for unanswered, so that many
// goroutines can read it. Together with what querycache adds, the struct fills one cache line of
// the CPU, 64 bytes, so that a lookup loads only this line and that of the slot.
//
// The other users are in two hash tables with open addressing: numberSlots for ids that are decimal
// numbers, which take half the space, and textSlots for all others. A slot whose value is 0 is
// free.
type cacheEntry struct {
	// userNumber is the user's id, if that is a number.
	userNumber uint64
	// numberSlots is the hash table of the users whose ids are numbers. It is empty or has at least
	// one free slot, at which a search for an absent id ends.
	numberSlots []cacheNumberSlot
	// texts has what belongs to ids that are no numbers. It is nil if there are no such ids.
	texts *cacheTexts
	// unanswered counts the questions that the entry could not answer any more, because the user's
	// edges have changed.
	unanswered atomic.Uint32
	// notCacheable says that the entry has no edges, because those of the user do not fit into an
	// entry, or one of them cannot be read.
	notCacheable bool
}

// cacheNumberSlot is a slot for a user whose id is a number.
type cacheNumberSlot struct {
	number uint64
	value  cacheValue
}

// cacheTexts is the part of an entry about ids that are no numbers.
type cacheTexts struct {
	// userText is the user's own id, or empty if that is a number.
	userText string
	// textSlots is the hash table of the users whose ids are no numbers. It is empty or has at
	// least one free slot.
	textSlots []cacheTextSlot
}

// cacheTextSlot is a slot for a user whose id is no number. The hash is compared first, which is
// cheaper than to compare ids.
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

// find returns the value for another user, or 0 if the entry has none. It begins at the slot that
// the high bits of the hash choose, by a multiplication instead of a division, and tries one slot
// after the other.
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
	if e.texts == nil || len(e.texts.textSlots) == 0 {
		return 0
	}

	n := uint64(len(e.texts.textSlots))
	for i, _ := bits.Mul64(id.hash, n); ; {
		slot := &e.texts.textSlots[i]
		if slot.value == 0 || slot.hash == id.hash && slot.id == id.text {
			return slot.value
		}
		if i++; i == n {
			i = 0
		}
	}
}

// cacheEdge is the edge to another user, with its value, as fill adds it to an entry.
type cacheEdge struct {
	id    cacheID
	value cacheValue
}

// fill sets an empty entry to the edges of the user with the id. No edge may occur twice, and no
// value may be 0.
func (e *cacheEntry) fill(user *cacheID, edges []cacheEdge) {
	e.userNumber = user.number

	texts := 0
	for i := range edges {
		if edges[i].id.text != "" {
			texts++
		}
	}
	if texts > 0 || user.text != "" {
		e.texts = &cacheTexts{userText: user.text}
	}

	// Three of five slots are used, so that a search soon meets a free one.
	if numbers := len(edges) - texts; numbers > 0 {
		e.numberSlots = make([]cacheNumberSlot, numbers*5/3+1)
	}
	if texts > 0 {
		e.texts.textSlots = make([]cacheTextSlot, texts*5/3+1)
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
	n := uint64(len(e.texts.textSlots))
	i, _ := bits.Mul64(edge.id.hash, n)
	for e.texts.textSlots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.texts.textSlots[i] = cacheTextSlot{edge.id.hash, edge.id.text, edge.value}
}

// The sizes in bytes of the types above.
const (
	entryBytes      = 48
	textsBytes      = 40
	numberSlotBytes = 16
	textSlotBytes   = 32
)

// sizeBytes returns about how much memory the entry takes, without querycache.EntryBytes, which the
// cache adds itself.
func (e *cacheEntry) sizeBytes() int64 {
	n := querycache.EntryBytes + entryBytes + numberSlotBytes*len(e.numberSlots)
	if texts := e.texts; texts != nil {
		n += textsBytes + len(texts.userText) + textSlotBytes*len(texts.textSlots)
		for i := range texts.textSlots {
			n += len(texts.textSlots[i].id)
		}
	}

	// The allocator rounds sizes up, by about one eighth. That concerns EntryBytes, too, because
	// the entry is allocated together with what the cache adds.
	return int64(n + n/8 - querycache.EntryBytes)
}

// edgeEstimate returns about how many edges are read to make the entry again.
func (e *cacheEntry) edgeEstimate() int {
	if e.notCacheable {
		// The edges will hardly fit the next time. The factor of four makes attempts
		// that would probably fail rare.
		return 4 * maxCachedEdges
	}
	slots := len(e.numberSlots)
	if e.texts != nil {
		slots += len(e.texts.textSlots)
	}
	return slots * 3 / 5 // the share of used slots (see fill)
}
