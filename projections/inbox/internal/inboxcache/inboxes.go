package inboxcache

import (
	"slices"
	"strings"
)

// End is a floor below every sort key: an inbox that reaches down to it has all.
const End = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

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
	learned, missed uint64
}

const (
	// inboxBytes and keyBytes are what an inbox and a sort key take beside the bytes of their ids, those of the maps included.
	inboxBytes, keyBytes = 160, 64
	entryBytes           = 4
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
	key     string
	version uint64
	// in has its number in the generation of.
	of *generation
	in uint32
}

// NewCandidate returns the sort key of a pin that views show from a version on.
func NewCandidate(sortKey []byte, version uint64) Candidate {
	return Candidate{key: string(sortKey), version: version}
}

// HasNoInboxes reports whether there are no inboxes, so that what views show from a version on needs no delivery. Only these views may begin one.
func (c *Cache) HasNoInboxes(version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young.inboxes)+len(c.old.inboxes) > 0 {
		return false
	}
	c.shown = max(c.shown, version)
	return true
}

// DeliverToInbox brings a candidate into the inbox of a reader, if there is one.
func (c *Cache) DeliverToInbox(pin *Candidate, reader []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = max(c.shown, pin.version)
	g := c.young
	box := g.inboxes[string(reader)]
	if box == nil {
		g = c.old
		if box = g.inboxes[string(reader)]; box == nil {
			return
		}
	}
	if box.floor != "" && pin.key >= box.floor {
		box.missed = pin.version
		return
	}
	if pin.of != g {
		pin.of, pin.in = g, c.number(g, pin.key)
	}
	c.insert(g, box, pin.in)
	c.trim(g, box)
	c.turn()
}

// insert adds an entry where it belongs.
func (c *Cache) insert(g *generation, box *inbox, number uint32) {
	key, n := g.keys[number], len(box.entries)
	at := n
	if n > 0 && g.keys[box.entries[n-1]] <= key {
		var has bool
		if at, has = slices.BinarySearchFunc(box.entries, key, g.olderFirst); has {
			return
		}
	}
	before := cap(box.entries)
	box.entries = slices.Insert(box.entries, at, number)
	c.charge(g, entryBytes*int64(cap(box.entries)-before))
}

// olderFirst compares an entry with a sort key.
func (g *generation) olderFirst(number uint32, key string) int {
	return strings.Compare(key, g.keys[number])
}

// trim drops the oldest entries of an inbox that has too many: several at a time, because that copies what is kept.
func (c *Cache) trim(g *generation, box *inbox) {
	if len(box.entries) <= c.MostEntries {
		return
	}
	drop := len(box.entries) - c.keep
	box.floor = min(box.floor, g.keys[box.entries[drop-1]])
	box.missed = c.shown
	box.entries = slices.Delete(box.entries, 0, drop)
}

// ReadInbox returns what a reader's inbox has for a view of a version, and its floor; an empty floor means that it has nothing for the view.
func (c *Cache) ReadInbox(reader []byte, version uint64) (list List, floor string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.turn()
	g, box := c.find(reader)
	if box == nil || box.floor == "" || version < box.learned {
		return List{}, ""
	}
	return List{slices.Clone(box.entries), g.keys}, box.floor
}

// find returns the inbox of a reader from the young generation, into which it is moved.
func (c *Cache) find(reader []byte) (*generation, *inbox) {
	if box := c.young.inboxes[string(reader)]; box != nil {
		return c.young, box
	}
	box := c.old.inboxes[string(reader)]
	if box == nil {
		return c.young, nil
	}
	old := c.old
	c.remove(old, reader)
	entries := make([]uint32, 0, len(box.entries))
	for _, number := range box.entries {
		entries = append(entries, c.number(c.young, old.keys[number]))
	}
	box.entries = entries
	c.add(reader, box)
	return c.young, box
}

// LearnInbox tells the inbox of a reader what outboxes have at a view of a version, from one sort key up to, not including, another.
func (c *Cache) LearnInbox(reader []byte, version uint64, from []byte, sortKeys [][]byte, to []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	defer c.turn()
	g, box := c.find(reader)
	if box == nil {
		box = &inbox{missed: c.shown}
		c.add(reader, box)
	}
	if version < box.missed || string(from) > box.floor || string(to) <= box.floor {
		return
	}
	for _, key := range slices.Backward(sortKeys) {
		c.insert(g, box, c.number(g, string(key)))
	}
	box.floor, box.learned = string(to), max(box.learned, version)
	c.trim(g, box)
}

// DropInbox removes the inbox of a reader. Only views from a version on may begin another.
func (c *Cache) DropInbox(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown = max(c.shown, version)
	c.remove(c.young, reader)
	c.remove(c.old, reader)
}

func (c *Cache) clearInboxes() {
	c.charge(c.young, -c.young.bytes)
	c.charge(c.old, -c.old.bytes)
	c.young, c.old = newGeneration(), newGeneration()
}

// turn makes the young generation the old one once both take their part of the bound.
func (c *Cache) turn() {
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

func (c *Cache) add(reader []byte, box *inbox) {
	c.young.inboxes[string(reader)] = box
	c.charge(c.young, inboxBytes+int64(len(reader))+entryBytes*int64(cap(box.entries)))
}

func (c *Cache) remove(g *generation, reader []byte) {
	if box := g.inboxes[string(reader)]; box != nil {
		c.charge(g, -(inboxBytes + int64(len(reader)) + entryBytes*int64(cap(box.entries))))
		delete(g.inboxes, string(reader))
	}
}

// number returns that of a sort key.
func (c *Cache) number(g *generation, key string) uint32 {
	n, known := g.numbers[key]
	if !known {
		n = uint32(len(g.keys))
		g.keys, g.numbers[key] = append(g.keys, key), n
		c.charge(g, keyBytes+int64(len(key)))
	}
	return n
}
