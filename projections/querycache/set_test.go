package querycache

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// versionedRows has the rows of a store at every version: a number for each owner. Like the fold of
// a store, change changes one row and then publishes a new version.
type versionedRows struct {
	set *Set[number]
	// versions has the rows of each version, from 1 to the last that there will be. newest is the
	// newest version so far.
	versions [][]int
	newest   atomic.Int64
}

// number is the value of an entry: the row of an owner.
type number struct{ owner, row int }

func hashOf(owner int) uint64 { return uint64(owner) * 0x9e3779b97f4a7c15 }

func newVersionedRows(c *Cache, owners, versions int) *versionedRows {
	r := &versionedRows{set: NewSet[number](c), versions: make([][]int, versions+1)}
	r.versions[1] = make([]int, owners)
	r.newest.Store(1)
	return r
}

// change changes the row of an owner. It tells the set before the new version is published.
func (r *versionedRows) change(owner int) {
	version := int(r.newest.Load()) + 1
	r.versions[version] = slices.Clone(r.versions[version-1])
	r.versions[version][owner] = version
	r.set.MarkChanged(hashOf(owner), uint64(version))
	r.newest.Store(int64(version))
}

// find returns the row of an owner at a version, and whether the set had it. If not, it adds an
// entry of the given size.
func (r *versionedRows) find(owner int, version uint64, bytes int64) (row int, hit bool) {
	ofOwner := func(n *number) bool { return n.owner == owner }
	if n, answers := r.set.Find(hashOf(owner), version, ofOwner); answers {
		return n.row, true
	}
	row = r.versions[version][owner]
	r.set.Make(hashOf(owner), version, ofOwner, func(n *number) int64 {
		*n = number{owner, row}
		return bytes
	})
	return row, false
}

// TestAnswersAreThoseOfTheView checks that queries with views of different ages get the rows of
// their views from a cache that is too small, while a fold changes rows.
func TestAnswersAreThoseOfTheView(t *testing.T) {
	const owners, changes, size, entry = 300, 4000, 48 << 10, 256
	c := New(size)
	r := newVersionedRows(c, owners, changes+1)
	var hits, older atomic.Int64
	var readers sync.WaitGroup

	done := make(chan struct{})
	for reader := range uint64(3) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(reader, 1))
			// The questions after the last change make hits with older views certain, also if no
			// reader runs during the changes.
			for left := 5000; left > 0; {
				select {
				case <-done:
					left--
				default:
				}
				now := r.newest.Load()
				version := max(1, now-int64(random.IntN(20)))
				owner := min(random.IntN(owners), random.IntN(owners))
				got, hit := r.find(owner, uint64(version), entry)
				if want := r.versions[version][owner]; got != want {
					t.Errorf("owner %d at %d of %d: got row %d, want %d, hit: %v", owner, version, now, got, want, hit)
					return
				}
				if hit {
					hits.Add(1)
					if version < now {
						older.Add(1)
					}
				}
				if used := c.Stats().Bytes; used > size {
					t.Errorf("got %d bytes in use, want at most %d", used, size)
					return
				}
			}
		})
	}

	random := rand.New(rand.NewPCG(9, 9))
	for range changes {
		r.change(random.IntN(owners))
	}
	close(done)
	readers.Wait()

	if hits.Load() == 0 || older.Load() == 0 {
		t.Errorf("got %d hits, %d of them with older views, want some of each", hits.Load(), older.Load())
	}
	if st := c.Stats(); st.Evictions == 0 {
		t.Errorf("got stats %+v, want evictions", st)
	}
}

// TestEntryAnswersBetweenChangesOnly checks that an entry answers for all views between two changes
// of its owner, also for older views, and for no other view.
func TestEntryAnswersBetweenChangesOnly(t *testing.T) {
	changes := []int{0, 1, 1, 0, 1} // row 0 changes at 2 and at 5
	for made := 1; made <= 6; made++ {
		r := newVersionedRows(New(1<<20), 2, 6)
		for _, owner := range changes[:made-1] {
			r.change(owner)
		}
		r.find(0, uint64(made), 10)
		for now := made; ; now++ {
			changed := 0
			for version := 1; version <= now; version++ {
				changed = max(changed, r.versions[version][0])
			}
			for version := 1; version <= now; version++ {
				_, hit := r.set.Find(hashOf(0), uint64(version), func(n *number) bool { return n.owner == 0 })
				if want := changed <= min(made, version); hit != want {
					t.Errorf("entry of version %d, view %d of %d: got hit %v, want %v", made, version, now, hit, want)
				}
			}
			if now > len(changes) {
				break
			}
			r.change(changes[now-1])
		}
	}
}

// TestEntriesDoNotAnswerAcrossRepair checks that an entry from before a repair does not answer
// after it, and the other way around.
func TestEntriesDoNotAnswerAcrossRepair(t *testing.T) {
	r := newVersionedRows(New(1<<20), 1, 2)
	r.find(0, 1, 10)
	r.set.Repaired(2)
	r.versions[2] = []int{7}
	for _, version := range []uint64{2, 1, 2} {
		if got, _ := r.find(0, version, 10); got != r.versions[version][0] {
			t.Errorf("view %d: got row %d, want %d", version, got, r.versions[version][0])
		}
	}
	if _, hit := r.find(0, 2, 10); !hit {
		t.Error("a second question after the repair: got no hit, want one")
	}
}

// TestBytesAreBounded checks that the bytes stay below the limit, however large entries are, and
// that an entry that is used often stays.
func TestBytesAreBounded(t *testing.T) {
	const size, entry, owners = 64 << 10, 700, 20_000
	c := New(size)
	r := newVersionedRows(c, owners, 1)
	missed := 0
	for owner := 1; owner < owners; owner++ {
		r.find(owner, 1, entry)
		if _, hit := r.find(0, 1, entry); !hit {
			missed++
		}
		if used := c.Stats().Bytes; used > c.limit.Load() {
			t.Fatalf("got %d bytes in use, want at most %d", used, c.limit.Load())
		}
	}

	st := c.Stats()
	if missed > 20 {
		t.Errorf("an entry that is used often was missing %d times, want at most 20", missed)
	}
	if st.Evictions == 0 || st.Bytes < c.limit.Load()/2 {
		t.Errorf("got stats %+v, want evictions and at least half of the limit of %d bytes in use", st, c.limit.Load())
	}

	// An entry that is too large for the limit is not kept, so it evicts none.
	r.find(owners-1, 1, size/8)
	if evictions := c.Stats().Evictions - st.Evictions; evictions != 0 {
		t.Errorf("an entry of an eighth of the limit has evicted %d others, want none", evictions)
	}
}

// TestEntryBytesAreTheSizeOfAnEntry checks that EntryBytes is the real size of an entry without its
// value, and that a bucket is one cache line.
func TestEntryBytesAreTheSizeOfAnEntry(t *testing.T) {
	if size := reflect.TypeFor[entry[number]]().Size() - reflect.TypeFor[number]().Size(); size != EntryBytes {
		t.Errorf("got an entry of %d bytes, want EntryBytes, %d", size, EntryBytes)
	}
	if size := reflect.TypeFor[bucket[number]]().Size(); size != 64 {
		t.Errorf("got a bucket of %d bytes, want 64", size)
	}
}

// TestClosedSetKeepsNothing checks that sets share a limit but no entries, and that a closed set
// has no entries and accepts none.
func TestClosedSetKeepsNothing(t *testing.T) {
	c := New(1 << 20)
	first := newVersionedRows(c, 10, 1)
	second := newVersionedRows(c, 10, 1)
	for owner := range 10 {
		first.find(owner, 1, 100)
		if _, hit := second.find(owner, 1, 50); hit {
			t.Errorf("owner %d: a set has the entry of another set, want no hit", owner)
		}
	}
	if used, want := c.Stats().Bytes, int64(10*(100+50+2*EntryBytes)); used != want {
		t.Errorf("two sets: got %d bytes in use, want %d", used, want)
	}

	first.set.Close()
	first.find(3, 1, 100)
	if _, hit := first.find(3, 1, 100); hit {
		t.Error("a closed set keeps an entry, want no hit")
	}
	if used, want := c.Stats().Bytes, int64(10*(50+EntryBytes)); used != want {
		t.Errorf("one set closed: got %d bytes in use, want %d", used, want)
	}
	if _, hit := second.find(3, 1, 50); !hit {
		t.Error("the entry of the other set: got no hit, want one")
	}

	second.set.Close()
	if used := c.Stats().Bytes; used != 0 {
		t.Errorf("all sets closed: got %d bytes in use, want 0", used)
	}
}

// TestQuestionsAreCountedPerOwner checks that questions about an owner without an entry are counted
// up to MaxUnanswered, separately for each owner.
func TestQuestionsAreCountedPerOwner(t *testing.T) {
	s := NewSet[number](New(1 << 20))
	for owner := range 3 {
		before := 0
		for _, questions := range []int{1, 3, 1, 200, 100, 1} {
			if got := s.CountUnanswered(hashOf(owner), questions); got != before {
				t.Errorf("owner %d: got %d questions, want %d", owner, got, before)
			}
			before = min(before+questions, MaxUnanswered)
		}
	}
}

// TestCacheTooSmallForItsSets checks that New returns nil if the limit is too small for one bucket
// in each set.
func TestCacheTooSmallForItsSets(t *testing.T) {
	c := New(maxSets*bytesPerBucket - 1)
	if c != nil {
		t.Error("limit below one bucket per set: got a cache, want nil")
	}
	if st := c.Stats(); st != (Stats{}) {
		t.Errorf("limit below one bucket per set: got stats %+v, want none", st)
	}
	if New(maxSets*bytesPerBucket) == nil {
		t.Error("limit of one bucket per set: got nil, want a cache")
	}
}

// TestChargedBytesReduceEntries checks that memory that the caller charges reduces the memory for
// entries.
func TestChargedBytesReduceEntries(t *testing.T) {
	c := New(1 << 20)
	s := NewSet[number](c)
	add := func(from, to int) {
		for i := from; i < to; i++ {
			isOwner := func(n *number) bool { return n.owner == i }
			s.Make(hashOf(i), 1, isOwner, func(n *number) int64 {
				n.owner = i
				return 1000
			})
		}
	}

	add(0, 2000)
	full := c.Stats().Bytes
	c.Charge(c.Limit() / 2)
	add(2000, 4000)

	if full < c.Limit()*9/10 {
		t.Errorf("got %d bytes in use before half of the limit was charged, want nearly the limit of %d", full, c.Limit())
	}
	if n := c.Stats().Bytes; n > c.Limit() {
		t.Errorf("got %d bytes in use after half of the limit was charged, want at most the limit of %d", n, c.Limit())
	}
}
