package inboxcache

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/projections/querycache"
)

// world is outboxes that one reader merges, as they are at every version, and what a fold delivers.
type world struct {
	cache *Cache
	// outboxes are the sort keys of all outboxes, in order, by version.
	outboxes [][]string
	// held are versions of views that are still open.
	held []uint64
}

var reader = []byte("ann")

func (w *world) version() uint64 { return uint64(len(w.outboxes) - 1) }

// next has one sort key come, or go, or neither, with the next version.
func (w *world) next(come, goes string) {
	keys := slices.Clone(w.outboxes[w.version()])
	if at, has := slices.BinarySearch(keys, come); come != "" && !has {
		keys = slices.Insert(keys, at, come)
	}
	if at, has := slices.BinarySearch(keys, goes); has {
		keys = slices.Delete(keys, at, at+1)
	}
	if come != "" {
		w.deliver(come)
	}
	w.outboxes = append(w.outboxes, keys)
}

// deliver delivers a sort key that the next version shows, as a fold does.
func (w *world) deliver(come string) {
	if version := w.version() + 1; !w.cache.SkipDelivery(version) {
		c := NewPushedPin([]byte(come), version)
		w.cache.DeliverToInbox(&c, reader)
	}
}

// read reads a page of n from a sort key on, at a view of a version, as a page does: of the inbox
// down to its floor, and then of outboxes.
func (w *world) read(t *rapid.T, version uint64, from string, n int) {
	at, _ := slices.BinarySearch(w.outboxes[version], from)
	want := w.outboxes[version][at:]
	want = want[:min(n, len(want))]
	list, floor := w.cache.ReadInbox(reader, version)
	var got []string
	list.SkipTo([]byte(from))
	for more := from < floor; more && len(got) < n; {
		var key string
		if key, more = list.Next(); more && key >= floor {
			break
		}
		// Whether a pin is there decides the page.
		if _, has := slices.BinarySearch(w.outboxes[version], key); more && has {
			got = append(got, key)
		}
	}
	if len(got) < n {
		begin := max(from, floor)
		at, _ = slices.BinarySearch(w.outboxes[version], begin)
		below := w.outboxes[version][at:]
		to := end
		if more := n - len(got); more < len(below) {
			below, to = below[:more], below[more-1]+"\x00"
		}
		var sortKeys [][]byte
		for _, key := range below {
			got, sortKeys = append(got, key), append(sortKeys, []byte(key))
		}
		w.cache.LearnInbox(reader, version, []byte(begin), sortKeys, []byte(to))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("at %d of %d from %q with a floor of %q: %q, want %q", version, w.version(), from, floor, got, want)
	}
}

const end = "~"

// noRelations stands for the relations of readers, which the tests of package graph are about.
type noRelations struct{}

func (noRelations) Repaired(uint64) {}
func (noRelations) Close()          {}

func newCache(shared *querycache.Cache, keep int) *Cache { return New(shared, noRelations{}, keep) }

// TestPagesAreThoseOfOutboxes: whatever comes and goes, in any order of time, whatever is trimmed,
// dropped or repaired, a page of a view of any age is that of the outboxes (I8).
func TestPagesAreThoseOfOutboxes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cache := querycache.New(1 << 20)
		w := &world{newCache(cache, rapid.IntRange(1, 6).Draw(t, "keep")), [][]string{{}}, nil}
		key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("%02d", rapid.IntRange(0, 40).Draw(t, "key")) })
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) { w.next(key.Draw(t, "come"), "") },
			"newest comes": func(*rapid.T) {
				if keys := w.outboxes[w.version()]; len(keys) > 0 {
					w.next("!"+fmt.Sprintf("%05d", 99999-w.version()), "")
				}
			},
			"go":   func(t *rapid.T) { w.next("", key.Draw(t, "go")) },
			"hold": func(*rapid.T) { w.held = append(w.held, w.version()) },
			"page": func(t *rapid.T) {
				w.read(t, w.version(), rapid.SampledFrom([]string{"", "", "07", "20"}).Draw(t, "from"), rapid.IntRange(1, 9).Draw(t, "n"))
			},
			"page of an older view": func(t *rapid.T) {
				if len(w.held) > 0 {
					w.read(t, rapid.SampledFrom(w.held).Draw(t, "version"), "", rapid.IntRange(1, 9).Draw(t, "n"))
				}
			},
			"delivered, and not shown yet": func(t *rapid.T) {
				come := key.Draw(t, "come")
				w.deliver(come)
				w.read(t, w.version(), "", rapid.IntRange(1, 9).Draw(t, "n"))
				keys := slices.Clone(w.outboxes[w.version()])
				if at, has := slices.BinarySearch(keys, come); !has {
					keys = slices.Insert(keys, at, come)
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
					w.read(t, w.version(), "", rapid.IntRange(1, 9).Draw(t, "n"))
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
		w.cache.Close()
		w.cache.LearnInbox(reader, w.version(), nil, nil, []byte(end))
		if left := cache.Stats().Bytes; left != 0 {
			t.Fatalf("%d bytes are kept once the store is closed", left)
		}
	})
}

// learned are inboxes of some readers that have learned that outboxes are empty.
func learned(cache *querycache.Cache, readers int) *Cache {
	s := newCache(cache, 1000)
	for i := range readers {
		s.LearnInbox(name(i), 0, nil, nil, []byte(end))
	}
	return s
}

func name(i int) []byte { return fmt.Appendf(nil, "reader%06d", i) }

// TestDeliveryMakesNoInbox: who reads no page costs nothing.
func TestDeliveryMakesNoInbox(t *testing.T) {
	cache := querycache.New(1 << 20)
	s := learned(cache, 1)
	before := cache.Stats().Bytes
	c := NewPushedPin([]byte("key"), 1)
	s.DeliverToInbox(&c, name(1))
	if n := cache.Stats().Bytes - before; n != 0 {
		t.Errorf("it takes %d bytes", n)
	}
	if _, floor := s.ReadInbox(name(1), 1); floor != "" {
		t.Errorf("there is an inbox down to %q", floor)
	}
}

// TestInboxesAreBounded: inboxes that no page reads make room for others, those that are read stay,
// and all together keep the bound.
func TestInboxesAreBounded(t *testing.T) {
	cache := querycache.New(1 << 20)
	s := learned(cache, 0)
	for i := range 20_000 {
		s.LearnInbox(name(i), 0, nil, nil, []byte(end))
		if _, floor := s.ReadInbox(name(0), 0); floor != end {
			t.Fatalf("after %d readers the inbox that is read is gone", i)
		}
		c := NewPushedPin(fmt.Appendf(nil, "key%06d", 20_000-i), 1)
		s.DeliverToInbox(&c, name(i))
		if n := cache.Stats().Bytes; n > cache.Limit()/2+1<<10 {
			t.Fatalf("after %d readers they take %d bytes of %d", i, n, cache.Limit())
		}
	}
	if _, floor := s.ReadInbox(name(1), 0); floor != "" {
		t.Error("an inbox that is not read stays")
	}
}

// TestInboxesThatAreReadSurviveTheOthers: when the cache is full, it makes room by dropping inboxes
// that are not read, and keeps all that are.
func TestInboxesThatAreReadSurviveTheOthers(t *testing.T) {
	const readAgain = 10
	s := learned(querycache.New(1<<20), readAgain)
	for i := range 20_000 {
		s.LearnInbox(name(readAgain+i), 0, nil, nil, []byte(end))
		for r := range readAgain {
			if _, floor := s.ReadInbox(name(r), 0); floor != end {
				t.Fatalf("after %d other readers the inbox of reader %d reaches down to %q, expected %q", i+1, r, floor, end)
			}
		}
	}
}

// TestTrimmedInboxIsCompleteAboveItsFloor: an inbox keeps the newest, and is complete down to the
// newest that it has not.
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
	if want := []string{"4", "5", "6", "7"}; !slices.Equal(got, want) || floor != "8" {
		t.Errorf("%q down to %q, want %q down to 8", got, floor, want)
	}
}

// TestDropRemovesOneInbox: one inbox goes, and others stay.
func TestDropRemovesOneInbox(t *testing.T) {
	s := learned(querycache.New(1<<20), 2)
	s.DropInbox(name(0), 1)
	for i, want := range []string{"", end} {
		if _, floor := s.ReadInbox(name(i), 1); floor != want {
			t.Errorf("inbox %d reaches down to %q, want %q", i, floor, want)
		}
	}
}

// TestPagesDuringDelivery: pages and deliveries at the same time.
func TestPagesDuringDelivery(t *testing.T) {
	s := learned(querycache.New(1<<20), 0)
	var readers sync.WaitGroup
	for i := range 3 {
		readers.Go(func() {
			for n := range 3000 {
				list, _ := s.ReadInbox(name(n%7), uint64(n))
				last := ""
				for key, more := list.Next(); more; key, more = list.Next() {
					if key <= last {
						t.Errorf("reader %d: %q after %q", i, key, last)
						return
					}
					last = key
				}
				s.LearnInbox(name(n%7), uint64(n), nil, [][]byte{[]byte("5"), []byte("7")}, []byte(end))
			}
		})
	}
	for n := range 3000 {
		c := NewPushedPin(fmt.Appendf(nil, "%06d", (n*7919)%100_000), uint64(n))
		for i := range 7 {
			s.DeliverToInbox(&c, name(i))
		}
	}
	readers.Wait()
}

// BenchmarkDeliver is one delivery to one of 100 000 inboxes.
func BenchmarkDeliver(b *testing.B) {
	const readers = 100_000
	s := learned(querycache.New(1<<30), readers)
	names := make([][]byte, readers)
	for i := range names {
		names[i] = name(i)
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
