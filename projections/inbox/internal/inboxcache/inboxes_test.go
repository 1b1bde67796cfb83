package inboxcache

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/projections/querycache"
)

// versionedOutboxes has the outboxes that one reader merges, as they are at every version, and
// delivers new pins to a cache as a fold does.
type versionedOutboxes struct {
	cache *Cache
	// outboxes has, for each version, the sort keys of all outboxes, in order.
	outboxes [][]string
	// held has the versions of views that are still open.
	held []uint64
}

var reader = []byte("ann")

func (w *versionedOutboxes) version() uint64 { return uint64(len(w.outboxes) - 1) }

// addVersion adds a version in which a sort key was added, another was removed, or neither. An empty
// string adds or removes none.
func (w *versionedOutboxes) addVersion(added, removed string) {
	keys := slices.Clone(w.outboxes[w.version()])
	if index, has := slices.BinarySearch(keys, added); added != "" && !has {
		keys = slices.Insert(keys, index, added)
	}
	if index, has := slices.BinarySearch(keys, removed); has {
		keys = slices.Delete(keys, index, index+1)
	}
	if added != "" {
		w.deliver(added)
	}
	w.outboxes = append(w.outboxes, keys)
}

// deliver delivers a sort key that the next version shows, as a fold does.
func (w *versionedOutboxes) deliver(key string) {
	version := w.version() + 1
	if !w.cache.SkipDelivery(version) {
		c := NewPushedPin([]byte(key), version)
		w.cache.DeliverToInbox(&c, reader)
	}
}

// checkPage reads a page of n sort keys from a key on, at a view of a version, as a query does: from
// the inbox down to its floor, and then from the outboxes. It compares the page with the outboxes.
func (w *versionedOutboxes) checkPage(t *rapid.T, version uint64, from string, n int) {
	first, _ := slices.BinarySearch(w.outboxes[version], from)
	want := w.outboxes[version][first:]
	want = want[:min(n, len(want))]

	// The inbox down to its floor.
	list, floor := w.cache.ReadInbox(reader, version)
	var got []string
	list.SkipTo([]byte(from))
	for more := from < floor; more && len(got) < n; {
		var key string
		key, more = list.Next()
		if more && key >= floor {
			break
		}
		// An inbox may have a key of a pin that was removed, so the outboxes decide.
		if _, has := slices.BinarySearch(w.outboxes[version], key); more && has {
			got = append(got, key)
		}
	}

	// The outboxes below the floor. The inbox learns what was read.
	if len(got) < n {
		begin := max(from, floor)
		first, _ = slices.BinarySearch(w.outboxes[version], begin)
		below := w.outboxes[version][first:]
		learnedTo := end
		if missing := n - len(got); missing < len(below) {
			below = below[:missing]
			learnedTo = below[missing-1] + "\x00"
		}
		var sortKeys [][]byte
		for _, key := range below {
			got = append(got, key)
			sortKeys = append(sortKeys, []byte(key))
		}
		w.cache.LearnInbox(reader, version, []byte(begin), sortKeys, []byte(learnedTo))
	}

	if !slices.Equal(got, want) {
		t.Fatalf("page of version %d of %d from %q with a floor of %q: got %q, want %q",
			version, w.version(), from, floor, got, want)
	}
}

// end is after all sort keys.
const end = "~"

// noRelations replaces the relations of readers, which the tests of package graph are about.
type noRelations struct{}

func (noRelations) Repaired(uint64) {}
func (noRelations) Close()          {}

// newCache returns a cache without relations.
func newCache(shared *querycache.Cache, keep int) *Cache { return New(shared, noRelations{}, keep) }

// TestPagesAreThoseOfOutboxes checks that a page of a view of any age is that of the outboxes,
// whatever is added and removed, in any order of time, and whatever is trimmed, dropped or repaired
// (I8).
func TestPagesAreThoseOfOutboxes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache := querycache.New(1 << 20)
		w := &versionedOutboxes{
			cache:    newCache(cache, rapid.IntRange(1, 6).Draw(t, "keep")),
			outboxes: [][]string{{}},
		}
		key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%02d", rapid.IntRange(0, 40).Draw(t, "key")) })
		pageSize := rapid.IntRange(1, 9)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) { w.addVersion(key.Draw(t, "added"), "") },
			"add the newest": func(*rapid.T) {
				if keys := w.outboxes[w.version()]; len(keys) > 0 {
					w.addVersion("!"+fmt.Sprintf("%05d", 99999-w.version()), "")
				}
			},
			"remove": func(t *rapid.T) { w.addVersion("", key.Draw(t, "removed")) },
			"hold":   func(*rapid.T) { w.held = append(w.held, w.version()) },
			"page": func(t *rapid.T) {
				from := rapid.SampledFrom([]string{"", "", "07", "20"}).Draw(t, "from")
				w.checkPage(t, w.version(), from, pageSize.Draw(t, "n"))
			},
			"page of an older view": func(t *rapid.T) {
				if len(w.held) > 0 {
					w.checkPage(t, rapid.SampledFrom(w.held).Draw(t, "version"), "", pageSize.Draw(t, "n"))
				}
			},
			"delivered, and not shown yet": func(t *rapid.T) {
				added := key.Draw(t, "added")
				w.deliver(added)
				w.checkPage(t, w.version(), "", pageSize.Draw(t, "n"))
				keys := slices.Clone(w.outboxes[w.version()])
				if index, has := slices.BinarySearch(keys, added); !has {
					keys = slices.Insert(keys, index, added)
				}
				w.outboxes = append(w.outboxes, keys)
			},
			"repair": func(*rapid.T) {
				w.cache.Repaired(w.version() + 1)
				w.outboxes = append(w.outboxes, []string{"10", "20"})
			},
			"follow": func(t *rapid.T) {
				w.cache.DropInbox(reader, w.version()+1)
				if rapid.Bool().Draw(t, "read before it shows") {
					w.checkPage(t, w.version(), "", pageSize.Draw(t, "n"))
				}
				keys := rapid.SliceOfNDistinct(key, 0, 9, rapid.ID).Draw(t, "keys")
				slices.Sort(keys)
				w.outboxes = append(w.outboxes, keys)
			},
			"another reader": func(*rapid.T) { w.cache.LearnInbox([]byte("bob"), w.version(), nil, nil, []byte("10")) },
			"turn": func(*rapid.T) {
				w.cache.mu.Lock()
				defer w.cache.mu.Unlock()
				w.cache.charge(w.cache.young, cache.Limit())
				w.cache.rotateIfFull()
			},
		})

		// A closed cache keeps nothing.
		w.cache.Close()
		w.cache.LearnInbox(reader, w.version(), nil, nil, []byte(end))
		if left := cache.Stats().Bytes; left != 0 {
			t.Fatalf("got %d bytes in use after the cache was closed, want none", left)
		}
	})
}

// newCacheOfEmptyOutboxes returns a cache with inboxes of some readers, which have learned that
// outboxes are empty.
func newCacheOfEmptyOutboxes(cache *querycache.Cache, readers int) *Cache {
	s := newCache(cache, 1000)
	for i := range readers {
		s.LearnInbox(readerID(i), 0, nil, nil, []byte(end))
	}
	return s
}

func readerID(i int) []byte { return fmt.Appendf(nil, "reader%06d", i) }

// TestDeliveryMakesNoInbox checks that a delivery to a reader who reads no page takes no memory.
func TestDeliveryMakesNoInbox(t *testing.T) {
	cache := querycache.New(1 << 20)
	s := newCacheOfEmptyOutboxes(cache, 1)
	before := cache.Stats().Bytes

	c := NewPushedPin([]byte("key"), 1)
	s.DeliverToInbox(&c, readerID(1))
	if n := cache.Stats().Bytes - before; n != 0 {
		t.Errorf("the delivery added %d bytes to the cache, want none", n)
	}
	if _, floor := s.ReadInbox(readerID(1), 1); floor != "" {
		t.Errorf("got an inbox down to %q, want none", floor)
	}
}

// TestInboxesAreBounded checks that inboxes that no page reads are dropped for others, that those that
// are read stay, and that all together keep their limit.
func TestInboxesAreBounded(t *testing.T) {
	cache := querycache.New(1 << 20)
	s := newCacheOfEmptyOutboxes(cache, 0)
	for i := range 20_000 {
		s.LearnInbox(readerID(i), 0, nil, nil, []byte(end))
		if _, floor := s.ReadInbox(readerID(0), 0); floor != end {
			t.Fatalf("after %d readers: the inbox that is read reaches down to %q, want %q", i, floor, end)
		}

		c := NewPushedPin(fmt.Appendf(nil, "key%06d", 20_000-i), 1)
		s.DeliverToInbox(&c, readerID(i))
		if n, limit := cache.Stats().Bytes, cache.Limit()/2+1<<10; n > limit {
			t.Fatalf("after %d readers: got %d bytes in use, want at most %d", i, n, limit)
		}
	}

	if _, floor := s.ReadInbox(readerID(1), 0); floor != "" {
		t.Errorf("an inbox that is not read reaches down to %q, want it dropped", floor)
	}
}

// TestInboxesThatAreReadSurviveTheOthers checks that a full cache drops inboxes that are not read, and
// keeps all that are.
func TestInboxesThatAreReadSurviveTheOthers(t *testing.T) {
	const readAgain = 10
	s := newCacheOfEmptyOutboxes(querycache.New(1<<20), readAgain)
	for i := range 20_000 {
		s.LearnInbox(readerID(readAgain+i), 0, nil, nil, []byte(end))
		for r := range readAgain {
			if _, floor := s.ReadInbox(readerID(r), 0); floor != end {
				t.Fatalf("after %d other readers the inbox of reader %d reaches down to %q, want %q", i+1, r, floor, end)
			}
		}
	}
}

// TestTrimmedInboxIsCompleteAboveItsFloor checks that an inbox keeps the newest pins, and is complete
// down to the newest pin that it does not have.
func TestTrimmedInboxIsCompleteAboveItsFloor(t *testing.T) {
	s := newCache(querycache.New(1<<20), 4)
	s.LearnInbox(reader, 0, nil, nil, []byte(end))
	for i := range 6 {
		c := NewPushedPin([]byte{byte('9' - i)}, 1)
		s.DeliverToInbox(&c, reader)
	}

	list, floor := s.ReadInbox(reader, 1)
	var got []string
	for key, more := list.Next(); more; key, more = list.Next() {
		got = append(got, key)
	}
	if want := []string{"4", "5", "6", "7"}; !slices.Equal(got, want) {
		t.Errorf("got the keys %q, want %q", got, want)
	}
	if floor != "8" {
		t.Errorf("got the floor %q, want 8", floor)
	}
}

// TestDropRemovesOneInbox checks that a drop removes one inbox and leaves the others.
func TestDropRemovesOneInbox(t *testing.T) {
	s := newCacheOfEmptyOutboxes(querycache.New(1<<20), 2)
	s.DropInbox(readerID(0), 1)
	for i, want := range []string{"", end} {
		if _, floor := s.ReadInbox(readerID(i), 1); floor != want {
			t.Errorf("inbox %d reaches down to %q, want %q", i, floor, want)
		}
	}
}

// TestPagesDuringDelivery checks that pages that are read while pins are delivered are in order.
func TestPagesDuringDelivery(t *testing.T) {
	s := newCacheOfEmptyOutboxes(querycache.New(1<<20), 0)
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			for n := range 3000 {
				list, _ := s.ReadInbox(readerID(n%7), uint64(n))
				last := ""
				for key, more := list.Next(); more; key, more = list.Next() {
					if key <= last {
						t.Errorf("reader %d: got the key %q after %q, want rising keys", i, key, last)
						return
					}
					last = key
				}
				s.LearnInbox(readerID(n%7), uint64(n), nil, [][]byte{[]byte("5"), []byte("7")}, []byte(end))
			}
		})
	}

	for n := range 3000 {
		c := NewPushedPin(fmt.Appendf(nil, "%06d", (n*7919)%100_000), uint64(n))
		for i := range 7 {
			s.DeliverToInbox(&c, readerID(i))
		}
	}
	readers.Wait()
}

// BenchmarkDeliver measures one delivery to one of 100,000 inboxes.
func BenchmarkDeliver(b *testing.B) {
	const readers = 100_000
	s := newCacheOfEmptyOutboxes(querycache.New(1<<30), readers)
	names := make([][]byte, readers)
	for i := range names {
		names[i] = readerID(i)
	}
	b.ReportAllocs()
	var c PushedPin
	for i := 0; b.Loop(); i++ {
		if i%20 == 0 {
			c = NewPushedPin(fmt.Appendf(nil, "%012d", 1_000_000_000-i), 1)
		}
		s.DeliverToInbox(&c, names[i*7919%readers])
	}
}
