package inbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

const cacheOwners = 6

func cacheOwner(i int) string { return fmt.Sprint("bob", i) }

// cacheWorld is a store with a cache. "ann" and "zoe" follow all owners, of whom all or none are
// pulled; ann ceases to now and then, and begins again.
type cacheWorld struct {
	store  *store.Store
	cursor events.Cursor
	pins   int
}

func newCacheWorld(t *testing.T, threshold int64) *cacheWorld {
	t.Helper()
	set := DefaultSettings()
	set.Threshold = threshold
	cache := querycache.New(querycache.DefaultBytes)
	s, err := store.Open(store.Options{FS: vfs.NewMem(), Dir: "data", Projection: NewWith(set, cache)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left := cache.Stats().Bytes; left != 0 {
			t.Errorf("%d bytes are kept once the store is closed", left)
		}
	})
	w := &cacheWorld{store: s, cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_790_000_000_000_000}}
	for i := range cacheOwners {
		for _, reader := range []string{"ann", "zoe"} {
			w.fold(t, events.Event{Kind: events.UserFollowed, User: reader, Peer: cacheOwner(i)})
		}
	}
	return w
}

func (w *cacheWorld) fold(t *testing.T, ev events.Event) {
	t.Helper()
	w.cursor.Seq++
	w.cursor.LastTime++
	ev.Seq, ev.Time = w.cursor.Seq, w.cursor.LastTime
	env := &events.Envelope{Cursor: w.cursor, Kinds: events.Kinds(ev.Kind), Events: []events.Event{ev}}
	if err := w.store.Fold([]*events.Envelope{env}); err != nil {
		t.Fatal(err)
	}
}

// change pins, or moves or deletes what was pinned, or lets ann hide an item or show it again.
func (w *cacheWorld) change(t *testing.T, r *rand.Rand) {
	t.Helper()
	ev := events.Event{Kind: events.PinCreated, Board: []string{"", "art"}[r.IntN(2)]}
	n := w.pins
	switch kind := r.IntN(9); {
	case kind >= 7:
		item := fmt.Sprint("i", max(0, w.pins-1-r.IntN(20)))
		w.fold(t, events.Event{Kind: []events.Kind{events.ItemHidden, events.ItemShown}[kind-7], User: "ann", Item: item})
		return
	case kind == 6:
		owner := cacheOwner(r.IntN(cacheOwners))
		for _, kind := range []events.Kind{events.UserUnfollowed, events.UserFollowed} {
			w.fold(t, events.Event{Kind: kind, User: "ann", Peer: owner})
		}
		return
	case kind < 4 || w.pins == 0:
		w.pins++
		ev.Item = fmt.Sprint("i", n)
	default:
		n = max(0, w.pins-1-r.IntN(20))
		ev.Kind = []events.Kind{events.PinMoved, events.PinDeleted}[kind-4]
	}
	ev.User, ev.Pin = cacheOwner(n%cacheOwners), fmt.Sprint("p", n)
	if ev.Kind == events.PinDeleted {
		ev.Board = ""
	}
	w.fold(t, ev)
}

// view returns a view of now.
func (w *cacheWorld) view(t *testing.T) *projections.View {
	t.Helper()
	v, err := w.store.View()
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return v
}

// compare reads the first pages of both readers at a view, which it closes, from memory and from
// rows.
func compare(t *testing.T, r *rand.Rand, v *projections.View) {
	t.Helper()
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, reader := range []string{"ann", "zoe"} {
		var after PageCursor
		for range 2 {
			n := 1 + r.IntN(15)
			got, err := CachedQuery(v).Feed(context.Background(), Feed{Reader: reader}, after, n)
			want, werr := Query(v).Feed(context.Background(), Feed{Reader: reader}, after, n)
			got.OutboxesOpened, want.OutboxesOpened = 0, 0 // memory is there to spare them
			if err != nil || werr != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("at %d %s reads %v, %v, not %v, %v", v.Cursor().Seq, reader, got.Pins, err, want.Pins, werr)
				return
			}
			if after = want.Next; after == nil {
				break
			}
		}
	}
}

// knownOutboxes returns of how many owners the cache knows the outbox at a view of now.
func (w *cacheWorld) knownOutboxes(t *testing.T) (n int) {
	t.Helper()
	v := w.view(t)
	defer v.Close()
	c, ok := v.QueryCache().(*inboxcache.Cache)
	if !ok {
		t.Fatal("the store has no cache")
	}
	for i := range cacheOwners {
		outbox := projections.AppendKey(nil, tagOutbox, cacheOwner(i))
		if keys, _ := c.ReadOutbox(events.AppendID(nil, cacheOwner(i)), outbox, v.Version()); keys != nil {
			n++
		}
	}
	return n
}

// TestPagesFromMemoryAreThoseOfRows: pages are the same from memory as from rows, whatever is
// pinned, moved and deleted in between, and of views that are older than what is kept.
func TestPagesFromMemoryAreThoseOfRows(t *testing.T) {
	for _, threshold := range []int64{0, -1} {
		w := newCacheWorld(t, threshold)
		comparePages(t, w)
		v := w.view(t)
		if n := Entries(v, "zoe"); (n > 0) != (threshold < 0) {
			t.Errorf("threshold %d: %d entries are in the inbox", threshold, n)
		}
		if n := w.knownOutboxes(t); threshold == 0 && n != cacheOwners {
			t.Errorf("the outboxes of %d owners are known, want %d", n, cacheOwners)
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}
}

func comparePages(t *testing.T, w *cacheWorld) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	for range 600 {
		before := w.view(t)
		for range r.IntN(3) {
			w.change(t, r)
		}
		compare(t, r, w.view(t))
		compare(t, r, before)
		compare(t, r, w.view(t))
		if t.Failed() {
			return
		}
	}
}

// allLocal is the remote lookup of a node that holds all partitions.
type allLocal struct{ RemoteLookup }

func (allLocal) Holds(string) bool { return true }
func (allLocal) Unresolved() bool  { return false }

// TestPagesInClusterLearnOutboxes shows that pages in a cluster, which leave out pins that are newer
// than the view, keep the newest sort keys of outboxes in memory like other pages.
func TestPagesInClusterLearnOutboxes(t *testing.T) {
	w := newCacheWorld(t, 0)
	for i := range 3 * cacheOwners {
		w.fold(t, events.Event{Kind: events.PinCreated, User: cacheOwner(i % cacheOwners), Pin: fmt.Sprint("p", i), Item: "i"})
	}
	for range 2 { // the first page only counts that the outboxes were looked for
		v := w.view(t)
		page, err := CachedQuery(v).WithRemote(allLocal{}).Feed(t.Context(), Feed{Reader: "ann"}, nil, 10)
		if err != nil || len(page.Pins) != 10 {
			t.Fatalf("the page has %d pins and error %v, want 10 and none", len(page.Pins), err)
		}
		if err := v.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.knownOutboxes(t); n != cacheOwners {
		t.Errorf("the outboxes of %d owners are in memory, want %d", n, cacheOwners)
	}
}

// TestRepairIsVisibleInCachedOutboxes: a repair of rows is seen at once, at the same position, and
// only by views that are taken after it.
func TestRepairIsVisibleInCachedOutboxes(t *testing.T) {
	w, r := newCacheWorld(t, 0), rand.New(rand.NewPCG(11, 12))
	for range 100 {
		w.change(t, r)
	}
	before := w.view(t)
	compare(t, r, w.view(t))
	gone := 0
	err := w.store.Repair(t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
		it := rows.Iter(nil, nil)
		for it.Next() {
			if projections.Tag(it.Key()[2]) == tagOutbox {
				m.Delete(it.Key())
				gone++
			}
		}
		return it.Close()
	})
	if err != nil || gone == 0 {
		t.Fatalf("%d rows are repaired, %v", gone, err)
	}
	after := w.view(t)
	if before.Cursor() != after.Cursor() {
		t.Fatal("the position has moved")
	}
	page, err := CachedQuery(after).Feed(t.Context(), Feed{Reader: "ann"}, nil, 10)
	if err != nil || len(page.Pins) != 0 {
		t.Errorf("of empty outboxes %v are read, %v", page.Pins, err)
	}
	compare(t, r, after)
	compare(t, r, before)
}

// TestPagesFromMemoryWhileFolding: pages are the same from memory as from rows while the fold
// continues.
func TestPagesFromMemoryWhileFolding(t *testing.T) {
	for _, threshold := range []int64{0, -1} {
		compareWhileFolding(t, newCacheWorld(t, threshold))
	}
}

func compareWhileFolding(t *testing.T, w *cacheWorld) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	over := make(chan struct{})
	var compared atomic.Int64
	var wg sync.WaitGroup
	for i := range uint64(3) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(9, i))
			for {
				select {
				case <-over:
					return
				default:
					compare(t, r, w.view(t))
					compared.Add(1)
				}
			}
		})
	}
	for n := 0; n < 2000 || compared.Load() < 500; n++ {
		w.change(t, r)
	}
	close(over)
	wg.Wait()
}
