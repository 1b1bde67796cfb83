package graph_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// mustOpenCachedStore opens a store whose queries use the cache.
func mustOpenCachedStore(t testing.TB, fs vfs.FS, dir string, cache *querycache.Cache) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{FS: fs, Dir: dir, Projection: graph.NewWith(cache)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// mustView opens a view of a store, which is closed when the test ends.
func mustView(t testing.TB, s *store.Store) *projections.View {
	t.Helper()
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// compareCachedAnswers returns an error if a cached answer differs from that of the rows of the
// same view.
func compareCachedAnswers(v *projections.View, a string, others []string, board string) error {
	cached := graph.NewCachedQueries(v)
	rows := graph.NewQueries(v)
	got := make([]graph.Follow, len(others))
	want := make([]graph.Follow, len(others))
	if err := errors.Join(cached.UserFollows(a, others, got), rows.UserFollows(a, others, want)); err != nil {
		return err
	}
	for i, b := range others {
		f, err := cached.UserFollow(a, b)
		if err != nil {
			return fmt.Errorf("at %d: %s follows %s: %w", v.Cursor().Seq, a, b, err)
		}
		if f != want[i] || got[i] != want[i] {
			return fmt.Errorf("at %d: %s follows %s: got %v, and among others %v, want %v",
				v.Cursor().Seq, a, b, f, got[i], want[i])
		}

		r, err := cached.Relationship(a, b)
		wantRelationship, err2 := rows.Relationship(a, b)
		if r != wantRelationship || err != nil || err2 != nil {
			return fmt.Errorf("at %d: %s and %s: got %+v, want %+v, %w %w",
				v.Cursor().Seq, a, b, r, wantRelationship, err, err2)
		}

		visible, err := cached.Visibility(a, b)
		wantVisible, err2 := rows.Visibility(a, b)
		if visible != wantVisible || err != nil || err2 != nil {
			return fmt.Errorf("at %d: %s sees %s: got %+v, want %+v, %w %w",
				v.Cursor().Seq, a, b, visible, wantVisible, err, err2)
		}

		settings, err := cached.FollowSettings(a, b)
		if settings != wantRelationship.Settings || err != nil {
			return fmt.Errorf("at %d: settings of %s for %s: got %v, want %v, %w",
				v.Cursor().Seq, a, b, settings, wantRelationship.Settings, err)
		}

		f, err = cached.BoardFollow(a, b, board)
		wantFollow, err2 := rows.BoardFollow(a, b, board)
		if f != wantFollow || err != nil || err2 != nil {
			return fmt.Errorf("at %d: %s follows %q of %s: got %v, want %v, %w %w",
				v.Cursor().Seq, a, board, b, f, wantFollow, err, err2)
		}
	}
	return nil
}

// randomEvents makes random events of users with ids of every form: follows, blocks, mutes, board
// follows and deletions.
type randomEvents struct {
	eventHistory
	r     *rand.Rand
	users []string
}

func newRandomEvents(seed uint64, users int) *randomEvents {
	w := &randomEvents{r: rand.New(rand.NewPCG(seed, 1))}
	for i := range users {
		w.users = append(w.users, [...]string{
			fmt.Sprint(i), fmt.Sprint(1_000_000_000_000 + i), fmt.Sprint("00", i), fmt.Sprint("u", i),
			fmt.Sprintf("6ba7b810-9dad-11d1-80b4-%012d", i), fmt.Sprintf("1844674407370955%04d", i),
		}[i%6])
	}
	return w
}

// pickUser returns a random user, the first ones more often.
func (w *randomEvents) pickUser() string {
	return w.users[min(w.r.IntN(len(w.users)), w.r.IntN(len(w.users)))]
}

// nextEnvelopes makes n more events and returns their envelopes.
func (w *randomEvents) nextEnvelopes(n int) []*events.Envelope {
	from := len(w.events)
	kinds := [...]events.Kind{
		events.UserFollowed, events.UserFollowed, events.UserFollowed, events.UserUnfollowed, events.UserBlocked,
		events.UserUnblocked, events.UserMuted, events.UserUnmuted, events.BoardFollowed, events.BoardUnfollowed,
		events.FollowSettingsSet,
	}
	for range n {
		ev := events.Event{Kind: kinds[w.r.IntN(len(kinds))], User: w.pickUser(), Peer: w.pickUser()}
		switch {
		case ev.User == ev.Peer || w.r.IntN(200) == 0:
			ev = events.Event{Kind: events.UserDeleted, User: ev.User}
		case ev.Kind == events.BoardFollowed || ev.Kind == events.BoardUnfollowed:
			ev.Board = [...]string{"art", "", "9"}[w.r.IntN(3)]
		case ev.Kind == events.FollowSettingsSet:
			ev.Settings = events.FollowSettings(w.r.IntN(int(events.AllFollowSettings) + 1))
		case ev.Kind == events.UserMuted && w.r.IntN(2) == 0:
			// Some of these have ended, and others end while the test runs.
			ev.Until = w.events[len(w.events)-1].Time + events.Micros(w.r.IntN(400)-100)
		}
		w.add(ev)
	}
	return histories.Envelopes(w.events)[from:]
}

// TestCachedAnswersAreThoseOfRowsWhileFolding has readers with views of different ages while the
// fold continues. From a cache that is much too small, they must get the answers that the rows of
// their views give.
func TestCachedAnswersAreThoseOfRowsWhileFolding(t *testing.T) {
	const size = 24 << 10
	cache := querycache.New(size)
	s := mustOpenCachedStore(t, vfs.NewMem(), "data", cache)
	w := newRandomEvents(1, 150)
	foldAll := func(envs []*events.Envelope) {
		if err := s.Fold(envs); err != nil {
			t.Error(err)
		}
	}
	foldAll(w.nextEnvelopes(3000))

	// Each reader has up to four views, and opens a new one now and then.
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for reader := range uint64(4) {
		readers.Go(func() {
			r := rand.New(rand.NewPCG(reader, 2))
			var views [4]*projections.View
			defer func() {
				for _, v := range views {
					if v != nil {
						_ = v.Close()
					}
				}
			}()
			for n := 0; ctx.Err() == nil || n < 500; n++ {
				v := &views[r.IntN(len(views))]
				if *v == nil || r.IntN(4) == 0 {
					if *v != nil {
						_ = (*v).Close()
					}
					var err error
					if *v, err = s.View(); err != nil {
						t.Error(err)
						return
					}
				}

				// Ask about a random user and some others.
				others := make([]string, 1+r.IntN(12))
				for i := range others {
					others[i] = w.users[r.IntN(len(w.users))]
				}
				a := w.users[min(r.IntN(len(w.users)), r.IntN(len(w.users)))]
				if err := compareCachedAnswers(*v, a, others, [...]string{"art", ""}[n%2]); err != nil {
					t.Error(err)
					return
				}
				if used := cache.Stats().Bytes; used > size {
					t.Errorf("the cache uses %d bytes, want at most %d", used, size)
				}
			}
		})
	}

	for range 150 {
		foldAll(w.nextEnvelopes(1 + w.r.IntN(10)))
	}
	stop()
	readers.Wait()

	if st := cache.Stats(); st.Hits == 0 || st.Misses == 0 || st.Evictions == 0 || st.Bytes == 0 {
		t.Errorf("got %+v, want hits, misses, evictions and bytes in use", st)
	}
}

// TestCachedAnswersAreThoseOfRowsInHistories demands that, at every position of histories with
// imports and deletions, and at a view of some envelopes before, the cached answers are those of
// the rows.
func TestCachedAnswersAreThoseOfRowsInHistories(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			history := histories.Fixed(seed+40, 400)
			cache := querycache.New(64 << 10)
			s := mustOpenCachedStore(t, vfs.NewMem(), "data", cache)
			users := []string{"ann", "7", "6ba7b810-9dad-11d1-80b4-00c04fd430c8", "10", "007", "bob", "nobody", ""}
			var older []*projections.View

			for _, env := range histories.Envelopes(history) {
				if err := s.Fold([]*events.Envelope{env}); err != nil {
					t.Fatal(err)
				}
				older = append(older, mustView(t, s))
				for _, a := range users[:len(users)-1] {
					for _, v := range []*projections.View{older[len(older)-1], older[max(0, len(older)-3)]} {
						if err := compareCachedAnswers(v, a, users, "art"); err != nil {
							t.Fatal(err)
						}
					}
				}
			}

			if st := cache.Stats(); st.Hits < st.Misses {
				t.Errorf("got %+v, want at least as many hits as misses", st)
			}
		})
	}
}

// askUntilCached asks three times how a follows b, so that the answer gets into the cache. It
// reports whether the last answer was cached.
func askUntilCached(
	t testing.TB, cache *querycache.Cache, v *projections.View, a, b string,
) (f graph.Follow, cached bool) {
	t.Helper()
	for range 3 {
		before := cache.Stats().Hits
		var err error
		if f, err = graph.NewCachedQueries(v).UserFollow(a, b); err != nil {
			t.Fatal(err)
		}
		cached = cache.Stats().Hits > before
	}
	return f, cached
}

// TestCacheEntryAnswersOtherViewsButNotAcrossChange demands that an entry answers at older and
// newer views, but not across a change of its user.
func TestCacheEntryAnswersOtherViewsButNotAcrossChange(t *testing.T) {
	for _, first := range []string{"old", "new"} {
		t.Run(first+" view first", func(t *testing.T) {
			cache := querycache.New(1 << 20)
			s := mustOpenCachedStore(t, vfs.NewMem(), "data", cache)

			// Open a view before and a view after user 3 unfollows bob.
			var history eventHistory
			for i := range 20 {
				history.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprint(i), Peer: "bob"})
			}
			if err := s.Fold(histories.Envelopes(history.events)); err != nil {
				t.Fatal(err)
			}
			before := mustView(t, s)
			history.add(events.Event{Kind: events.UserUnfollowed, User: "3", Peer: "bob"})
			if err := s.Fold(histories.Envelopes(history.events)[20:]); err != nil {
				t.Fatal(err)
			}
			after := mustView(t, s)

			entryOf := map[string]*projections.View{"old": before, "new": after}[first]
			answersAtBoth := 0
			for i := range 20 {
				_, _ = askUntilCached(t, cache, entryOf, fmt.Sprint(i), "bob")
				followBefore, cachedBefore := askUntilCached(t, cache, before, fmt.Sprint(i), "bob")
				followAfter, cachedAfter := askUntilCached(t, cache, after, fmt.Sprint(i), "bob")
				if followBefore.Kind != graph.Explicit {
					t.Errorf("%d follows bob: got %v before the change, want an explicit follow", i, followBefore)
				}
				if explicit := followAfter.Kind == graph.Explicit; explicit != (i != 3) {
					t.Errorf("%d follows bob: got %v after the change, want an explicit follow: %v", i, followAfter, i != 3)
				}
				if i != 3 && cachedBefore && cachedAfter {
					answersAtBoth++
				}
			}

			// Some of the other entries may be in the bucket of the user whose edges have changed.
			if answersAtBoth < 10 {
				t.Errorf("%d other entries answer at both views, want at least 10", answersAtBoth)
			}
		})
	}
}

// TestRepairInvalidatesCacheEntries repairs a store, which changes rows but not the position.
// Entries that were made before the repair must not answer after it.
func TestRepairInvalidatesCacheEntries(t *testing.T) {
	cache := querycache.New(1 << 20)
	s := mustOpenCachedStore(t, vfs.NewMem(), "data", cache)
	var history eventHistory
	history.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"})
	history.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "cid"})
	if err := s.Fold(histories.Envelopes(history.events)); err != nil {
		t.Fatal(err)
	}

	before := mustView(t, s)
	if f, cached := askUntilCached(t, cache, before, "ann", "bob"); !cached || f.Kind != graph.Explicit {
		t.Fatalf("got %v, cached %t, want an explicit follow from the cache", f, cached)
	}

	// The repair deletes all edges.
	err := s.Repair(t.Context(), func(_ events.Cursor, rows projections.Reader, m *store.Repair) error {
		it := rows.Iter(nil, nil)
		for it.Next() {
			if tag := projections.Tag(it.Key()[2]); tag == projections.FirstGraphTag {
				m.Delete(it.Key())
			}
		}
		return it.Close()
	})
	if err != nil {
		t.Fatal(err)
	}

	after := mustView(t, s)
	if before.Cursor() != after.Cursor() {
		t.Fatalf("a repair moved the position from %v to %v, want no change", before.Cursor(), after.Cursor())
	}

	for range 2 {
		if f, _ := askUntilCached(t, cache, after, "ann", "bob"); f.Kind != graph.None {
			t.Errorf("view after the repair: got %v, want no follow", f)
		}
		if f, _ := askUntilCached(t, cache, before, "ann", "bob"); f.Kind != graph.Explicit {
			t.Errorf("view before the repair: got %v, want an explicit follow", f)
		}
	}
	if _, cached := askUntilCached(t, cache, after, "ann", "bob"); !cached {
		t.Error("got no cached answer after the repair, want one")
	}
}

// TestStoresShareLimitButNoCacheEntries demands that stores that share a cache do not share
// answers, and that nothing is left of a store that was closed.
func TestStoresShareLimitButNoCacheEntries(t *testing.T) {
	cache := querycache.New(1 << 20)
	fs := vfs.NewMem()
	openWithFollow := func(dir, peer string) *store.Store {
		s := mustOpenCachedStore(t, fs, dir, cache)
		var history eventHistory
		history.add(events.Event{Kind: events.UserFollowed, User: "ann", Peer: peer})
		if err := s.Fold(histories.Envelopes(history.events)); err != nil {
			t.Fatal(err)
		}
		return s
	}

	// expectFollowOf demands that ann follows only the peer in the store, and that answers are
	// cached.
	expectFollowOf := func(s *store.Store, peer string) {
		t.Helper()
		v := mustView(t, s)
		for _, b := range []string{"bob", "cid"} {
			f, cached := askUntilCached(t, cache, v, "ann", b)
			if !cached || (f.Kind == graph.Explicit) != (b == peer) {
				t.Errorf("ann follows %s: got %v, cached %t, want only the follow of %s, from the cache",
					b, f, cached, peer)
			}
		}
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	}

	bobStore := openWithFollow("one", "bob")
	cidStore := openWithFollow("two", "cid")
	expectFollowOf(bobStore, "bob")
	expectFollowOf(cidStore, "cid")
	expectFollowOf(bobStore, "bob")

	// A view that is open while its store closes still answers. The patience is never closed, so
	// the store waits for the view without a limit.
	late := mustView(t, bobStore)
	closing := make(chan error)
	go func() { closing <- bobStore.CloseAfter(make(chan struct{})) }()
	if err := bobStore.WaitFor(t.Context(), 99); !errors.Is(err, projections.ErrStopped) {
		t.Fatalf("wait while the store closes: got error %v, want %v", err, projections.ErrStopped)
	}
	if err := compareCachedAnswers(late, "ann", []string{"bob", "cid"}, ""); err != nil {
		t.Error(err)
	}
	if err := errors.Join(late.Close(), <-closing); err != nil {
		t.Error(err)
	}

	// After both stores are closed, the cache is empty.
	expectFollowOf(cidStore, "cid")
	if err := cidStore.Close(); err != nil {
		t.Error(err)
	}
	if st := cache.Stats(); st.Bytes != 0 {
		t.Errorf("after closing: got %+v, want no bytes in use", st)
	}

	// A store that is opened again has entries of its own, also if it is opened only for reading.
	expectFollowOf(mustOpenCachedStore(t, fs, "one", cache), "bob")
	readOnly, err := store.Open(store.Options{FS: fs, Dir: "two", Projection: graph.NewWith(cache), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	expectFollowOf(readOnly, "cid")
	if err := readOnly.Close(); err != nil {
		t.Error(err)
	}
}

// TestUserIsCachedOnlyAfterEnoughQuestions demands that a user about whom one question is asked is
// not cached, so that a walk over all users takes no space, and that a user with many edges is not
// cached before many questions were asked.
func TestUserIsCachedOnlyAfterEnoughQuestions(t *testing.T) {
	cache := querycache.New(8 << 20)
	s := mustOpenCachedStore(t, vfs.NewMem(), "data", cache)
	var history eventHistory
	for i := range 1000 {
		history.add(events.Event{Kind: events.UserFollowed, User: fmt.Sprint(i), Peer: "bob"})
		history.add(events.Event{Kind: events.UserFollowed, User: "eager", Peer: fmt.Sprint(i)})
	}
	if err := s.Fold(histories.Envelopes(history.events)); err != nil {
		t.Fatal(err)
	}

	// One question about each of a thousand users caches nothing.
	q := graph.NewCachedQueries(mustView(t, s))
	for i := range 1000 {
		if _, err := q.UserFollow(fmt.Sprint(i), "bob"); err != nil {
			t.Fatal(err)
		}
	}
	if st := cache.Stats(); st.Bytes != 0 || st.Hits != 0 || st.Misses != 1000 {
		t.Errorf("after one question about each user: got %+v, want no bytes in use, no hits and 1000 misses", st)
	}

	// Questions about one user with a thousand edges cache that user in the end.
	for n := 1; ; n++ {
		if _, err := q.UserFollow("eager", "77"); err != nil {
			t.Fatal(err)
		}
		if cache.Stats().Bytes == 0 {
			continue
		}
		if n < 40 || n > 100 {
			t.Errorf("1000 edges were cached after %d questions, want 40 to 100", n)
		}
		break
	}
}

// TestTooSmallCacheKeepsNothing demands that a cache that is too small keeps nothing, and that all
// questions are answered.
func TestTooSmallCacheKeepsNothing(t *testing.T) {
	cache := querycache.New(100)
	s := mustOpenCachedStore(t, vfs.NewMem(), "data", cache)
	if err := s.Fold(newRandomEvents(5, 10).nextEnvelopes(100)); err != nil {
		t.Fatal(err)
	}
	v := mustView(t, s)
	if cache != nil || v.QueryCache() != nil {
		t.Errorf("got the cache %v, and %v of the view, want none", cache, v.QueryCache())
	}
	if st := cache.Stats(); !reflect.DeepEqual(st, querycache.Stats{}) {
		t.Errorf("got %+v from a cache of 100 bytes, want no use", st)
	}
	if err := compareCachedAnswers(v, "0", newRandomEvents(5, 10).users, "art"); err != nil {
		t.Error(err)
	}
}
