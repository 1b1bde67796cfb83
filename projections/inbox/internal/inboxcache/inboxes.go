package inboxcache

import (
	"slices"
	"strings"
)

// An inbox has the sort keys of the newest pins for one reader. A sort key is the complement of the
// pin's creation time in 8 bytes, followed by the ids of the owner and the pin. So the sort keys of
// newer pins are smaller.
//
// A view is a snapshot of the store. Each change of rows gives later views a higher version. The
// fold, which applies events to rows, tells the cache about an event before there is a view that
// shows it.
//
// Every pin is in the outbox of its owner, which is a list of rows. The fold also pushes the pin to
// the inboxes of the owner's followers, except if the owner has very many. The fold does not push
// the pins of such an owner. A follower pulls the owner's outbox: pages read it beside the inbox.

// FloorAtEnd is the floor of an inbox that has all pins down to the oldest one. It is greater than
// every sort key, because the byte that follows the time is never 0xff: it is a tag of the encoding
// of ids.
const FloorAtEnd = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// generation is a set of inboxes that are dropped together. A pin is in the inboxes of many
// followers, so the generation stores each sort key once, and the inboxes have its index.
type generation struct {
	// inboxes maps each reader to the reader's inbox.
	inboxes map[string]*inbox
	// sortKeys has all sort keys that an inbox of the generation has or had, and indexOf is the
	// reverse map. Sort keys are appended, and never changed or removed. So an Iterator may read
	// its part of the slice without the lock while the generation appends to it.
	sortKeys []string
	indexOf  map[string]uint32
	// bytes is the estimated memory of the generation.
	bytes int64
}

// inbox is the inbox of a reader.
//
// Invariant: for a view of version minReadVersion or later, the inbox has every sort key below
// floor that is in an outbox which the reader follows and does not pull. It may also have sort keys
// of pins that the reader does not see, which pages leave out, and sort keys that are not below
// floor, which pages must ignore.
type inbox struct {
	// entries are indexes of sort keys, the oldest pin first, so that a new pin is appended.
	entries []uint32
	// floor is an exclusive upper bound of sort keys: the inbox lacks no sort key below floor. So
	// floor lies at the old end of the inbox. It is empty until LearnInbox has added a range of
	// sort keys; until then pages cannot read the inbox, and the inbox stores every delivery.
	floor string
	// minReadVersion is the lowest version of a view for which the inbox can be read. Older views
	// may show pins that the inbox lacks, because they were deleted before the inbox learned.
	minReadVersion uint64
	// minLearnVersion is the lowest version of a view from which the inbox may learn. Older views
	// may lack a pin that was delivered and is not in the inbox either, because the inbox did not
	// store it or has trimmed it away.
	minLearnVersion uint64
	// hidden has the items that the reader hides in all views of version hiddenVersion or later. It
	// is nil if no page has read these items since they last changed, or if they are too many.
	hidden *HiddenItems
	// hiddenVersion is the lowest version of a view that shows every event so far about the items
	// that the reader hides.
	hiddenVersion uint64
}

const (
	// inboxOverhead estimates the bytes of an inbox and its element of the map, without those of
	// the reader's id and of the entries.
	inboxOverhead = 176
	// internedKeyOverhead estimates the bytes of an element of sortKeys and one of indexOf, without
	// those of the sort key itself.
	internedKeyOverhead = 64
	// entryBytes is the size of an entry of an inbox.
	entryBytes = 4
)

func newGeneration() *generation {
	return &generation{inboxes: map[string]*inbox{}, indexOf: map[string]uint32{}}
}

// Iterator returns the sort keys that an inbox had when it was read, the newest pin first, without
// a lock. The zero Iterator returns nothing.
type Iterator struct {
	// remaining are the indexes of the sort keys that Next has not returned, the newest pin last.
	remaining []uint32
	// sortKeys are the sort keys of the generation, to which the indexes refer.
	sortKeys []string
}

// Next returns the next sort key. ok is false if there is none.
func (it *Iterator) Next() (sortKey string, ok bool) {
	last := len(it.remaining) - 1
	if last < 0 {
		return "", false
	}
	sortKey = it.sortKeys[it.remaining[last]]
	it.remaining = it.remaining[:last]
	return sortKey, true
}

// SkipTo skips the sort keys that are smaller than from. They belong to newer pins.
func (it *Iterator) SkipTo(from []byte) {
	for last := len(it.remaining) - 1; last >= 0 && it.sortKeys[it.remaining[last]] < string(from); last-- {
		it.remaining = it.remaining[:last]
	}
}

// PushedPin is a pin that the fold delivers to the inboxes of many readers.
type PushedPin struct {
	sortKey string
	// version is the lowest version of a view that will show the pin.
	version uint64
	// index is the index of sortKey in the generation indexedIn, which is nil before the first
	// delivery. Keeping the index spares a lookup for the next inbox of the same generation.
	index     uint32
	indexedIn *generation
}

// NewPushedPin returns the pin with this sort key. version is the lowest version of a view that
// will show the pin.
func NewPushedPin(sortKey []byte, version uint64) PushedPin {
	return PushedPin{sortKey: string(sortKey), version: version}
}

// SkipDelivery reports whether the cache has no inboxes at all, so that the fold need not look for
// the readers whom an event concerns. In that case it also records the event, so that an inbox
// which is created later does not learn from views that lack it. If the result is false, the fold
// must call DeliverToInbox or DropInbox for each of these readers. version is the lowest version of
// a view that will show the event.
func (c *Cache) SkipDelivery(version uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young.inboxes)+len(c.old.inboxes) > 0 {
		return false
	}
	c.latestEventVersion = max(c.latestEventVersion, version)
	return true
}

// DeliverToInbox adds a pin to the inbox of a reader, if there is one. An inbox with a floor stores
// only pins whose sort keys are below it.
func (c *Cache) DeliverToInbox(pin *PushedPin, reader []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latestEventVersion = max(c.latestEventVersion, pin.version)

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

	// The inbox does not store this pin. So it must not learn a range that may include the pin from
	// a view without the pin. Use latestEventVersion, which never falls, and not pin.version.
	if box.floor != "" && pin.sortKey >= box.floor {
		box.minLearnVersion = c.latestEventVersion
		return
	}

	if pin.indexedIn != g {
		pin.indexedIn = g
		pin.index = c.addSortKey(g, pin.sortKey)
	}
	c.insertEntry(g, box, pin.index)
	c.trim(g, box)
	c.rotateIfFull()
}

// insertEntry adds the entry of a pin to an inbox of the generation, unless the inbox has it
// already. The caller holds mu.
func (c *Cache) insertEntry(g *generation, box *inbox, entry uint32) {
	key := g.sortKeys[entry]
	n := len(box.entries)
	place := n // nearly always the pin is newer than all others
	if n > 0 && g.sortKeys[box.entries[n-1]] <= key {
		var found bool
		if place, found = slices.BinarySearchFunc(box.entries, key, g.compareEntry); found {
			return
		}
	}

	capacity := cap(box.entries)
	box.entries = slices.Insert(box.entries, place, entry)
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

	// From the newest removed pin on, the inbox is no longer complete. An empty floor stays empty,
	// because the empty string is the smallest.
	removed := len(box.entries) - c.trimTo
	box.floor = min(box.floor, g.sortKeys[box.entries[removed-1]])
	box.minLearnVersion = c.latestEventVersion
	box.entries = slices.Delete(box.entries, 0, removed)
}

// ReadInbox returns the sort keys of a reader's inbox, and the floor of the inbox. version is the
// version of the caller's view. The caller must ignore sort keys that are not below the floor, and
// must check that the view shows each pin to the reader. The floor is empty if there is no inbox
// that can be read for this view. ReadInbox moves the inbox into the young generation.
func (c *Cache) ReadInbox(reader []byte, version uint64) (sortKeys Iterator, floor string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull() // the young generation may have grown
	box := c.findAndPromote(reader)
	if box == nil || box.floor == "" || version < box.minReadVersion {
		return Iterator{}, ""
	}
	// Deliveries change box.entries, so the iterator gets a copy. findAndPromote has moved the
	// inbox into the young generation.
	return Iterator{remaining: slices.Clone(box.entries), sortKeys: c.young.sortKeys}, box.floor
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
	// The same sort key has different indexes in the two generations.
	entries := make([]uint32, 0, len(box.entries))
	for _, entry := range box.entries {
		entries = append(entries, c.addSortKey(c.young, c.old.sortKeys[entry]))
	}
	box.entries = entries
	c.addInbox(reader, box)
	return box
}

// LearnInbox adds a range of sort keys to the inbox of a reader, which it creates if there is none.
// sortKeys are, in ascending order, all sort keys in the range [from, to) that a page has found at
// a view of this version in the outboxes that the reader follows and does not pull. A nil from is
// smaller than every sort key.
//
// LearnInbox adds nothing if there is a gap between the floor and from, if to is not above the
// floor, if the view is older than minLearnVersion, or if the cache is closed. A new inbox to which
// LearnInbox adds nothing stores all deliveries, and learns from the next page that begins with a
// nil from.
func (c *Cache) LearnInbox(reader []byte, version uint64, from []byte, sortKeys [][]byte, to []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	defer c.rotateIfFull()

	box := c.findAndPromote(reader)
	if box == nil {
		box = &inbox{minLearnVersion: c.latestEventVersion, hiddenVersion: c.latestEventVersion}
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

// DropInbox removes the inbox of a reader, because an event has changed what belongs in it. version
// is the lowest version of a view that will show the event. Inboxes that are created later do not
// learn from older views.
func (c *Cache) DropInbox(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latestEventVersion = max(c.latestEventVersion, version)
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
// has read them since the last rotation. The caller holds mu.
func (c *Cache) rotateIfFull() {
	limit := c.shared.Limit()
	if c.young.bytes <= limit/4 && c.young.bytes+c.old.bytes <= limit/2 {
		return
	}

	// The generation that was young usually has little more than a quarter of the limit. So there
	// is room for a new one, to which pages move the inboxes that they read.
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
	return inboxOverhead + int64(len(reader)) + entryBytes*int64(cap(box.entries)) + box.hidden.bytes()
}

// addSortKey returns the index of a sort key in a generation. It adds the sort key if it is not
// there yet. The caller holds mu.
func (c *Cache) addSortKey(g *generation, sortKey string) uint32 {
	if index, known := g.indexOf[sortKey]; known {
		return index
	}
	index := uint32(len(g.sortKeys))
	g.sortKeys = append(g.sortKeys, sortKey)
	g.indexOf[sortKey] = index
	c.charge(g, internedKeyOverhead+int64(len(sortKey)))
	return index
}
