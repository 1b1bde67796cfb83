package inboxcache

import (
	"slices"
	"strings"
)

// An inbox has the sort keys of the newest pins for one reader. A sort key is the complement of the
// pin's creation time in 8 bytes, followed by the ids of the owner and the pin. So the sort keys of
// newer pins are smaller. All versions in this file are versions of views of the store.

// FloorAtEnd is greater than every sort key: the byte that follows the time in a sort key is never
// 0xff. An inbox with this floor has the whole feed.
const FloorAtEnd = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// generation is a set of inboxes. Many inboxes have the same sort keys, so the generation stores
// each sort key once. The inboxes refer to it by its number, which is an index of sortKeys.
type generation struct {
	// inboxes maps each reader to the reader's inbox.
	inboxes map[string]*inbox
	// sortKeys has the sort keys by number, and numberOf is the reverse map. Sort keys are appended
	// and never changed or removed. So an Iterator may read its part of the slice without the lock
	// while the generation appends to it.
	sortKeys []string
	numberOf map[string]uint32
	// bytes is the estimated memory of the generation.
	bytes int64
}

// inbox is the inbox of a reader.
//
// Invariant: for a view of version minReadVersion or later, the inbox has every sort key smaller
// than floor that the outboxes have for the reader, except those that a pull row leads to. It may
// have others. It may also have sort keys at or above floor, which callers must ignore.
type inbox struct {
	// entries are the numbers of the sort keys, the oldest pin first, so that a new pin is
	// appended.
	entries []uint32
	// floor is empty until LearnInbox has filled the inbox. Until then, every delivery is stored.
	floor string
	// minReadVersion is the lowest version of a view for which the inbox can be read.
	minReadVersion uint64
	// minLearnVersion is the lowest version of a view from which the inbox may learn. Older views
	// lack pins that were delivered and that the inbox did not store, or has trimmed away.
	minLearnVersion uint64
}

// Estimates of memory, in bytes.
const (
	// inboxOverhead is for one inbox and its element of the map, without the bytes of the reader
	// and of the entries.
	inboxOverhead = 160
	// sortKeyMemory is for one sort key and its element of the map, without the bytes of the sort
	// key.
	sortKeyMemory = 64
	// entryBytes is for one entry of an inbox.
	entryBytes = 4
)

func newGeneration() *generation {
	return &generation{inboxes: map[string]*inbox{}, numberOf: map[string]uint32{}}
}

// Iterator iterates over the sort keys that an inbox had when it was read, the newest pin first.
// The zero Iterator has none.
type Iterator struct {
	// remaining are the numbers of the sort keys that Next has not returned, the newest pin last.
	remaining []uint32
	// sortKeys has the sort keys by number.
	sortKeys []string
}

// Next returns the next sort key. ok is false if there is none.
func (l *Iterator) Next() (sortKey string, ok bool) {
	last := len(l.remaining) - 1
	if last < 0 {
		return "", false
	}
	sortKey = l.sortKeys[l.remaining[last]]
	l.remaining = l.remaining[:last]
	return sortKey, true
}

// SkipTo skips the sort keys that are smaller than from, which are those of newer pins.
func (l *Iterator) SkipTo(from []byte) {
	for last := len(l.remaining) - 1; last >= 0 && l.sortKeys[l.remaining[last]] < string(from); last-- {
		l.remaining = l.remaining[:last]
	}
}

// PushedPin is a pin that the fold delivers to the inboxes of many readers.
type PushedPin struct {
	sortKey string
	// version is the lowest version of a view that shows the pin.
	version uint64
	// number is the number of sortKey in generation. It is remembered for the next delivery to an
	// inbox of the same generation.
	number     uint32
	generation *generation
}

// NewPushedPin returns the pin with this sort key. version is the lowest version of a view that
// will show the pin.
func NewPushedPin(sortKey []byte, version uint64) PushedPin {
	return PushedPin{sortKey: string(sortKey), version: version}
}

// SkipDelivery reports whether the cache has no inboxes at all, so that the fold need not look for
// inboxes that an event concerns. In that case it records that an inbox which begins later must not
// learn from views that do not show the event. version is the lowest version of a view that will
// show the event.
func (c *Cache) SkipDelivery(version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young.inboxes)+len(c.old.inboxes) > 0 {
		return false
	}
	c.deliveredVersion = max(c.deliveredVersion, version)
	return true
}

// DeliverToInbox adds a pin to the inbox of a reader, if there is one.
func (c *Cache) DeliverToInbox(pin *PushedPin, reader []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, pin.version)

	// Do not move the inbox into the young generation. Only reading and learning do so, because
	// they show that the reader still reads pages.
	g := c.young
	box := g.inboxes[string(reader)]
	if box == nil {
		g = c.old
		box = g.inboxes[string(reader)]
	}
	if box == nil {
		return
	}

	// The inbox does not store older pins than its floor. Therefore the inbox must not learn this
	// range of sort keys from a view that lacks the pin.
	if box.floor != "" && pin.sortKey >= box.floor {
		box.minLearnVersion = c.deliveredVersion // which never falls
		return
	}

	if pin.generation != g {
		pin.generation = g
		pin.number = c.addSortKey(g, pin.sortKey)
	}
	c.insertEntry(g, box, pin.number)
	c.trim(g, box)
	c.rotateIfFull()
}

// insertEntry adds the sort key with this number to an inbox of the generation, unless the inbox
// has it already. The caller holds mu.
func (c *Cache) insertEntry(g *generation, box *inbox, number uint32) {
	// Nearly always the pin is newer than all others and is appended. Otherwise search for its
	// place.
	key := g.sortKeys[number]
	n := len(box.entries)
	index := n
	if n > 0 && g.sortKeys[box.entries[n-1]] <= key {
		var found bool
		if index, found = slices.BinarySearchFunc(box.entries, key, g.compareEntry); found {
			return
		}
	}

	capacity := cap(box.entries)
	box.entries = slices.Insert(box.entries, index, number)
	c.charge(g, entryBytes*int64(cap(box.entries)-capacity))
}

// compareEntry compares an entry with a sort key for a binary search. Entries are in descending
// order of sort keys.
func (g *generation) compareEntry(entry uint32, sortKey string) int {
	return strings.Compare(sortKey, g.sortKeys[entry])
}

// trim removes the oldest entries of an inbox that has more than MaxEntries, down to trimTo
// entries. It removes many at a time, because each removal copies the remaining entries. The caller
// holds mu.
func (c *Cache) trim(g *generation, box *inbox) {
	if len(box.entries) <= c.MaxEntries {
		return
	}

	removed := len(box.entries) - c.trimTo
	// The removed entries may lie above the floor, or there may be no floor yet. Then the floor
	// stays as it is.
	box.floor = min(box.floor, g.sortKeys[box.entries[removed-1]])
	box.minLearnVersion = c.deliveredVersion
	box.entries = slices.Delete(box.entries, 0, removed)
}

// ReadInbox returns the sort keys of a reader's inbox, and its floor. The caller must stop at the
// floor, and must check that the view shows each pin to the reader. The floor is empty if there is
// no inbox that can be read for a view of this version. ReadInbox moves the inbox into the young
// generation.
func (c *Cache) ReadInbox(reader []byte, version uint64) (sortKeys Iterator, floor string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull() // the young generation may have grown
	box := c.findAndPromote(reader)
	if box == nil || box.floor == "" || version < box.minReadVersion {
		return Iterator{}, ""
	}
	// Deliveries change box.entries, so the iterator gets a copy.
	return Iterator{slices.Clone(box.entries), c.young.sortKeys}, box.floor
}

// findAndPromote returns the inbox of a reader, or nil if there is none. It moves an inbox of the
// old generation into the young one. The caller holds mu.
func (c *Cache) findAndPromote(reader []byte) *inbox {
	if box := c.young.inboxes[string(reader)]; box != nil {
		return box
	}
	box := c.old.inboxes[string(reader)]
	if box == nil {
		return nil
	}

	c.removeInbox(c.old, reader)
	// The same sort key has different numbers in the two generations.
	entries := make([]uint32, 0, len(box.entries))
	for _, number := range box.entries {
		entries = append(entries, c.addSortKey(c.young, c.old.sortKeys[number]))
	}
	box.entries = entries
	c.addInbox(reader, box)
	return box
}

// LearnInbox fills or extends the inbox of a reader. sortKeys are all sort keys s with from <= s <
// to that the followed outboxes have at a view of this version, in ascending order. A nil from is
// smaller than every sort key.
//
// LearnInbox creates the inbox if there is none. It does not add the sort keys if they would leave
// a gap between the floor and from, if to is not above the floor, or if the view is older than
// minLearnVersion. An inbox that was created but not filled stores deliveries from now on, so a
// later page can fill it.
func (c *Cache) LearnInbox(reader []byte, version uint64, from []byte, sortKeys [][]byte, to []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	defer c.rotateIfFull()

	box := c.findAndPromote(reader)
	if box == nil {
		box = &inbox{minLearnVersion: c.deliveredVersion}
		c.addInbox(reader, box)
	}
	if string(from) > box.floor || string(to) <= box.floor || version < box.minLearnVersion {
		return
	}

	// Insert the oldest pin first: then each insertion into a new inbox is an append.
	for _, key := range slices.Backward(sortKeys) {
		c.insertEntry(c.young, box, c.addSortKey(c.young, string(key)))
	}
	box.floor = string(to)
	box.minReadVersion = max(box.minReadVersion, version)
	c.trim(c.young, box)
}

// DropInbox removes the inbox of a reader, because an event has changed what belongs into it.
// version is the lowest version of a view that will show the event. No inbox that begins later
// learns from an older view.
func (c *Cache) DropInbox(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, version)
	c.removeInbox(c.young, reader)
	c.removeInbox(c.old, reader)
}

// clearInboxes removes all inboxes. The caller holds mu.
func (c *Cache) clearInboxes() {
	c.charge(c.young, -c.young.bytes)
	c.charge(c.old, -c.old.bytes)
	c.young = newGeneration()
	c.old = newGeneration()
}

// rotateIfFull begins a new young generation if the young one has more than a quarter of the limit
// of the shared cache, or both generations together have more than half of the limit. The young
// generation becomes the old one. The inboxes of the previous old generation are dropped: no page
// has read or filled them since the last rotation. The caller holds mu.
func (c *Cache) rotateIfFull() {
	limit := c.shared.Limit()
	if c.young.bytes <= limit/4 && c.young.bytes+c.old.bytes <= limit/2 {
		return
	}

	// What remains is the generation that was young. It usually has little more than a quarter of
	// the limit, so its readers have time to move their inboxes into the new young generation
	// before the next rotation.
	c.charge(c.old, -c.old.bytes)
	c.old = c.young
	c.young = newGeneration()
}

// charge adds bytes, which may be negative, to the memory of a generation and of the shared cache.
// The caller holds mu.
func (c *Cache) charge(g *generation, bytes int64) {
	g.bytes += bytes
	c.shared.Charge(bytes)
}

// addInbox adds an inbox to the young generation. The caller holds mu.
func (c *Cache) addInbox(reader []byte, box *inbox) {
	c.young.inboxes[string(reader)] = box
	c.charge(c.young, inboxBytes(reader, box))
}

// removeInbox removes the inbox of a reader from a generation, if it is there. The generation keeps
// the sort keys of the inbox until the generation itself is dropped. The caller holds mu.
func (c *Cache) removeInbox(g *generation, reader []byte) {
	if box := g.inboxes[string(reader)]; box != nil {
		c.charge(g, -inboxBytes(reader, box))
		delete(g.inboxes, string(reader))
	}
}

// inboxBytes returns the estimated memory of an inbox, without the sort keys that its entries refer
// to.
func inboxBytes(reader []byte, box *inbox) int64 {
	return inboxOverhead + int64(len(reader)) + entryBytes*int64(cap(box.entries))
}

// addSortKey returns the number of a sort key in a generation. It adds the sort key if it is not
// there yet. The caller holds mu.
func (c *Cache) addSortKey(g *generation, sortKey string) uint32 {
	if number, known := g.numberOf[sortKey]; known {
		return number
	}
	number := uint32(len(g.sortKeys))
	g.sortKeys = append(g.sortKeys, sortKey)
	g.numberOf[sortKey] = number
	c.charge(g, sortKeyMemory+int64(len(sortKey)))
	return number
}
