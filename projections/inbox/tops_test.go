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
	"github.com/skein-feed/skein/projections/graph"
)

const topOwners = 6

func topOwner(i int) string { return fmt.Sprint("bob", i) }

// topWorld is a store that keeps tops, in which "ann" has an inbox and "zoe" has none. Both follow all owners, of whom all are
// pulled.
type topWorld struct {
	store  *projections.Store
	cursor events.Cursor
	pins   int
}

func newTopWorld(t *testing.T) *topWorld {
	t.Helper()
	set := DefaultSettings()
	set.Threshold = 0
	s, err := projections.Open(projections.Options{
		FS: vfs.NewMem(), Dir: "data", Projection: NewWith(set, graph.NewHotCache(graph.DefaultHotBytes)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &topWorld{store: s, cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_790_000_000_000_000}}
	w.fold(t, events.Event{Kind: events.ReaderActive, User: "ann"})
	for i := range topOwners {
		for _, reader := range []string{"ann", "zoe"} {
			w.fold(t, events.Event{Kind: events.UserFollowed, User: reader, Peer: topOwner(i)})
		}
	}
	return w
}

func (w *topWorld) fold(t *testing.T, ev events.Event) {
	t.Helper()
	w.cursor.Seq++
	w.cursor.LastTime++
	ev.Seq, ev.Time = w.cursor.Seq, w.cursor.LastTime
	env := &events.Envelope{Cursor: w.cursor, Kinds: events.Kinds(ev.Kind), Events: []events.Event{ev}}
	if err := w.store.Fold([]*events.Envelope{env}); err != nil {
		t.Fatal(err)
	}
}

// change pins, or moves or deletes what was pinned.
func (w *topWorld) change(t *testing.T, r *rand.Rand) {
	t.Helper()
	ev := events.Event{Kind: events.PinCreated, Board: []string{"", "art"}[r.IntN(2)]}
	n := w.pins
	if kind := r.IntN(6); kind < 4 || w.pins == 0 {
		w.pins++
		ev.Item = fmt.Sprint("i", n)
	} else {
		n = max(0, w.pins-1-r.IntN(20))
		ev.Kind = []events.Kind{events.PinMoved, events.PinDeleted}[kind-4]
	}
	ev.User, ev.Pin = topOwner(n%topOwners), fmt.Sprint("p", n)
	if ev.Kind == events.PinDeleted {
		ev.Board = ""
	}
	w.fold(t, ev)
}

// view returns a view of now.
func (w *topWorld) view(t *testing.T) *projections.View {
	t.Helper()
	v, err := w.store.View()
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return v
}

// compare reads the first pages of both readers at a view, which it closes, from memory and from rows.
func compare(t *testing.T, r *rand.Rand, v *projections.View) {
	t.Helper()
	defer func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, reader := range []string{"ann", "zoe"} {
		var after Mark
		for range 2 {
			n := 1 + r.IntN(15)
			got, err := HotQuery(v).Feed(context.Background(), Feed{Reader: reader}, after, n)
			want, werr := Query(v).Feed(context.Background(), Feed{Reader: reader}, after, n)
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

// kept returns how many tops there are, and how many of them have answered.
func (w *topWorld) kept(t *testing.T) (all, used int) {
	t.Helper()
	v := w.view(t)
	defer v.Close()
	k, ok := v.Hot().(*kept)
	if !ok {
		t.Fatal("nothing is kept")
	}
	for i := range k.tops.buckets {
		for j := range k.tops.buckets[i] {
			if e := k.tops.buckets[i][j].Load(); e != nil {
				if all++; e.used.Load() {
					used++
				}
			}
		}
	}
	return all, used
}

// TestTops: pages are the same from memory as from rows, whatever is pinned, moved and deleted in between, and of views that are
// older than what is kept.
func TestTops(t *testing.T) {
	w, r := newTopWorld(t), rand.New(rand.NewPCG(5, 6))
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
	if all, used := w.kept(t); all != topOwners || used != topOwners {
		t.Errorf("of %d owners %d are kept, and %d have answered", topOwners, all, used)
	}
}

// TestTopsMended: a repair of rows is seen at once, at the same position, and only by views that are taken after it.
func TestTopsMended(t *testing.T) {
	w, r := newTopWorld(t), rand.New(rand.NewPCG(11, 12))
	for range 100 {
		w.change(t, r)
	}
	before := w.view(t)
	compare(t, r, w.view(t))
	gone := 0
	err := w.store.Mend(t.Context(), func(_ events.Cursor, rows projections.Reader, m *projections.Mending) error {
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
		t.Fatalf("%d rows are mended, %v", gone, err)
	}
	after := w.view(t)
	if before.Cursor() != after.Cursor() {
		t.Fatal("the position has moved")
	}
	page, err := HotQuery(after).Feed(t.Context(), Feed{Reader: "ann"}, nil, 10)
	if err != nil || len(page.Pins) != 0 {
		t.Errorf("of empty outboxes %v are read, %v", page.Pins, err)
	}
	compare(t, r, after)
	compare(t, r, before)
}

// TestTopsBeside: pages are the same from memory as from rows while the fold goes on.
func TestTopsBeside(t *testing.T) {
	w, r := newTopWorld(t), rand.New(rand.NewPCG(7, 8))
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

// TestTopsAreBounded: however many outboxes are read, and however long ids are, what is kept has its bound; what is used again
// and again stays.
func TestTopsAreBounded(t *testing.T) {
	k := newTops()
	read := func(owner string, places int) bool {
		s := &stream{owner: events.AppendID(nil, owner), prefix: projections.AppendKey(nil, tagOutbox, owner)}
		changed, b := k.of(s.owner)
		if b.find(s.prefix, changed, 1) != nil {
			return true
		}
		for i := range places {
			s.ahead = append(s.ahead, placeOf(events.Micros(i), owner, fmt.Sprintf("%0100d", i)))
		}
		if at := b.room(s.prefix); at != nil {
			if e := topOf(s, 1); e != nil {
				at.Store(e)
			}
		}
		return false
	}
	missed := 0
	for i := range 40_000 {
		read(fmt.Sprint("once", i), 3)
		if !read("star", 3) {
			missed++
		}
	}
	if missed > 40 {
		t.Errorf("what everybody reads was not kept %d times", missed)
	}
	if read("long", topPlaces); read("long", topPlaces) {
		t.Error("an outbox of more than topBytes is kept")
	}
	for i := range k.buckets {
		for j := range k.buckets[i] {
			e := k.buckets[i][j].Load()
			if e == nil {
				continue
			}
			size := len(e.prefix) + len(e.from)
			for _, place := range e.places {
				size += len(place)
			}
			if size > topBytes {
				t.Fatalf("a top of %d bytes", size)
			}
		}
	}
}
