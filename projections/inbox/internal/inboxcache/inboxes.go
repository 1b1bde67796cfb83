package inboxcache

import (
	"slices"
	"strings"
)

// End is a floor below every sort key: an inbox that reaches down to it has all.
const FloorAtEnd = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// generation has some inboxes, and each sort key in them once.
type generation struct {
	inboxes map[string]*inbox
	numbers map[string]uint32
	// keys are sort keys by their number. They never change, so a list may go on reading them.
	keys  []string
	bytes int64
}

// inbox is that of a reader. The package doc has the invariant.
type inbox struct {
	// entries are the numbers of sort keys, the oldest first.
	entries []uint32
	// floor is where the inbox ends; an empty one means that nothing is learned.
	floor string
	// learned is the version of the first views that it answers, missed that of the first views that may teach it.
	learnedVersion, missedVersion uint64
}

const (
	// inboxBytes and keyBytes are what an inbox and a sort key take beside the bytes of their ids, those of the maps included.
	inboxOverhead, sortKeyEntryOverhead = 160, 64
	entryBytes                          = 4
)

func newGeneration() *generation {
	return &generation{inboxes: map[string]*inbox{}, numbers: map[string]uint32{}}
}

// List has the sort keys of an inbox as they were when it was read.
type List struct {
	// numbers are those that are left, the newest last.
	numbers []uint32
	keys    []string
}

// Next takes the newest sort key.
func (l *List) Next() (sortKey string, ok bool) {
	last := len(l.numbers) - 1
	if last < 0 {
		return "", false
	}
	sortKey, l.numbers = l.keys[l.numbers[last]], l.numbers[:last]
	return sortKey, true
}

// Skip drops what is newer than a sort key.
func (l *List) Skip(from []byte) {
	for last := len(l.numbers) - 1; last >= 0 && l.keys[l.numbers[last]] < string(from); last-- {
		l.numbers = l.numbers[:last]
	}
}

// Candidate is a sort key on its way into inboxes.
type Candidate struct {
	sortKey string
	version uint64
	// in has its number in the generation of.
	generation *generation
	number     uint32
}

// NewCandidate returns the sort key of a pin that views show from a version on.
func NewCandidate(sortKey []byte, version uint64) Candidate {
	return Candidate{sortKey: string(sortKey), version: version}
}

// HasNoInboxes reports whether there are no inboxes, so that what views show from a version on needs no delivery. Only these views may begin one.
func (c *Cache) HasNoInboxes(version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young.inboxes)+len(c.old.inboxes) > 0 {
		return false
	}
	c.deliveredVersion = max(c.deliveredVersion, version)
	return true
}

// DeliverToInbox brings a candidate into the inbox of a reader, if there is one.
func (c *Cache) DeliverToInbox(pin *Candidate, reader []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, pin.version)
	g := c.young
	box := g.inboxes[string(reader)]
	if box == nil {
		g = c.old
		if box = g.inboxes[string(reader)]; box == nil {
			return
		}
	}
	if box.floor != "" && pin.sortKey >= box.floor {
		box.missedVersion = pin.version
		return
	}
	if pin.generation != g {
		pin.generation, pin.number = g, c.numberOf(g, pin.sortKey)
	}
	c.insertEntry(g, box, pin.number)
	c.trim(g, box)
	c.rotateIfFull()
}

// insert adds an entry where it belongs.
func (c *Cache) insertEntry(g *generation, box *inbox, number uint32) {
	key, n := g.keys[number], len(box.entries)
	at := n
	if n > 0 && g.keys[box.entries[n-1]] <= key {
		var has bool
		if at, has = slices.BinarySearchFunc(box.entries, key, g.compareEntry); has {
			return
		}
	}
	before := cap(box.entries)
	box.entries = slices.Insert(box.entries, at, number)
	c.charge(g, entryBytes*int64(cap(box.entries)-before))
}

// olderFirst compares an entry with a sort key.
func (g *generation) compareEntry(number uint32, key string) int {
	return strings.Compare(key, g.keys[number])
}

// trim drops the oldest entries of an inbox that has too many: several at a time, because that copies what is kept.
func (c *Cache) trim(g *generation, box *inbox) {
	if len(box.entries) <= c.MaxEntries {
		return
	}
	drop := len(box.entries) - c.trimTo
	box.floor = min(box.floor, g.keys[box.entries[drop-1]])
	box.missedVersion = c.deliveredVersion
	box.entries = slices.Delete(box.entries, 0, drop)
}

// ReadInbox returns what a reader's inbox has for a view of a version, and its floor; an empty floor means that it has nothing for the view.
func (c *Cache) ReadInbox(reader []byte, version uint64) (list List, floor string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull()
	g, box := c.findAndPromote(reader)
	if box == nil || box.floor == "" || version < box.learnedVersion {
		return List{}, ""
	}
	return List{slices.Clone(box.entries), g.keys}, box.floor
}

// find returns the inbox of a reader from the young generation, into which it is moved.
func (c *Cache) findAndPromote(reader []byte) (*generation, *inbox) {
	if box := c.young.inboxes[string(reader)]; box != nil {
		return c.young, box
	}
	box := c.old.inboxes[string(reader)]
	if box == nil {
		return c.young, nil
	}
	old := c.old
	c.removeInbox(old, reader)
	entries := make([]uint32, 0, len(box.entries))
	for _, number := range box.entries {
		entries = append(entries, c.numberOf(c.young, old.keys[number]))
	}
	box.entries = entries
	c.addInbox(reader, box)
	return c.young, box
}

// LearnInbox tells the inbox of a reader what outboxes have at a view of a version, from one sort key up to, not including, another.
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
	for _, key := range slices.Backward(sortKeys) {
		c.insertEntry(g, box, c.numberOf(g, string(key)))
	}
	box.floor, box.learnedVersion = string(to), max(box.learnedVersion, version)
	c.trim(g, box)
}

// DropInbox removes the inbox of a reader. Only views from a version on may begin another.
func (c *Cache) DropInbox(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, version)
	c.removeInbox(c.young, reader)
	c.removeInbox(c.old, reader)
}

func (c *Cache) clearInboxes() {
	c.charge(c.young, -c.young.bytes)
	c.charge(c.old, -c.old.bytes)
	c.young, c.old = newGeneration(), newGeneration()
}

// turn makes the young generation the old one once both take their part of the bound.
func (c *Cache) rotateIfFull() {
	if c.young.bytes+c.old.bytes <= c.shared.Bound()/2 {
		return
	}
	c.charge(c.old, -c.old.bytes)
	c.young, c.old = newGeneration(), c.young
}

func (c *Cache) charge(g *generation, bytes int64) {
	g.bytes += bytes
	c.shared.Charge(bytes)
}

func (c *Cache) addInbox(reader []byte, box *inbox) {
	c.young.inboxes[string(reader)] = box
	c.charge(c.young, inboxOverhead+int64(len(reader))+entryBytes*int64(cap(box.entries)))
}

func (c *Cache) removeInbox(g *generation, reader []byte) {
	if box := g.inboxes[string(reader)]; box != nil {
		c.charge(g, -(inboxOverhead + int64(len(reader)) + entryBytes*int64(cap(box.entries))))
		delete(g.inboxes, string(reader))
	}
}

// number returns that of a sort key.
func (c *Cache) numberOf(g *generation, key string) uint32 {
	n, known := g.numbers[key]
	if !known {
		n = uint32(len(g.keys))
		g.keys, g.numbers[key] = append(g.keys, key), n
		c.charge(g, sortKeyEntryOverhead+int64(len(key)))
	}
	return n
}
