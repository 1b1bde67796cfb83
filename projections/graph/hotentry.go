package graph

import (
	"math/bits"
	"sync/atomic"

	"github.com/skein-feed/skein/events"
)

// hotValue is what an edge says: since when, and a set of bits. 0: nothing.
type hotValue uint64

const (
	hotExplicit hotValue = 1 << iota
	hotImplicit
	hotBoards
	hotBlocking
	hotBlockedBy
	hotMuting
)

const (
	// hotSinceShift is how many bits there are.
	hotSinceShift = 6
	// maxHotSince bounds the times that there is room for: up to the year 11000.
	maxHotSince events.Micros = 1<<(64-hotSinceShift) - 1
)

// hotValueOf packs what an edge says. It is not ok where there is no room for the time.
func hotValueOf(e *edge) (v hotValue, ok bool) {
	f := e.follows()
	switch f.Kind {
	case Explicit:
		v = hotExplicit
	case Implicit:
		v = hotImplicit
	}
	for _, b := range [...]struct {
		is  bool
		bit hotValue
	}{{e.boards, hotBoards}, {e.block.holds(), hotBlocking}, {e.blockedBy, hotBlockedBy}, {e.mute.holds(), hotMuting}} {
		if b.is {
			v |= b.bit
		}
	}
	return v | hotValue(f.Since)<<hotSinceShift, f.Since >= 0 && f.Since <= maxHotSince
}

func (v hotValue) has(bit hotValue) bool { return v&bit != 0 }

func (v hotValue) follow() Follow {
	switch {
	case v.has(hotExplicit):
		return Follow{Explicit, events.Micros(v >> hotSinceShift)}
	case v.has(hotImplicit):
		return Follow{Implicit, events.Micros(v >> hotSinceShift)}
	}
	return Follow{}
}

// hotEntry is what all edges of one user say, as the views of one version show it. It does not change. An edge that says
// nothing has no place in it.
type hotEntry struct {
	num     uint64
	version uint64
	// nums are the edges to users whose ids are numbers: open addressing, value 0: free. One at least is.
	nums []hotSlot
	// rest is nil where all ids are numbers, the user's own too.
	rest *hotRest
	// used is set by who uses it, and cleared as the hand of the clock goes by.
	used atomic.Uint32
	// missed counts the questions since it cannot answer any more.
	missed atomic.Uint32
	// bypass says that the user has more edges than fit, and that the entry has none of them.
	bypass bool
}

type hotSlot struct {
	id    uint64
	value hotValue
}

type hotRest struct {
	text  string
	slots []hotTextSlot
}

type hotTextSlot struct {
	hash  uint64
	id    string
	value hotValue
}

// is reports whether the entry is that of a user.
func (e *hotEntry) is(id *hotID) bool {
	if e.rest == nil {
		return id.text == "" && e.num == id.num
	}
	return e.rest.text == id.text && e.num == id.num
}

// find returns what the edge to a user says.
func (e *hotEntry) find(id *hotID) hotValue {
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

func (e *hotEntry) findText(id *hotID) hotValue {
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

// hotEdge is an edge on its way into an entry.
type hotEdge struct {
	id    hotID
	value hotValue
}

// newHotEntry packs the edges of a user. No id stands in them twice.
func newHotEntry(id hotID, version uint64, edges []hotEdge) *hotEntry {
	e := &hotEntry{num: id.num, version: version}
	texts := 0
	for i := range edges {
		if edges[i].id.text != "" {
			texts++
		}
	}
	if texts > 0 || id.text != "" {
		e.rest = &hotRest{text: id.text}
	}
	// Three places of five are taken: a look-up meets a free one soon.
	if n := len(edges) - texts; n > 0 {
		e.nums = make([]hotSlot, n*5/3+1)
	}
	if texts > 0 {
		e.rest.slots = make([]hotTextSlot, texts*5/3+1)
	}
	for i := range edges {
		if b := &edges[i]; b.id.text == "" {
			e.addNumber(b)
		} else {
			e.addText(b)
		}
	}
	return e
}

func (e *hotEntry) addNumber(b *hotEdge) {
	n := uint64(len(e.nums))
	i, _ := bits.Mul64(b.id.hash, n)
	for e.nums[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.nums[i] = hotSlot{b.id.num, b.value}
}

func (e *hotEntry) addText(b *hotEdge) {
	n := uint64(len(e.rest.slots))
	i, _ := bits.Mul64(b.id.hash, n)
	for e.rest.slots[i].value != 0 {
		if i++; i == n {
			i = 0
		}
	}
	e.rest.slots[i] = hotTextSlot{b.id.hash, b.id.text, b.value}
}

// Bytes of the parts of an entry.
const (
	hotEntryBytes    = 64
	hotRestBytes     = 40
	hotSlotBytes     = 16
	hotTextSlotBytes = 32
)

// bytes is about what an entry takes in memory, with what the allocator rounds up.
func (e *hotEntry) bytes() int64 {
	n := hotEntryBytes + hotSlotBytes*len(e.nums)
	if r := e.rest; r != nil {
		n += hotRestBytes + len(r.text) + hotTextSlotBytes*len(r.slots)
		for i := range r.slots {
			n += len(r.slots[i].id)
		}
	}
	return int64(n + n/8)
}

// edges is about how many rows are read to make the entry again.
func (e *hotEntry) edges() int {
	if e.bypass {
		return 4 * maxHotEdges // it will hardly be smaller
	}
	n := len(e.nums)
	if e.rest != nil {
		n += len(e.rest.slots)
	}
	return n * 3 / 5
}
