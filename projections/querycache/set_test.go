package querycache

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// rows are the rows of a store at every version: a number for each owner. A fold changes one row at a time and publishes the new
// version, as a store does.
type rows struct {
	set *Set[number]
	// versions has the rows of each version, from 1 to the last that there will be. at is the newest version so far.
	versions [][]int
	at       atomic.Int64
}

// number is the value of an entry: the row of an owner.
type number struct{ owner, row int }

func hashOf(owner int) uint64 { return uint64(owner) * 0x9e3779b97f4a7c15 }

func newRows(c *Cache, owners, versions int) *rows {
	r := &rows{set: NewSet[number](c), versions: make([][]int, versions+1)}
	r.versions[1] = make([]int, owners)
	r.at.Store(1)
	return r
}

// change changes the row of an owner. It tells the set before the new version is published.
func (r *rows) change(owner int) {
	version := int(r.at.Load()) + 1
	r.versions[version] = slices.Clone(r.versions[version-1])
	r.versions[version][owner] = version
	r.set.MarkChanged(hashOf(owner), uint64(version))
	r.at.Store(int64(version))
}

// ask returns the row of an owner at a version, and whether the set had it. If not, it adds an entry of the given size.
func (r *rows) ask(owner int, version uint64, bytes int64) (row int, hit bool) {
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

// Queries hold views of different ages while a fold changes rows. From a cache that is too small
// for all, they get the rows of their views.
func TestAnswersAreThoseOfTheView(t *testing.T) {
	const owners, changes, size, entry = 300, 4000, 48 << 10, 256
	c := New(size)
	r := newRows(c, owners, changes+1)
	var hits, older atomic.Int64
	var readers sync.WaitGroup
	over := make(chan struct{})
	for reader := range uint64(3) {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(reader, 1))
			for n := 0; ; n++ {
				select {
				case <-over:
					if n > 5000 {
						return
					}
				default:
				}
				now := r.at.Load()
				version := max(1, now-int64(random.IntN(20)))
				owner := min(random.IntN(owners), random.IntN(owners))
				is, hit := r.ask(owner, uint64(version), entry)
				if want := r.versions[version][owner]; is != want {
					t.Errorf("owner %d at %d of %d: %d, want %d, from memory: %v", owner, version, now, is, want, hit)
					return
				}
				if hit {
					hits.Add(1)
					if version < now {
						older.Add(1)
					}
				}
				if used := c.Stats().Bytes; used > size {
					t.Errorf("%d bytes are used", used)
					return
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(9, 9))
	for range changes {
		r.change(random.IntN(owners))
	}
	close(over)
	readers.Wait()
	if st := c.Stats(); hits.Load() == 0 || older.Load() == 0 || st.Evictions == 0 {
		t.Errorf("nothing was tried: %d hits, %d of them at older views, %+v", hits.Load(), older.Load(), st)
	}
}

// An entry answers at all views between two changes of its owner, also at older ones, and at no
// other view.
func TestEntryAnswersBetweenChangesOnly(t *testing.T) {
	changes := []int{0, 1, 1, 0, 1} // row 0 changes at 2 and at 5
	for made := 1; made <= 6; made++ {
		r := newRows(New(1<<20), 2, 6)
		for _, owner := range changes[:made-1] {
			r.change(owner)
		}
		r.ask(0, uint64(made), 10)
		for now := made; ; now++ {
			changed := 0
			for version := 1; version <= now; version++ {
				changed = max(changed, r.versions[version][0])
			}
			for version := 1; version <= now; version++ {
				_, hit := r.set.Find(hashOf(0), uint64(version), func(n *number) bool { return n.owner == 0 })
				if want := changed <= min(made, version); hit != want {
					t.Errorf("made at %d, asked at %d of %d: from memory: %v, want %v", made, version, now, hit, want)
				}
			}
			if now > len(changes) {
				break
			}
			r.change(changes[now-1])
		}
	}
}

// An entry made before a repair does not answer after it, and one made after it does not answer
// before it.
func TestEntriesDoNotAnswerAcrossRepair(t *testing.T) {
	r := newRows(New(1<<20), 1, 2)
	r.ask(0, 1, 10)
	r.set.Repaired(2)
	r.versions[2] = []int{7}
	for _, version := range []uint64{2, 1, 2} {
		if is, _ := r.ask(0, version, 10); is != r.versions[version][0] {
			t.Errorf("at %d: %d", version, is)
		}
	}
	if _, hit := r.ask(0, 2, 10); !hit {
		t.Error("nothing is kept after a repair")
	}
}

// Whatever is asked, and however large entries are, the bytes stay below the limit. An entry that
// is used again and again stays.
func TestBytesAreBounded(t *testing.T) {
	const size, entry, owners = 64 << 10, 700, 20_000
	c := New(size)
	r := newRows(c, owners, 1)
	missed := 0
	for owner := 1; owner < owners; owner++ {
		r.ask(owner, 1, entry)
		if _, hit := r.ask(0, 1, entry); !hit {
			missed++
		}
		if used := c.Stats().Bytes; used > c.limit.Load() {
			t.Fatal(used, "bytes are used")
		}
	}
	if st := c.Stats(); missed > 20 || st.Evictions == 0 || st.Bytes < c.limit.Load()/2 {
		t.Errorf("entries of frequent questions were not kept %d times: %+v", missed, st)
	}
	before := c.Stats()
	if r.ask(owners-1, 1, size/8); c.Stats().Evictions != before.Evictions {
		t.Error("one entry has pushed out others for an eighth of the bound")
	}
}

// EntryBytes is the real size of an entry without its value, and a bucket is one cache line.
func TestEntryBytesAreTheSizeOfAnEntry(t *testing.T) {
	if size := reflect.TypeFor[entry[number]]().Size() - reflect.TypeFor[number]().Size(); size != EntryBytes {
		t.Errorf("%d bytes, %d are counted", size, EntryBytes)
	}
	if size := reflect.TypeFor[bucket[number]]().Size(); size != 64 {
		t.Errorf("a bucket of %d bytes is not one line of memory", size)
	}
}

// Sets share a limit but no entries. A closed set has no entries and takes none.
func TestClosedSetKeepsNothing(t *testing.T) {
	c := New(1 << 20)
	one, two := newRows(c, 10, 1), newRows(c, 10, 1)
	for owner := range 10 {
		one.ask(owner, 1, 100)
		if _, hit := two.ask(owner, 1, 50); hit {
			t.Error("a set has the entry of another")
		}
	}
	if used := c.Stats().Bytes; used != 10*(100+50+2*EntryBytes) {
		t.Error(used, "bytes are used")
	}
	one.set.Close()
	one.ask(3, 1, 100)
	if _, hit := one.ask(3, 1, 100); hit {
		t.Error("a closed set keeps an entry")
	}
	if used := c.Stats().Bytes; used != 10*(50+EntryBytes) {
		t.Error(used, "bytes are used once a set is closed")
	}
	if _, hit := two.ask(3, 1, 50); !hit {
		t.Error("the entry of the other set is gone")
	}
	two.set.Close()
	if used := c.Stats().Bytes; used != 0 {
		t.Error(used, "bytes are used once all are closed")
	}
}

// Questions about an owner without an entry are counted up to MaxUnanswered, apart from those about
// other owners.
func TestQuestionsAreCountedPerOwner(t *testing.T) {
	s := NewSet[number](New(1 << 20))
	for owner := range 3 {
		before := 0
		for _, questions := range []int{1, 3, 1, 200, 100, 1} {
			if got := s.CountUnanswered(hashOf(owner), questions); got != before {
				t.Errorf("%d questions about %d, want %d", got, owner, before)
			}
			before = min(before+questions, MaxUnanswered)
		}
	}
}

// New returns nil if there is no room for one bucket in each set.
func TestCacheTooSmallForItsSets(t *testing.T) {
	if c := New(maxSets*bytesPerBucket - 1); c != nil || c.Stats() != (Stats{}) {
		t.Error("New returns a cache without room for a bucket in each set, want nil")
	}
	if New(maxSets*bytesPerBucket) == nil {
		t.Error("New returns nil although there is room for a bucket in each set")
	}
}

// Memory that the caller charges takes room from the entries.
func TestChargedBytesTakeTheRoomOfEntries(t *testing.T) {
	c := New(1 << 20)
	s := NewSet[number](c)
	add := func(from, to int) {
		for i := from; i < to; i++ {
			s.Make(hashOf(i), 1, func(n *number) bool { return n.owner == i }, func(n *number) int64 { n.owner = i; return 1000 })
		}
	}
	add(0, 2000)
	full := c.Stats().Bytes
	c.Charge(c.Limit() / 2)
	add(2000, 4000)
	if n := c.Stats().Bytes; n > c.Limit() || full < c.Limit()*9/10 {
		t.Errorf("%d bytes are kept of %d, and %d before others took half", n, c.Limit(), full)
	}
}
