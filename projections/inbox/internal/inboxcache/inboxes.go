package inboxcache

import (
	"slices"
	"strings"
)

// An inbox has the sort keys of the newest pins for one reader. A sort key is the complement of the
// pin's creation time in 8 bytes, followed by the ids of the owner and the pin. So the sort keys of
// newer pins are smaller:
//
//	newest pin                                                          oldest pin
//	smallest sort key ──────────────► floor ─────────────► greatest sort key, FloorAtEnd
//	  the inbox has every pin here   │  the inbox may lack pins here
//
// A view is a snapshot of the store. Each change of rows gives later views a higher version. The
// fold, which applies events to rows, tells the cache about an event before there is a view that
// shows it.
//
// Every pin is in the outbox of its owner, which is a list of rows. The fold also pushes the pin to
// the inboxes of the owner's followers, unless the owner has more followers than the threshold of
// the settings. The followers of such an owner pull: a page merges the owner's outbox with the
// inbox of the reader.
//
// LearnInbox creates an inbox when a page reads the pins of a reader who has none. The fold may have
// told the cache of events, of any user, that the page's view does not show yet, and a pin of such
// an event may belong in the inbox. The inbox then learns nothing from this page. But from then on it
// gets all deliveries, so it can learn from the next page that begins with the newest pin.

// FloorAtEnd is the floor of an inbox that lacks no pin, not even the oldest one. No sort key is as
// great, because the byte after the time is a tag of the encoding of ids and never 0xff.
const FloorAtEnd = "\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// generation is a set of inboxes that are dropped together. A pin is in the inboxes of many
// followers, so the generation stores each sort key once, and the inboxes have its index.
type generation struct {
	// inboxes maps each reader to the reader's inbox.
	inboxes map[string]*inbox
	// sortKeys has all sort keys that any inbox of the generation has or had, and indexOf is the
	// reverse map. Sort keys are appended, and never changed or removed. So an Iterator may read
	// its part of the slice without the lock while the generation appends to it.
	sortKeys []string
	indexOf  map[string]uint32
	// bytes is the estimated memory of the generation.
	bytes int64
}

// inbox is the inbox of a reader.
//
// Invariant: take any view of version minReadVersion or later, and the owners whom the reader follows
// in it and does not pull. The inbox has every sort key below floor that the view shows in an outbox
// of these owners. The inbox may also have sort keys of pins that the reader must not see, which
// pages leave out, and sort keys that are not below floor, which pages must ignore.
type inbox struct {
	// entries are indexes of sort keys, the oldest pin first, so that a new pin is appended.
	entries []uint32
	// floor is the sort key below which the inbox is complete. It is empty until LearnInbox has
	// added a range of sort keys; until then pages cannot read the inbox, and the inbox stores
	// every delivery.
	floor string
	// minReadVersion is the lowest version of a view for which the inbox can be read. An older view
	// may show a pin that was deleted before the inbox learned, and that the inbox therefore lacks.
	minReadVersion uint64
	// minLearnVersion is the lowest version of a view from which the inbox may learn. The inbox was
	// offered a pin that it did not store, or it has trimmed a pin away. An older view may lack
	// this pin, so learning from it would make the inbox look complete without the pin.
	minLearnVersion uint64
	// hidden has the items that the reader hides. It is right for views of version hiddenVersion or
	// later. It is nil if no page has read these items since the reader last hid or showed one, or
	// if there are too many of them.
	hidden *HiddenItems
	// hiddenVersion is the version of a view that shows every event about these items that the
	// cache has been told of.
	hiddenVersion uint64
}

const (
	// inboxOverhead estimates the bytes of an inbox, its floor and its element of the map, without
	// those of the reader's id, the entries and the hidden items.
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

// Iterator returns the sort keys that an inbox had when the Iterator was made, the newest pin first.
// Its methods need no lock. The zero Iterator returns nothing.
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

// SkipTo skips the sort keys that are smaller than from, which are those of newer pins.
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
	// delivery. If the next reader's inbox is in the same generation, index spares a lookup.
	index     uint32
	indexedIn *generation
}

// NewPushedPin returns the pin with this sort key. version is the lowest version of a view that
// will show the pin.
func NewPushedPin(sortKey []byte, version uint64) PushedPin {
	return PushedPin{sortKey: string(sortKey), version: version}
}

// SkipDelivery reports whether the cache has no inboxes at all, so that the fold need not look for
// the readers whom an event concerns. If the result is true, SkipDelivery has also recorded the
// event, so that an inbox which is created later does not learn from views without the event. If the
// result is false, the fold must call DeliverToInbox or DropInbox for each of these readers. version
// is the lowest version of a view that will show the event.
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
// only pins whose sort keys are below it. Even for a reader without an inbox, DeliverToInbox records
// that there was an event, so that an inbox which is created later does not learn from older views.
func (c *Cache) DeliverToInbox(pin *PushedPin, reader []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latestEventVersion = max(c.latestEventVersion, pin.version)

	// Do not move the inbox into the young generation. Only pages do so, when they read an inbox or
	// let it learn, because they show that the reader is still active.
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
	// a view without the pin. pin.version could be below the present minLearnVersion, but
	// latestEventVersion never is.
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
	place := n // a delivered pin is nearly always newer than all others
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

// trim removes the oldest entries of an inbox that has more than MaxEntries, so that trimTo entries
// are left. It removes many at a time, because each removal moves the remaining entries to the front
// of the slice. A range of old pins that LearnInbox has just added may be trimmed again at once. The
// caller holds mu.
func (c *Cache) trim(g *generation, box *inbox) {
	if len(box.entries) <= c.MaxEntries {
		return
	}

	// The inbox now lacks the newest removed pin and older ones. An empty floor stays empty, because
	// the empty string is the smallest.
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
// floor, if the view is older than minLearnVersion, or if the cache is closed. The view can be too
// old for an inbox that LearnInbox has just created (see the head of this file). Such an inbox
// stores all deliveries, and can learn from a later call with a nil from.
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

	// Insert the oldest pin first, so that each insertion into an empty inbox is an append.
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
// generation becomes the old one. The inboxes of the previous old generation are dropped, because no
// page has used them since the last rotation. The caller holds mu.
func (c *Cache) rotateIfFull() {
	limit := c.shared.Limit()
	if c.young.bytes <= limit/4 && c.young.bytes+c.old.bytes <= limit/2 {
		return
	}

	// The generation that was young usually has about a quarter of the limit. So there is room for a
	// new one, to which pages move the inboxes that they use.
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
