package inbox

import (
	"context"
	"errors"
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

// cachedStore is a store with a cache. "ann" and "zoe" follow all owners, of whom all or none are
// pulled. Now and then, ann ends a follow and begins it again.
type cachedStore struct {
	store  *store.Store
	cursor events.Cursor
	pins   int
}

func newCachedStore(t *testing.T, threshold int64) *cachedStore {
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
			t.Errorf("got %d bytes in use once the store is closed, want none", left)
		}
	})
	w := &cachedStore{
		store:  s,
		cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_790_000_000_000_000},
	}
	for i := range cacheOwners {
		for _, reader := range []string{"ann", "zoe"} {
			w.fold(t, events.Event{Kind: events.UserFollowed, User: reader, Peer: cacheOwner(i)})
		}
	}
	return w
}

// fold folds an event in an envelope of its own.
func (w *cachedStore) fold(t *testing.T, ev events.Event) {
	t.Helper()
	w.cursor.Seq++
	w.cursor.LastTime++
	ev.Seq = w.cursor.Seq
	ev.Time = w.cursor.LastTime
	env := &events.Envelope{Cursor: w.cursor, Kinds: events.Kinds(ev.Kind), Events: []events.Event{ev}}
	if err := w.store.Fold([]*events.Envelope{env}); err != nil {
		t.Fatal(err)
	}
}

// change creates a pin, or moves or deletes one of the last, or lets ann end a follow and begin it
// again, or hide an item or show it again.
func (w *cachedStore) change(t *testing.T, r *rand.Rand) {
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
	ev.User = cacheOwner(n % cacheOwners)
	ev.Pin = fmt.Sprint("p", n)
	if ev.Kind == events.PinDeleted {
		ev.Board = ""
	}
	w.fold(t, ev)
}

// view returns a view of the present position.
func (w *cachedStore) view(t *testing.T) *projections.View {
	t.Helper()
	v, err := w.store.View()
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return v
}

// compareFirstPages reads the first pages of both readers at a view, from memory and from rows, and
// compares them. It closes the view.
func compareFirstPages(t *testing.T, r *rand.Rand, v *projections.View) {
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
			want, wantErr := Query(v).Feed(context.Background(), Feed{Reader: reader}, after, n)
			if err := errors.Join(err, wantErr); err != nil {
				t.Errorf("at %d: feed of %s: %v", v.Cursor().Seq, reader, err)
				return
			}

			// Pages from memory open fewer outboxes.
			got.OutboxesOpened = 0
			want.OutboxesOpened = 0
			if !reflect.DeepEqual(got, want) {
				t.Errorf("at %d: feed of %s: got %v, want %v", v.Cursor().Seq, reader, got.Pins, want.Pins)
				return
			}
			if want.Next == nil {
				break
			}
			after = want.Next
		}
	}
}

// countKnownOutboxes returns the number of owners whose outbox the cache has at the present position.
func (w *cachedStore) countKnownOutboxes(t *testing.T) (n int) {
	t.Helper()
	v := w.view(t)
	defer v.Close()
	c, ok := v.QueryCache().(*inboxcache.Cache)
	if !ok {
		t.Fatal("got no cache of the store, want one")
	}
	for i := range cacheOwners {
		outbox := projections.AppendKey(nil, tagOutbox, cacheOwner(i))
		if keys, _ := c.ReadOutbox(events.AppendID(nil, cacheOwner(i)), outbox, v.Version()); keys != nil {
			n++
		}
	}
	return n
}

// TestPagesFromMemoryAreThoseOfRows checks that pages from memory are those of rows, whatever is
// pinned, moved and deleted in between, also at views that are older than the cache.
func TestPagesFromMemoryAreThoseOfRows(t *testing.T) {
	for _, threshold := range []int64{0, -1} {
		t.Run(fmt.Sprint("threshold ", threshold), func(t *testing.T) {
			w := newCachedStore(t, threshold)
			comparePages(t, w)

			v := w.view(t)
			n := Entries(v, "zoe")
			if wantPushed := threshold < 0; (n > 0) != wantPushed {
				t.Errorf("got %d entries in the inbox, want some: %v", n, wantPushed)
			}
			if n := w.countKnownOutboxes(t); threshold == 0 && n != cacheOwners {
				t.Errorf("got the outboxes of %d owners in the cache, want %d", n, cacheOwners)
			}
			if err := v.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// comparePages changes the store many times, and compares pages at older views and at the present
// position.
func comparePages(t *testing.T, w *cachedStore) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	rounds := 600
	if testing.Short() {
		rounds = 250
	}
	for range rounds {
		before := w.view(t)
		for range r.IntN(3) {
			w.change(t, r)
		}
		compareFirstPages(t, r, w.view(t))
		compareFirstPages(t, r, before)
		compareFirstPages(t, r, w.view(t))
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
	w := newCachedStore(t, 0)
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
	if n := w.countKnownOutboxes(t); n != cacheOwners {
		t.Errorf("the outboxes of %d owners are in memory, want %d", n, cacheOwners)
	}
}

// TestRepairIsVisibleInCachedOutboxes checks that a repair of rows is visible at once, at the same
// position, and only in views that are opened after it.
func TestRepairIsVisibleInCachedOutboxes(t *testing.T) {
	w := newCachedStore(t, 0)
	r := rand.New(rand.NewPCG(11, 12))
	for range 100 {
		w.change(t, r)
	}
	before := w.view(t)
	compareFirstPages(t, r, w.view(t))

	// The repair deletes all rows of outboxes.
	deleted := 0
	err := w.store.Repair(t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
		it := rows.Iter(nil, nil)
		for it.Next() {
			if projections.Tag(it.Key()[2]) == tagOutbox {
				m.Delete(it.Key())
				deleted++
			}
		}
		return it.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	if deleted == 0 {
		t.Fatal("got no repaired rows, want some")
	}

	after := w.view(t)
	if before.Cursor() != after.Cursor() {
		t.Fatalf("position after the repair: got %+v, want %+v as before", after.Cursor(), before.Cursor())
	}
	page, err := CachedQuery(after).Feed(t.Context(), Feed{Reader: "ann"}, nil, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Pins) != 0 {
		t.Errorf("got the pins %v from empty outboxes, want none", page.Pins)
	}
	compareFirstPages(t, r, after)
	compareFirstPages(t, r, before)
}

// TestPagesFromMemoryWhileFolding checks that pages from memory are those of rows while the fold
// continues.
func TestPagesFromMemoryWhileFolding(t *testing.T) {
	for _, threshold := range []int64{0, -1} {
		compareWhileFolding(t, newCachedStore(t, threshold))
	}
}

// compareWhileFolding lets three readers compare pages while it changes the store.
func compareWhileFolding(t *testing.T, w *cachedStore) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	done := make(chan struct{})
	var compared atomic.Int64
	var wg sync.WaitGroup
	for i := range uint64(3) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(9, i))
			for {
				select {
				case <-done:
					return
				default:
					compareFirstPages(t, r, w.view(t))
					compared.Add(1)
				}
			}
		})
	}

	changes, comparisons := 2000, int64(500)
	if testing.Short() {
		changes, comparisons = 600, 300
	}
	for n := 0; n < changes || compared.Load() < comparisons; n++ {
		w.change(t, r)
	}
	close(done)
	wg.Wait()
}
