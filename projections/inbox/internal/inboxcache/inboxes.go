package inboxcache

import (
	"slices"
	"strings"
)

// FloorAtEnd is a floor behind every sort key. An inbox with this floor has the whole feed.
const FloorAtEnd = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// generation is a set of inboxes. It has each sort key in them once, under a number, because a pin is in the inboxes of many readers.
type generation struct {
	// inboxes are the inboxes by reader.
	inboxes map[string]*inbox
	// numbers has the number of each sort key.
	numbers map[string]uint32
	// keys has the sort key of each number. Keys are only added, and never change, so a List may go on reading them without the lock.
	keys []string
	// bytes is what the generation is charged for.
	bytes int64
}

// inbox is the inbox of a reader. The package doc has its invariant.
type inbox struct {
	// entries are the numbers of its sort keys, the oldest pin first, so that a new pin is appended.
	entries []uint32
	// floor is the sort key at which the inbox ends. It is empty until the inbox has learned something.
	floor string
	// learnedVersion is the version of the first views that the inbox can answer.
	learnedVersion uint64
	// missedVersion is the version of the first views from which the inbox may learn.
	missedVersion uint64
}

// The bytes that inboxes are charged for.
const (
	// inboxOverhead is what an inbox takes beside the bytes of its reader and entries, with its share of the map.
	inboxOverhead = 160
	// sortKeyEntryOverhead is what a sort key takes beside its bytes, with its share of the map.
	sortKeyEntryOverhead = 64
	entryBytes           = 4
)

func newGeneration() *generation {
	return &generation{inboxes: map[string]*inbox{}, numbers: map[string]uint32{}}
}

// List iterates over the sort keys of an inbox, as they were when the inbox was read.
type List struct {
	// numbers are the numbers of the sort keys that are left, the newest last.
	numbers []uint32
	// keys has the sort key of each number.
	keys []string
}

// Next removes the newest sort key and returns it. ok is false if there is none.
func (l *List) Next() (sortKey string, ok bool) {
	last := len(l.numbers) - 1
	if last < 0 {
		return "", false
	}
	sortKey = l.keys[l.numbers[last]]
	l.numbers = l.numbers[:last]
	return sortKey, true
}

// Skip removes the sort keys before from, which are those of newer pins.
func (l *List) Skip(from []byte) {
	for last := len(l.numbers) - 1; last >= 0 && l.keys[l.numbers[last]] < string(from); last-- {
		l.numbers = l.numbers[:last]
	}
}

// Candidate is a sort key that is delivered to many inboxes.
type Candidate struct {
	sortKey string
	// version is the version of the first views that show the pin.
	version uint64
	// number is the number of the sort key in generation, remembered from the last delivery.
	generation *generation
	number     uint32
}

// NewCandidate returns the sort key of a pin for delivery. version is the version of the first views that show the pin.
func NewCandidate(sortKey []byte, version uint64) Candidate {
	return Candidate{sortKey: string(sortKey), version: version}
}

// HasNoInboxes reports whether there are no inboxes, so that an event need not be delivered. version is the version of the first views that show
// the event. If there are none, only these views may begin one.
func (c *Cache) HasNoInboxes(version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young.inboxes)+len(c.old.inboxes) > 0 {
		return false
	}
	c.deliveredVersion = max(c.deliveredVersion, version)
	return true
}

// DeliverToInbox adds a candidate to the inbox of a reader, if there is one.
func (c *Cache) DeliverToInbox(candidate *Candidate, reader []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, candidate.version)

	// The inbox stays in its generation: only pages show that it is still read.
	g := c.young
	box := g.inboxes[string(reader)]
	if box == nil {
		g = c.old
		box = g.inboxes[string(reader)]
	}
	if box == nil {
		return
	}

	// A pin at or below the floor is not part of the inbox. If an older view later extended the inbox to it, the pin would be missing.
	if box.floor != "" && candidate.sortKey >= box.floor {
		box.missedVersion = c.deliveredVersion // never lower than before
		return
	}

	if candidate.generation != g {
		candidate.generation = g
		candidate.number = c.numberOf(g, candidate.sortKey)
	}
	c.insertEntry(g, box, candidate.number)
	c.trim(g, box)
	c.rotateIfFull()
}

// insertEntry adds a sort key to an inbox in its place, unless the inbox has it already.
func (c *Cache) insertEntry(g *generation, box *inbox, number uint32) {
	// Nearly always the pin is the newest and goes to the end. Otherwise search for its place.
	key := g.keys[number]
	n := len(box.entries)
	index := n
	if n > 0 && g.keys[box.entries[n-1]] <= key {
		var found bool
		if index, found = slices.BinarySearchFunc(box.entries, key, g.compareEntry); found {
			return
		}
	}

	capacity := cap(box.entries)
	box.entries = slices.Insert(box.entries, index, number)
	c.charge(g, entryBytes*int64(cap(box.entries)-capacity))
}

// compareEntry compares an entry with a sort key, for the order of entries: the greatest sort key, which is that of the oldest pin, first.
func (g *generation) compareEntry(number uint32, key string) int {
	return strings.Compare(key, g.keys[number])
}

// trim removes the oldest entries of an inbox that has more than MaxEntries. It removes several at a time, because that copies the others.
func (c *Cache) trim(g *generation, box *inbox) {
	if len(box.entries) <= c.MaxEntries {
		return
	}
	removed := len(box.entries) - c.trimTo
	box.floor = min(box.floor, g.keys[box.entries[removed-1]])
	box.missedVersion = c.deliveredVersion
	box.entries = slices.Delete(box.entries, 0, removed)
}

// ReadInbox returns the entries of a reader's inbox and its floor, for a view of a version. The floor is empty if the inbox cannot answer for the
// view.
func (c *Cache) ReadInbox(reader []byte, version uint64) (list List, floor string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull() // moving the inbox to the young generation may charge more
	g, box := c.findAndPromote(reader)
	if box == nil || box.floor == "" || version < box.learnedVersion {
		return List{}, ""
	}
	// The entries change with deliveries, so the list has a copy. The keys never change.
	return List{slices.Clone(box.entries), g.keys}, box.floor
}

// findAndPromote returns the inbox of a reader, or nil, and the young generation. It moves an inbox of the old generation into the young one, since
// its reader is still reading.
func (c *Cache) findAndPromote(reader []byte) (*generation, *inbox) {
	if box := c.young.inboxes[string(reader)]; box != nil {
		return c.young, box
	}
	box := c.old.inboxes[string(reader)]
	if box == nil {
		return c.young, nil
	}

	// Each generation has numbers of its own.
	c.removeInbox(c.old, reader)
	entries := make([]uint32, 0, len(box.entries))
	for _, number := range box.entries {
		entries = append(entries, c.numberOf(c.young, c.old.keys[number]))
	}
	box.entries = entries
	c.addInbox(reader, box)
	return c.young, box
}

// LearnInbox tells the inbox of a reader which sort keys the outboxes have, at a view of a version, in the range from <= key < to. The inbox is
// begun if there is none. It ignores a range that would leave a gap, adds nothing, or comes from a view that is too old.
func (c *Cache) LearnInbox(reader []byte, version uint64, from []byte, sortKeys [][]byte, to []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	defer c.rotateIfFull()

	g, box := c.findAndPromote(reader)
	if box == nil {
		box = &inbox{missedVersion: c.deliveredVersion}
		c.addInbox(reader, box)
	}
	if version < box.missedVersion || string(from) > box.floor || string(to) <= box.floor {
		return
	}

	// From the oldest on, each of them is appended if the inbox is new.
	for _, key := range slices.Backward(sortKeys) {
		c.insertEntry(g, box, c.numberOf(g, string(key)))
	}
	box.floor = string(to)
	box.learnedVersion = max(box.learnedVersion, version)
	c.trim(g, box)
}

// DropInbox removes the inbox of a reader. Only views of a version or later may begin another one.
func (c *Cache) DropInbox(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, version)
	c.removeInbox(c.young, reader)
	c.removeInbox(c.old, reader)
}

// clearInboxes removes all inboxes.
func (c *Cache) clearInboxes() {
	c.charge(c.young, -c.young.bytes)
	c.charge(c.old, -c.old.bytes)
	c.young, c.old = newGeneration(), newGeneration()
}

// rotateIfFull makes the young generation the old one, and drops what was old, once the young one takes a quarter of the limit, or both
// together take half of it. After a rotation for the first reason the old generation alone is far from half of the limit. Otherwise the
// next call would rotate again, before the readers of that generation have moved their inboxes out of it.
func (c *Cache) rotateIfFull() {
	limit := c.shared.Limit()
	if c.young.bytes <= limit/4 && c.young.bytes+c.old.bytes <= limit/2 {
		return
	}
	c.charge(c.old, -c.old.bytes)
	c.young, c.old = newGeneration(), c.young
}

// charge counts bytes of a generation against the bound, or no longer if bytes is negative.
func (c *Cache) charge(g *generation, bytes int64) {
	g.bytes += bytes
	c.shared.Charge(bytes)
}

// addInbox adds an inbox to the young generation.
func (c *Cache) addInbox(reader []byte, box *inbox) {
	c.young.inboxes[string(reader)] = box
	c.charge(c.young, inboxBytes(reader, box))
}

// removeInbox removes an inbox from a generation, if it is there. Its sort keys stay until the generation is dropped.
func (c *Cache) removeInbox(g *generation, reader []byte) {
	if box := g.inboxes[string(reader)]; box != nil {
		c.charge(g, -inboxBytes(reader, box))
		delete(g.inboxes, string(reader))
	}
}

// inboxBytes returns what an inbox is charged for, without its sort keys.
func inboxBytes(reader []byte, box *inbox) int64 {
	return inboxOverhead + int64(len(reader)) + entryBytes*int64(cap(box.entries))
}

// numberOf returns the number of a sort key in a generation, and adds the key if it is not there.
func (c *Cache) numberOf(g *generation, key string) uint32 {
	n, known := g.numbers[key]
	if !known {
		n = uint32(len(g.keys))
		g.keys = append(g.keys, key)
		g.numbers[key] = n
		c.charge(g, sortKeyEntryOverhead+int64(len(key)))
	}
	return n
}
