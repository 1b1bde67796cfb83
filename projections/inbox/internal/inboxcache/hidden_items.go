package inboxcache

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// MaxHiddenItems is the largest number of hidden items that an inbox keeps in memory. Few readers
// hide more; their pages read a row for each pin instead.
const MaxHiddenItems = 512

// HiddenItems is the set of the items that a reader hides. It is immutable. A sorted array of
// hashes takes half the memory of a map.
type HiddenItems struct {
	seed maphash.Seed
	// hashes are in ascending order. items[i] is the item with the hash hashes[i].
	hashes []uint32
	items  []string
}

// NewHiddenItems returns the set of the items. It keeps the slice and changes its order.
func (c *Cache) NewHiddenItems(items []string) *HiddenItems {
	h := &HiddenItems{seed: c.hiddenSeed, hashes: make([]uint32, len(items)), items: items}
	slices.SortFunc(h.items, func(a, b string) int { return cmp.Compare(h.hash(a), h.hash(b)) })
	for i, item := range h.items {
		h.hashes[i] = h.hash(item)
	}
	return h
}

func (h *HiddenItems) hash(item string) uint32 { return uint32(maphash.String(h.seed, item)) }

// Contains reports whether the reader hides an item.
func (h *HiddenItems) Contains(item string) bool {
	hash := h.hash(item)
	i, _ := slices.BinarySearch(h.hashes, hash)
	for ; i < len(h.hashes) && h.hashes[i] == hash; i++ {
		if h.items[i] == item {
			return true
		}
	}
	return false
}

// bytes returns the estimated memory of the set. h may be nil.
func (h *HiddenItems) bytes() int64 {
	const (
		overhead  = 64
		entrySize = 4 + 16 // a hash and the head of a string
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

// HiddenItems returns the items that a reader hides in a view of this version, or nil if the cache
// does not know them. wanted reports whether LearnHiddenItems would then keep them for later pages.
func (c *Cache) HiddenItems(reader []byte, version uint64) (items *HiddenItems, wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull() // the young generation may have grown
	box := c.findAndPromote(reader)
	if box == nil || version < box.hiddenVersion {
		return nil, false
	}
	return box.hidden, box.hidden == nil
}

// LearnHiddenItems keeps the items that a reader hides in a view of this version. It keeps nothing
// if the reader has no inbox, or if the items may have changed since that view.
func (c *Cache) LearnHiddenItems(reader []byte, version uint64, items *HiddenItems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.rotateIfFull()
	box := c.findAndPromote(reader)
	if box == nil || version < box.hiddenVersion {
		return
	}
	c.charge(c.young, items.bytes()-box.hidden.bytes())
	box.hidden = items
}

// ForgetHiddenItems removes the hidden items of a reader, because an event changes them. version is
// the lowest version of a view that will show the event.
func (c *Cache) ForgetHiddenItems(reader []byte, version uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// An inbox that is created later must not learn from views that do not show the event.
	c.latestEventVersion = max(c.latestEventVersion, version)

	for _, g := range []*generation{c.young, c.old} {
		if box := g.inboxes[string(reader)]; box != nil {
			c.charge(g, -box.hidden.bytes())
			box.hidden = nil
			box.hiddenVersion = c.latestEventVersion
		}
	}
}
