package inboxcache

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/projections/querycache"
)

const hideableItems = 6

// hidingWorld is a reader who hides items, and a cache that pages of views of every version ask.
type hidingWorld struct {
	cache *Cache
	// hidden are the items that the reader hides, by version.
	hidden []map[string]bool
	// slowPages are the versions of the views of pages that have read the rows and have not yet
	// let the cache learn them.
	slowPages []uint64
}

func (w *hidingWorld) version() uint64 { return uint64(len(w.hidden) - 1) }

// readPage asks the cache as a page of a view of a version does: it learns the items if the cache
// wants them, and reads the rows if it does not know them.
func (w *hidingWorld) readPage(t *rapid.T, version uint64) {
	rows := w.hidden[version]
	cached, wanted := w.cache.HiddenItems(reader, version)
	if wanted && rapid.Bool().Draw(t, "slow page") {
		w.slowPages = append(w.slowPages, version)
		return
	}
	if wanted {
		w.learn(version)
		cached, _ = w.cache.HiddenItems(reader, version)
	}
	if cached == nil {
		return
	}
	for i := range hideableItems {
		item := fmt.Sprint("i", i)
		if got, want := cached.Contains(item), rows[item]; got != want {
			t.Fatalf("in a view of version %d of %d: hides %s: %v, want %v", version, w.version(), item, got, want)
		}
	}
}

// learn lets the cache learn the rows of a version.
func (w *hidingWorld) learn(version uint64) {
	items := slices.Collect(maps.Keys(w.hidden[version]))
	w.cache.LearnHiddenItems(reader, version, w.cache.NewHiddenItems(items))
}

// TestHiddenItemsAreThoseOfTheView: whatever a reader hides and shows, and whatever happens to the
// inbox in between, the cache has no other items than the rows of the same view (I1).
func TestHiddenItemsAreThoseOfTheView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shared := querycache.New(1 << 20)
		w := &hidingWorld{cache: newCache(shared, 10), hidden: []map[string]bool{{}}}
		t.Repeat(map[string]func(*rapid.T){
			"hide or show": func(t *rapid.T) {
				item := fmt.Sprint("i", rapid.IntRange(0, hideableItems-1).Draw(t, "item"))
				hide := rapid.Bool().Draw(t, "hide")
				if version := w.version() + 1; !w.cache.SkipDelivery(version) {
					w.cache.ForgetHiddenItems(reader, version)
				}
				// The fold has told the cache, and the latest view does not show the event yet.
				if rapid.Bool().Draw(t, "page before the view") {
					w.readPage(t, w.version())
				}

				next := maps.Clone(w.hidden[w.version()])
				delete(next, item)
				if hide {
					next[item] = true
				}
				w.hidden = append(w.hidden, next)
			},
			"page": func(t *rapid.T) {
				w.readPage(t, rapid.Uint64Range(w.version()/2, w.version()).Draw(t, "version"))
			},
			"slow page ends": func(*rapid.T) {
				if len(w.slowPages) > 0 {
					w.learn(w.slowPages[0])
					w.slowPages = w.slowPages[1:]
				}
			},
			"begin an inbox": func(*rapid.T) { w.cache.LearnInbox(reader, w.version(), nil, nil, []byte(end)) },
			"drop the inbox": func(*rapid.T) {
				w.cache.DropInbox(reader, w.version()+1)
				w.hidden = append(w.hidden, w.hidden[w.version()])
			},
			"repair": func(*rapid.T) {
				w.cache.Repaired(w.version() + 1)
				w.hidden = append(w.hidden, map[string]bool{"i1": true})
			},
			"rotate": func(*rapid.T) {
				w.cache.mu.Lock()
				defer w.cache.mu.Unlock()
				w.cache.charge(w.cache.young, shared.Limit())
				w.cache.rotateIfFull()
			},
		})

		w.cache.Close()
		if left := shared.Stats().Bytes; left != 0 {
			t.Fatalf("%d bytes are charged after the cache was closed, want 0", left)
		}
	})
}

// TestHiddenItemsAreLearnedOnce shows that the second page of a reader finds the items that the
// first one has learned, and no others.
func TestHiddenItemsAreLearnedOnce(t *testing.T) {
	c := newCacheOfEmptyOutboxes(querycache.New(1<<20), 1)
	if cached, wanted := c.HiddenItems(readerID(0), 1); cached != nil || !wanted {
		t.Fatalf("first page: cached %v, wanted %v; want none, and wanted", cached, wanted)
	}
	hidden := make([]string, MaxHiddenItems)
	for i := range hidden {
		hidden[i] = fmt.Sprint("hidden", i)
	}
	c.LearnHiddenItems(readerID(0), 1, c.NewHiddenItems(slices.Clone(hidden)))

	cached, wanted := c.HiddenItems(readerID(0), 1)
	if cached == nil || wanted {
		t.Fatalf("second page: cached %v, wanted %v; want items that are not wanted again", cached, wanted)
	}
	for i, item := range hidden {
		if !cached.Contains(item) {
			t.Errorf("the cache lacks %s, which the reader hides", item)
		}
		if other := fmt.Sprint("other", i); cached.Contains(other) {
			t.Errorf("the cache has %s, which the reader does not hide", other)
		}
	}
}

// TestItemsOfEqualHashesAreDistinct shows that an item is not taken for another with the same hash.
func TestItemsOfEqualHashesAreDistinct(t *testing.T) {
	h := &HiddenItems{items: []string{"a", "b"}}
	h.seed = newCache(querycache.New(1<<20), 10).hiddenSeed
	hash := h.hash("c")
	h.hashes = []uint32{hash, hash}
	if h.Contains("c") {
		t.Error("c is hidden, want only a and b")
	}
	h.items[1] = "c"
	if !h.Contains("c") {
		t.Error("c is not hidden, want that behind another item with its hash")
	}
}

// TestNobodyWithoutInboxIsRemembered shows that readers who have no inbox take no memory.
func TestNobodyWithoutInboxIsRemembered(t *testing.T) {
	shared := querycache.New(1 << 20)
	c := newCacheOfEmptyOutboxes(shared, 0)
	c.LearnHiddenItems(readerID(7), 1, c.NewHiddenItems([]string{"i1"}))
	if cached, wanted := c.HiddenItems(readerID(7), 1); cached != nil || wanted {
		t.Errorf("cached %v, wanted %v; want neither", cached, wanted)
	}
	if bytes := shared.Stats().Bytes; bytes != 0 {
		t.Errorf("%d bytes are charged, want 0", bytes)
	}
}
