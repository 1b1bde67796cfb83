package inboxcache

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// MaxHiddenItems is the largest number of hidden items for which a caller should make a set. The
// few readers who hide more have no set in memory: for each pin of their pages, the query reads
// from the store whether they hide its item.
const MaxHiddenItems = 512

// HiddenItems is the set of the items that a reader hides. It does not change once it is made, so
// pages use it without a lock. It is two sorted slices, because they take half the memory of a map.
type HiddenItems struct {
	seed maphash.Seed
	// hashes are the hashes of items, in ascending order. Different items may have equal hashes.
	hashes []uint32
	// items are the ids of the items, in the order of their hashes.
	items []string
}

// NewHiddenItems makes a set of items, with the hash seed of the cache. It does not add the set to
// the cache, which is what LearnHiddenItems does. It sorts the given slice and keeps it, so the
// caller must not use the slice any more.
func (c *Cache) NewHiddenItems(items []string) *HiddenItems {
	h := &HiddenItems{seed: c.hiddenSeed, hashes: make([]uint32, len(items)), items: items}
	slices.SortFunc(h.items, func(a, b string) int { return cmp.Compare(h.hash(a), h.hash(b)) })
	for i, item := range h.items {
		h.hashes[i] = h.hash(item)
	}
	return h
}

func (h *HiddenItems) hash(item string) uint32 { return uint32(maphash.String(h.seed, item)) }

// Contains reports whether the set has the item.
func (h *HiddenItems) Contains(item string) bool {
	hash := h.hash(item)
	i, _ := slices.BinarySearch(h.hashes, hash) // the first of the equal hashes, if there are any
	for ; i < len(h.hashes) && h.hashes[i] == hash; i++ {
		if h.items[i] == item {
			return true
		}
	}
	return false
}

// bytes returns the estimated memory of the set, or 0 if h is nil.
func (h *HiddenItems) bytes() int64 {
	const (
		overhead  = 64     // the struct
		entrySize = 4 + 16 // a hash, and a string without its bytes
	)
	if h == nil {
		return 0
	}
	n := int64(overhead)
	for _, item := range h.items {
		n += entrySize + int64(len(item))
	}
	return n
}

// HiddenItems returns the set of the items that a reader hides in a view of the store. version is
// the version of the view. There are three results:
//
//   - A set. It is empty if the reader hides nothing.
//   - nil and wanted. The cache has an inbox of the reader, but no set. The caller should read the
//     items from the view and call LearnHiddenItems.
//   - nil and not wanted. The cache has no inbox of the reader, or the view is too old.
func (c *Cache) HiddenItems(reader []byte, version uint64) (items *HiddenItems, wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull() // findAndPromote may add the inbox to the young generation
	box := c.findAndPromote(reader)
	if box == nil || version < box.hiddenVersion {
		return nil, false
	}
	return box.hidden, box.hidden == nil
}

// LearnHiddenItems adds the set of the items that a reader hides in a view of the store to the
// cached inbox of the reader. version is the version of the view. It does nothing if the cache has
// no inbox of the reader, or if the view does not show every event that ForgetHiddenItems was
// called for.
func (c *Cache) LearnHiddenItems(reader []byte, version uint64, items *HiddenItems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull()
	box := c.findAndPromote(reader)
	if box == nil || version < box.hiddenVersion {
		return
	}
	c.charge(c.young, items.bytes()-box.hidden.bytes()) // findAndPromote has moved the inbox there
	box.hidden = items
}

// ForgetHiddenItems removes the set of a reader from the cache, because an event changes which
// items the reader hides. version is the lowest version of a view that will show the event. The
// fold must call ForgetHiddenItems before there is such a view: a page of that view must not find
// the old set.
func (c *Cache) ForgetHiddenItems(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// If the reader has no inbox now, a later one takes its hiddenVersion from latestEventVersion.
	c.latestEventVersion = max(c.latestEventVersion, version)

	// Look into both generations instead of moving the inbox to the young one: no page has read it.
	for _, g := range []*generation{c.young, c.old} {
		if box := g.inboxes[string(reader)]; box != nil {
			c.charge(g, -box.hidden.bytes())
			box.hidden = nil
			box.hiddenVersion = c.latestEventVersion // never falls, unlike version
		}
	}
}
