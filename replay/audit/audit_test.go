package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/internal/memlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProjection returns the i-th projection. Its settings have so low a threshold that feeds read
// some owners' pins from outboxes. The graph stores all lists, and inbox sorts lists when they are
// read.
func newProjection(i int) projections.Projection {
	if i == graphStore {
		return graph.New().WithShortList(0)
	}
	small := inbox.DefaultSettings()
	small.Threshold = 5
	return all.All(all.Settings{Inbox: small})[i]
}

const (
	graphStore = iota
	inboxStore
	seenStore
	countersStore
)

// testStores are stores of all projections on one file system.
type testStores struct {
	t      testing.TB
	fs     *vfs.MemFS
	log    *memlog.Log
	stores [4]*store.Store
	held   [4]*events.Partitions // of each store; nil for all
}

func newTestStores(t testing.TB, envs []*events.Envelope) *testStores {
	return newTestStoresOf(t, envs, [4]*events.Partitions{})
}

func newTestStoresOf(t testing.TB, envs []*events.Envelope, held [4]*events.Partitions) *testStores {
	f := &testStores{t: t, fs: vfs.NewMem(), log: memlog.New(envs...), held: held}
	for i := range f.stores {
		f.open(i)
		conformance.Fold(t, f.stores[i], envs)
	}
	t.Cleanup(func() {
		for _, s := range f.stores {
			conformance.Close(t, s)
		}
	})
	return f
}

func (f *testStores) open(i int) {
	var err error
	f.stores[i], err = store.Open(store.Options{FS: f.fs, Dir: "data", Projection: newProjection(i), Partitions: f.held[i]})
	if err != nil {
		f.t.Fatal(err)
	}
}

// damage changes the files of a store while the store is closed.
func (f *testStores) damage(i int, change func(db *pebble.DB) error) {
	f.t.Helper()

	dir := f.stores[i].Dir()
	conformance.Close(f.t, f.stores[i])
	db, err := pebble.Open(dir, &pebble.Options{
		FS: f.fs, FormatMajorVersion: pebble.FormatTableFormatV6, Logger: discardLogger{},
		Merger: store.EngineMerger(newProjection(i)),
	})
	if err != nil {
		f.t.Fatal(err)
	}
	if err := errors.Join(change(db), db.Flush(), db.Close()); err != nil {
		f.t.Fatal(err)
	}
	f.open(i)
}

// discardLogger is a Pebble logger that discards everything.
type discardLogger struct{}

func (discardLogger) Infof(string, ...any)              {}
func (discardLogger) Errorf(string, ...any)             {}
func (discardLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// audit audits all shards, or those of some ids, and returns the findings.
func (f *testStores) audit(limits audit.Limits, ids ...string) []audit.Finding {
	f.t.Helper()

	var shards []events.Shard
	for _, id := range ids {
		shards = append(shards, events.ShardOf(id))
	}
	a, err := audit.Open(f.t.Context(), f.stores[graphStore], f.stores[inboxStore], f.stores[countersStore], limits)
	if err != nil {
		f.t.Fatal(err)
	}
	defer a.Close()

	for shard := events.Shard(0); ids == nil; shard++ {
		if shard, err = a.NextShard(shard); err != nil {
			f.t.Fatal(err)
		}
		if shard == events.NumShards {
			break
		}
		shards = append(shards, shard)
	}

	for _, shard := range shards {
		if err := a.Shard(f.t.Context(), shard); err != nil {
			f.t.Fatal(err)
		}
	}
	return a.Findings()
}

// Stores that are folds of one log agree, in small histories in which everything happens and in a
// large one.
func TestStoresOfOneLogAgree(t *testing.T) {
	logs := map[string][]*events.Envelope{
		"world": memlog.NewWorld(1, 150).Envelopes(1200),
		"feeds": histories.Envelopes(histories.FixedFeeds(1, 300)),
		"graph": histories.Envelopes(histories.Fixed(2, 300)),
		"plays": histories.Envelopes(histories.FixedPlays(1, 300)),
	}
	for name, envs := range logs {
		t.Run(name, func(t *testing.T) {
			f := newTestStores(t, envs)
			for _, limits := range []audit.Limits{{}, {List: 2, Feed: 3}} {
				for _, finding := range f.audit(limits) {
					t.Errorf("limits %+v: got the finding %v, expected none", limits, finding)
				}
			}
		})
	}
}

// A wrong row in one store is found because another store disagrees, by the check that is meant to
// find it.
func TestWrongRowIsFoundByItsCheck(t *testing.T) {
	w := memlog.NewWorld(1, 5)
	pin := func(p string) events.Event {
		return events.Event{Kind: events.PinCreated, User: "bob", Board: "art", Pin: p, Item: "film"}
	}
	envs := []*events.Envelope{
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}),
		w.Envelope(events.Event{Kind: events.BoardFollowed, User: "cid", Peer: "bob", Board: "art"}),
		w.Envelope(pin("1"), pin("2"), pin("3")),
		w.Envelope(events.Event{Kind: events.Played, User: "ann", Item: "film"}),
		w.Envelope(events.Event{Kind: events.UserBlocked, User: "ann", Peer: "dan"}),
		w.Envelope(events.Event{Kind: events.Reacted, User: "eve", Item: "film"}),
	}

	var whole, some [4]*events.Partitions
	var held events.Partitions
	for _, id := range []string{"ann", "bob", "cid", "dan", "eve", "film"} {
		held.AddHome(id)
	}
	for i := range some {
		some[i] = &held
	}

	type damage struct {
		store       int
		row, change string
		check, of   string
		held        [4]*events.Partitions
	}
	tests := []damage{
		{graphStore, "user-counts A=bob", "set 00000102", "counts", "user bob", whole},
		{graphStore, "follower B=bob", "drop", "mirror", "user ann", whole},
		{graphStore, "following A=ann", "drop", "mirror", "user bob", whole},
		{graphStore, "board-follower B=bob", "drop", "mirror", "user cid", whole},
		{graphStore, "edge A=dan", "drop", "mirror", "user ann", whole},
		{graphStore, "edge A=ann B=bob", "set ff", "rows", "user ann", whole},
		{inboxStore, "edge A=ann B=bob", "drop", "feed", "user ann", whole},
		{inboxStore, "board-pin-count B=bob", "set 09", "counts", "board \"art\" of bob", whole},
		{countersStore, "shown B=bob i=film p=1", "set 63", "items", "user bob", whole},
		{countersStore, "shown B=bob i=film p=1", "drop", "items", "user bob", whole},
		{countersStore, "user-tallies A=bob", "drop", "counts", "user bob", whole},
		{countersStore, "board-pins B=bob b=art", "drop", "counts", "board \"art\" of bob", whole},
	}
	for _, test := range tests { // a node that holds the partitions of all these users finds the same
		test.held = some
		tests = append(tests, test)
	}

	for _, test := range tests {
		t.Run(test.row+" "+test.change, func(t *testing.T) {
			f := newTestStoresOf(t, envs, test.held)
			f.damage(test.store, func(db *pebble.DB) error {
				return changeRow(t, db, newProjection(test.store).Name(), test.row, test.change)
			})

			var turns []audit.Finding
			for turn := range uint64(3) {
				turns = append(turns, f.audit(audit.Limits{FeedTurn: turn, FeedTurns: 3}, "ann", "bob", "cid", "dan", "eve", "film")...)
			}

			for name, found := range map[string][]audit.Finding{
				"at once":  f.audit(audit.Limits{}, "ann", "bob", "cid", "dan", "eve", "film"),
				"in turns": turns,
			} {
				if !slices.ContainsFunc(found, func(f audit.Finding) bool { return f.Check == test.check && f.Entity.String() == test.of }) {
					t.Errorf("%s: expected a finding of %s about %s, got %v", name, test.check, test.of, found)
				}
			}
		})
	}
}

// A follow that only one of its two ends has is found in every turn, at the end of the followed
// user.
func TestEveryTurnComparesFollowers(t *testing.T) {
	w := memlog.NewWorld(1, 5)
	envs := []*events.Envelope{w.Envelope(
		events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"},
		events.Event{Kind: events.UserFollowed, User: "cid", Peer: "bob"},
		events.Event{Kind: events.BoardFollowed, User: "dan", Peer: "bob", Board: "art"},
	)}
	for _, row := range []string{"follower B=bob", "edge-of B=bob"} {
		t.Run(row, func(t *testing.T) {
			f := newTestStores(t, envs)
			f.damage(graphStore, func(db *pebble.DB) error { return changeRow(t, db, "graph", row, "drop") })
			for turn := range uint64(3) {
				found := f.audit(audit.Limits{FeedTurn: turn, FeedTurns: 3}, "bob")
				if !slices.ContainsFunc(found, func(f audit.Finding) bool { return f.Check == "mirror" && f.Entity.String() == "user bob" }) {
					t.Errorf("turn %d: expected a finding of mirror about user bob, got %v", turn, found)
				}
			}
		})
	}
}

// changeRow deletes or changes the first row whose description contains some words.
func changeRow(t *testing.T, db *pebble.DB, projection, row, what string) error {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	var words []string
	for it.First(); it.Valid(); it.Next() {
		text, err := all.Describe(projection, it.Key(), it.Value())
		words = append(words, text)
		if err != nil || !strings.Contains(text, " "+row) {
			continue
		}

		if what == "drop" {
			return db.Delete(it.Key(), nil)
		}
		var value []byte
		if _, err := fmt.Sscanf(what, "set %x", &value); err != nil {
			t.Fatal(err)
		}
		return db.Set(it.Key(), value, nil)
	}

	t.Fatalf("expected a row %q, got\n%s", row, strings.Join(words, "\n"))
	return nil
}

// Audits at common positions of stores that fold all the time find nothing.
func TestAuditWhileFoldingFindsNothing(t *testing.T) {
	w := memlog.NewWorld(2, 60)
	f := newTestStores(t, w.Envelopes(300))

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, s := range f.stores {
		wg.Go(func() {
			if err := s.Run(ctx, f.log.Subscribe); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Go(func() {
		for n := 0; ctx.Err() == nil && n < 2000; n++ {
			env := w.Envelopes(1)
			f.log.Append(env...)
			for _, s := range f.stores {
				if err := s.WaitFor(ctx, env[0].Seq()); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		}
	})

	for range 20 {
		for _, finding := range f.audit(audit.Limits{}, "user1", "user2", "user9", "1001", "1002") {
			t.Errorf("got the finding %v, expected none", finding)
		}
	}

	cancel()
	wg.Wait()
}
