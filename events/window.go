package events

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/zeebo/xxh3"
)

// RepeatKey returns the key by which an event with an event id is remembered: xxh3-64 of the event
// id, seeded with xxh3-64 of the acting user, which is seeded with the kind. It is never 0. The
// archive stores these keys, so the function must never change.
func RepeatKey(ev *Event) uint64 {
	return max(1, xxh3.HashStringSeed(ev.ID, xxh3.HashStringSeed(ev.User, uint64(ev.Kind))))
}

// ContentKey returns a hash of [RepeatKey] and of everything that the event states. It is
// remembered beside the key: an event whose key is remembered and whose content is not has reused
// an event id for something else (I6). The occurred_at of a backfill is not part of the hash,
// because it may have been limited to the log time. Like [RepeatKey], the function must never
// change.
func ContentKey(ev *Event) uint64 {
	h := RepeatKey(ev)
	// Each field has a seed of its own, so that equal texts in different fields give different
	// hashes. Empty fields are left out, so a field that is added later does not change the hashes of
	// events without it.
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
	if ev.Reaction != "" {
		h = xxh3.HashStringSeed(ev.Reaction, h+20)
	}
	if ev.Settings != 0 {
		h = xxh3.HashSeed([]byte{byte(ev.Settings)}, h+21)
	}
	if ev.Until != 0 {
		h = xxh3.HashSeed(binary.LittleEndian.AppendUint64(nil, uint64(ev.Until)), h+22)
	}
	if ev.Group != "" {
		h = xxh3.HashStringSeed(ev.Group, h+23)
	}
	return max(1, h^contentSalt)
}

// contentSalt makes the two keys of an event differ if the event has no fields besides those of its
// [RepeatKey].
const contentSalt = 0x9e3779b97f4a7c15

// repeatWindow remembers, for each key, the last time at which it occurred, for at least one
// [Horizon] (I6).
//
// Keys are in two tables, each of which covers at most one horizon. When the current table is full,
// it becomes the previous one, and all keys of the table before it are forgotten at once. So
// forgetting costs nothing per key.
type repeatWindow struct {
	current, previous *keyTimes // nil means empty
}

// remember records that a key, which must not be 0, occurs at a time, which must not be before the
// times of earlier calls. It reports whether the key also occurred within the horizon before that
// time.
func (w *repeatWindow) remember(key uint64, at Micros) bool {
	w.forgetBefore(at)
	if w.current.put(key, at) {
		return true
	}
	if w.previous == nil {
		return false
	}

	// The previous table may contain keys that are older than a horizon.
	last, ok := w.previous.get(key)
	return ok && at-last <= Horizon
}

// forgetBefore drops tables of which no key is within the horizon before a time.
func (w *repeatWindow) forgetBefore(at Micros) {
	if w.current == nil {
		w.current = &keyTimes{start: at}
	}
	age := at - w.current.start
	if age <= Horizon {
		return
	}

	w.previous = w.current
	if age > 2*Horizon {
		w.previous = nil // its last key is more than a horizon old
	}
	w.current = &keyTimes{start: at}
}

// repeatsSince returns the keys that occurred at a time or later, each with its last time, in order
// of the keys.
func (w *repeatWindow) repeatsSince(from Micros) []Repeat {
	var list []Repeat
	for _, times := range []*keyTimes{w.current, w.previous} {
		if times == nil {
			continue
		}
		for i := range times.tables {
			table := &times.tables[i]
			for slot, key := range table.keys {
				at := times.start + Micros(table.after[slot])
				if key != 0 && at >= from {
					list = append(list, Repeat{Key: key, Time: at})
				}
			}
		}
	}

	// A key may be in both tables. The newer time is sorted first, and Compact keeps the first.
	slices.SortFunc(list, func(a, b Repeat) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(b.Time, a.Time))
	})
	return slices.CompactFunc(list, func(a, b Repeat) bool { return a.Key == b.Key })
}

// keyTimes maps keys to times from its start to one horizon later. It takes 12 bytes per slot. The
// keys are spread over 256 small hash tables by their first byte, so that growing one of them never
// takes long.
type keyTimes struct {
	start  Micros
	tables [256]keyTable
}

// put sets the time of a key and reports whether the key was present before.
func (k *keyTimes) put(key uint64, at Micros) bool {
	table := &k.tables[key>>56]
	if 4*table.used >= 3*len(table.keys) { // find needs free slots, and is slow if there are few
		table.grow()
	}

	slot := table.find(key)
	present := table.keys[slot] == key
	if !present {
		table.used++
	}
	table.keys[slot] = key
	table.after[slot] = uint32(at - k.start)
	return present
}

// get returns the time of a key, and false if the key is not present.
func (k *keyTimes) get(key uint64) (Micros, bool) {
	table := &k.tables[key>>56]
	if table.used == 0 {
		return 0, false // the table may have no slots at all
	}
	slot := table.find(key)
	return k.start + Micros(table.after[slot]), table.keys[slot] == key
}

// keyTable is a hash table with open addressing and linear probing. The keys are hashes, so they
// are not hashed again. A key of 0 marks a free slot.
type keyTable struct {
	keys  []uint64
	after []uint32 // microseconds after the start of the keyTimes
	used  int
}

// find returns the slot of a key, or the free slot where the key belongs. At least a quarter of the
// slots are free, so the search ends.
func (t *keyTable) find(key uint64) int {
	mask := uint64(len(t.keys) - 1)
	slot := key & mask
	for t.keys[slot] != key && t.keys[slot] != 0 {
		slot = (slot + 1) & mask
	}
	return int(slot)
}

// grow doubles the number of slots, which is a power of two.
func (t *keyTable) grow() {
	old := *t
	n := max(8, 2*len(old.keys))
	t.keys = make([]uint64, n)
	t.after = make([]uint32, n)

	for i, key := range old.keys {
		if key != 0 {
			slot := t.find(key)
			t.keys[slot] = key
			t.after[slot] = old.after[i]
		}
	}
}
