package events

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// RepeatKey returns what is remembered of an event with an event id: xxh3-64 of the id, seeded with xxh3-64 of the
// acting user, seeded with the kind; 1 for 0. The archive stores these keys, so this never changes.
func RepeatKey(ev *Event) uint64 {
	return max(1, xxh3.HashStringSeed(ev.ID, xxh3.HashStringSeed(ev.User, uint64(ev.Kind))))
}

// ContentKey returns what is remembered beside the key of an event with an event id, of all that the event says: a repeat
// without it says something else (I6). Of a backfill's occurred_at it says nothing: the log's own time may have cut it. Like
// [RepeatKey] it never changes.
func ContentKey(ev *Event) uint64 {
	h := RepeatKey(ev)
	for i, s := range [...]string{
		ev.Peer, ev.Board, ev.Pin, ev.Item, ev.RepinUser, ev.RepinPin, ev.Title, ev.Source,
	} {
		if s != "" {
			h = xxh3.HashStringSeed(s, h+uint64(i))
		}
	}
	if len(ev.Attributes) > 0 {
		h = xxh3.HashSeed(ev.Attributes, h+16)
	}
	for _, item := range ev.Items {
		h = xxh3.HashStringSeed(item, h+17)
	}
	if ev.Score != 0 || ev.Offset != 0 {
		var b [16]byte
		binary.LittleEndian.PutUint64(b[:8], uint64(ev.Score))
		binary.LittleEndian.PutUint64(b[8:], ev.Offset)
		h = xxh3.HashSeed(b[:], h+18)
	}
	if ev.Read != 0 {
		h = xxh3.HashSeed(binary.LittleEndian.AppendUint64(nil, uint64(ev.Read)), h+19)
	}
	return max(1, h^contentSalt)
}

// contentSalt sets the content of an event that has no fields beside its key apart from that key.
const contentSalt = 0x9e3779b97f4a7c15

// window remembers for each key the last time at which it was added, for one horizon (I6). Two generations of
// at most a horizon each make forgetting free: the older one goes as a whole when nothing in it counts any more.
type window struct {
	cur, old *generation // nil: empty
}

// add remembers that a key, not 0, occurs at a time, not before any other given, and reports whether it did so within the
// horizon before.
func (w *window) add(key uint64, at Micros) bool {
	w.advance(at)
	if w.cur.put(key, at) {
		return true
	}
	if w.old == nil {
		return false
	}
	last, ok := w.old.get(key)
	return ok && at-last <= Horizon
}

// advance forgets what no key at this time or later could repeat.
func (w *window) advance(at Micros) {
	if w.cur == nil {
		w.cur = &generation{start: at}
	}
	age := at - w.cur.start
	if age <= Horizon {
		return
	}
	w.old = w.cur
	if age > 2*Horizon {
		w.old = nil
	}
	w.cur = &generation{start: at}
}

// since returns the keys that occurred at a time or after, with the last time of each, by key.
func (w *window) since(from Micros) []Repeat {
	var list []Repeat
	for _, g := range []*generation{w.cur, w.old} {
		if g == nil {
			continue
		}
		for i := range g.parts {
			p := &g.parts[i]
			for j, key := range p.keys {
				if at := g.start + Micros(p.after[j]); key != 0 && at >= from {
					list = append(list, Repeat{Key: key, Time: at})
				}
			}
		}
	}
	// A key of both generations: the newer time first.
	slices.SortFunc(list, func(a, b Repeat) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Time, a.Time))
	})
	return slices.CompactFunc(list, func(a, b Repeat) bool { return a.Key == b.Key })
}

// generation maps keys to times from its start to a horizon later, in 12 bytes a slot. It is cut into parts, so that
// none takes long to grow.
type generation struct {
	start Micros
	parts [256]part
}

// put sets the time of a key and reports whether it had one.
func (g *generation) put(key uint64, at Micros) bool {
	p := &g.parts[key>>56]
	if 4*p.used >= 3*len(p.keys) {
		p.grow()
	}
	i := p.find(key)
	known := p.keys[i] == key
	if !known {
		p.used++
	}
	p.keys[i], p.after[i] = key, uint32(at-g.start)
	return known
}

func (g *generation) get(key uint64) (Micros, bool) {
	p := &g.parts[key>>56]
	if p.used == 0 {
		return 0, false
	}
	i := p.find(key)
	return g.start + Micros(p.after[i]), p.keys[i] == key
}

// part is a hash table with open addressing. Keys are hashes already; 0 is a free slot.
type part struct {
	keys  []uint64
	after []uint32 // microseconds after the start of the generation
	used  int
}

// find returns the slot of a key, or the free one where it belongs. There is always a free one.
func (p *part) find(key uint64) int {
	last := uint64(len(p.keys) - 1)
	i := key & last
	for p.keys[i] != key && p.keys[i] != 0 {
		i = (i + 1) & last
	}
	return int(i)
}

// grow doubles the slots, whose number is a power of two.
func (p *part) grow() {
	old := *p
	n := max(8, 2*len(old.keys))
	p.keys, p.after = make([]uint64, n), make([]uint32, n)
	for i, key := range old.keys {
		if key != 0 {
			j := p.find(key)
			p.keys[j], p.after[j] = key, old.after[i]
		}
	}
}
