//go:build !race

// The race detector randomly drops objects from pools, so allocations cannot be counted with it.

package all_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/seen"
	"github.com/skein-feed/skein/projections/store"
)

// budgetLog makes envelopes of live events, in the order of the log.
type budgetLog struct{ cursor events.Cursor }

func (l *budgetLog) envelopes(evs []events.Event) (envs []*events.Envelope) {
	for len(evs) > 0 {
		n := min(len(evs), 100)
		l.cursor.Seq++
		l.cursor.LastTime += 1000
		env := &events.Envelope{Events: evs[:n:n], Cursor: l.cursor}
		for i := range env.Events {
			ev := &env.Events[i]
			ev.Seq = l.cursor.Seq
			ev.Slot = uint16(i)
			ev.Time = l.cursor.LastTime
			env.Kinds |= events.Kinds(ev.Kind)
		}
		envs = append(envs, env)
		evs = evs[n:]
	}
	return envs
}

// makeEvents returns n events.
func makeEvents(n int, event func(i int) events.Event) (evs []events.Event) {
	for i := range n {
		evs = append(evs, event(i))
	}
	return evs
}

// id returns the id of the i-th user or item.
func id(i int) string { return strconv.Itoa(1_000_000 + i) }

func newFollow(i int) events.Event {
	return events.Event{Kind: events.UserFollowed, User: id(i % 997), Peer: id(2000 + i*31%4999)}
}

func newPlay(i int) events.Event {
	return events.Event{Kind: events.Played, User: id(i % 997), Item: id(i * 31 % 4999)}
}

func newLike(i int) events.Event {
	return events.Event{Kind: events.Reacted, User: id(i % 997), Item: id(i * 31 % 4999)}
}

// countAllocations returns how many objects a call allocates.
func countAllocations(call func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}

// TestAllocationsOfFolds checks that folding an event allocates no more objects than it does now,
// including flushes and commits. More allocations would slow down every import and rebuild.
func TestAllocationsOfFolds(t *testing.T) {
	const n = 20_000
	for _, test := range []struct {
		projection, what string
		// before has events that are folded first and not counted.
		before []events.Event
		event  func(i int) events.Event
		// deliveries is the number of deliveries of one event, and budget the number of allocations
		// that each of them may take.
		deliveries, budget float64
	}{
		{"graph", "follow", nil, newFollow, 1, 3},
		{"inbox", "follow", nil, newFollow, 1, 8},
		{
			"inbox", "delivery of a pin to 100 readers",
			makeEvents(100, func(i int) events.Event {
				return events.Event{Kind: events.UserFollowed, User: id(i), Peer: "star"}
			}),
			func(i int) events.Event {
				return events.Event{Kind: events.PinCreated, User: "star", Pin: id(i), Item: id(i)}
			}, 100, 1,
		},
		{"seen", "play", nil, newPlay, 1, 1},
		{"counters", "follow", nil, newFollow, 1, 4},
		{"counters", "play", nil, newPlay, 1, 5},
		{"counters", "like", nil, newLike, 1, 5},
	} {
		t.Run(test.projection+"/"+test.what, func(t *testing.T) {
			l := &budgetLog{events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}}
			s := openProjection(t, test.projection)
			conformance.Fold(t, s, l.envelopes(test.before))
			for i := range test.before {
				beginInbox(t, s, test.before[i].User)
			}
			count := n
			if test.deliveries > 1 {
				count = n / int(test.deliveries)
			}

			// Fold as many events first, so that maps and buffers have grown.
			conformance.Fold(t, s, l.envelopes(makeEvents(count, test.event)))
			envs := l.envelopes(makeEvents(count, func(i int) events.Event { return test.event(count + i) }))
			got := countAllocations(func() { conformance.Fold(t, s, envs) }) / float64(count) / test.deliveries
			t.Logf("%.2f allocations", got)
			if got > test.budget {
				t.Errorf("got %.2f allocations, want at most %v", got, test.budget)
			}
		})
	}
}

// openProjection opens a store in memory of the projection with a name.
func openProjection(t *testing.T, name string) *store.Store {
	t.Helper()
	for _, p := range all.All(all.Settings{Cache: querycache.New(querycache.DefaultBytes)}) {
		if p.Name() == name {
			s := conformance.Open(t, vfs.NewMem(), p, store.Bounds{})
			t.Cleanup(func() { conformance.Close(t, s) })
			return s
		}
	}
	t.Fatalf("found no projection with the name %s, want one", name)
	return nil
}

// TestAllocationsOfQueries checks the same for queries, from the opening of a view to its close.
func TestAllocationsOfQueries(t *testing.T) {
	l := &budgetLog{events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}}
	var evs []events.Event
	addEvents := func(n int, event func(i int) events.Event) { evs = append(evs, makeEvents(n, event)...) }
	addEvents(500, func(i int) events.Event {
		return events.Event{Kind: events.UserFollowed, User: id(i), Peer: "star"}
	})
	addEvents(200, func(i int) events.Event {
		return events.Event{Kind: events.UserFollowed, User: "ann", Peer: id(i)}
	})
	addEvents(1000, func(i int) events.Event {
		return events.Event{Kind: events.PinCreated, User: "star", Pin: id(i), Item: id(i)}
	})
	addEvents(1000, func(i int) events.Event {
		return events.Event{Kind: events.Played, User: "ann", Item: id(i)}
	})
	envs := l.envelopes(evs)
	stores := map[string]*store.Store{}
	for _, name := range []string{"graph", "inbox", "seen", "counters"} {
		stores[name] = openProjection(t, name)
		conformance.Fold(t, stores[name], envs)
	}

	// The arguments and results of queries are allocated only once.
	candidates := make([]uint64, 10_000)
	unseen := make([]uint32, 0, 10_000)
	for i := range candidates {
		candidates[i] = uint64(1_000_000 + i)
	}
	pairs := make([]string, 25)
	for i := range pairs {
		pairs[i] = id(i * 20)
	}
	found := make([]graph.Follow, len(pairs))

	// checkList reads a page of a list, which must have a number of entries.
	checkList := func(v *projections.View, kind graph.ListKind, user string, want int) error {
		page, _, err := graph.NewQueries(v).List(t.Context(), graph.List{Kind: kind, User: user}, nil, 50)
		return checkAnswer(len(page), want, err)
	}

	for _, test := range []struct {
		projection, what string
		maxAllocations   float64
		ask              func(v *projections.View) error
	}{
		{"graph", "check", 4, func(v *projections.View) error {
			f, err := graph.NewQueries(v).UserFollow("ann", id(7))
			return checkAnswer(int(f.Kind), int(graph.Explicit), err)
		}},
		{"graph", "25-way filter", 10, func(v *projections.View) error {
			err := graph.NewQueries(v).UserFollows("ann", pairs, found)
			return checkAnswer(int(found[0].Kind), int(graph.Explicit), err)
		}},
		{"graph", "newest 50 followers", 75, func(v *projections.View) error {
			return checkList(v, graph.FollowersExplicit, "star", 50)
		}},
		{"graph", "newest 50 of 200 followees", 100, func(v *projections.View) error {
			return checkList(v, graph.FollowingExplicit, "ann", 50)
		}},
		{"inbox", "page of 20", 160, func(v *projections.View) error {
			page, err := inbox.CachedQuery(v).Feed(t.Context(), inbox.Feed{Reader: id(3)}, nil, 20)
			return checkAnswer(len(page.Pins), 20, err)
		}},
		{"seen", "10 000 candidates", 3, func(v *projections.View) (err error) {
			q := seen.Query(v, seen.DefaultSettings())
			unseen, _, err = q.FilterNumeric(seen.Question{User: "ann"}, candidates, unseen[:0])
			return checkAnswer(len(unseen)/100, 90, err)
		}},
		{"counters", "counts of an item", 7, func(v *projections.View) error {
			c, err := counters.NewQueries(v).ItemCounts(id(7))
			return checkAnswer(int(c.Plays), 1, err)
		}},
		{"counters", "page of the 20 hottest", 95, func(v *projections.View) error {
			page, _, err := counters.NewQueries(v).Trending(t.Context(), counters.Scope{}, nil, 20)
			return checkAnswer(len(page), 20, err)
		}},
	} {
		t.Run(test.projection+"/"+test.what, func(t *testing.T) {
			ask := func() {
				v, err := stores[test.projection].View()
				if err != nil {
					t.Fatal(err)
				}
				defer v.Close()
				if err := test.ask(v); err != nil {
					t.Fatal(err)
				}
			}

			ask()
			got := testing.AllocsPerRun(100, ask)
			t.Logf("%.0f allocations", got)
			if got > test.maxAllocations {
				t.Errorf("got %.0f allocations, want at most %.0f", got, test.maxAllocations)
			}
		})
	}
}

// checkAnswer returns err, or an error if the answer is not the wanted one.
func checkAnswer(got, want int, err error) error {
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("got the answer %d, want %d", got, want)
	}
	return nil
}
