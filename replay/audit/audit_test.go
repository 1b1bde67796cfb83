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

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
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

func TestMain(m *testing.M) { testmain.Run(m) }

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

// The indexes of projections and their stores.
const (
	graphStore = iota
	inboxStore
	seenStore
	countersStore
)

// testStores are the stores graph, inbox, seen and counters on one file system.
type testStores struct {
	t      testing.TB
	fs     *vfs.MemFS
	log    *memlog.Log
	stores [4]*store.Store
	held   [4]*events.Partitions // of each store; nil for all
}

// newTestStores returns stores that have folded the envelopes.
func newTestStores(t testing.TB, envs []*events.Envelope) *testStores {
	return newPartitionedTestStores(t, envs, [4]*events.Partitions{})
}

// newPartitionedTestStores returns stores like [newTestStores], each of which holds only some
// partitions.
func newPartitionedTestStores(t testing.TB, envs []*events.Envelope, held [4]*events.Partitions) *testStores {
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

// mustAudit audits all shards, or those of some ids, and returns the findings.
func (f *testStores) mustAudit(limits audit.Limits, ids ...string) []audit.Finding {
	f.t.Helper()
	a, err := audit.Open(f.t.Context(), f.stores[graphStore], f.stores[inboxStore], f.stores[countersStore], limits)
	if err != nil {
		f.t.Fatal(err)
	}
	defer a.Close()

	var shards []events.Shard
	for _, id := range ids {
		shards = append(shards, events.ShardOf(id))
	}
	for shard := events.Shard(0); ids == nil; shard++ {
		shard, err = a.NextShard(shard)
		if err != nil {
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
				for _, finding := range f.mustAudit(limits) {
					t.Errorf("limits %+v: got the finding %v, expected none", limits, finding)
				}
			}
		})
	}
}

// A wrong row in one store is found because another store disagrees, by the check that is meant to
// find it.
func TestWrongRowIsFoundByItsCheck(t *testing.T) {
	t.Parallel()
	w := memlog.NewWorld(1, 5)
	pinCreated := func(pin string) events.Event {
		return events.Event{Kind: events.PinCreated, User: "bob", Board: "art", Pin: pin, Item: "film"}
	}
	envs := []*events.Envelope{
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}),
		w.Envelope(events.Event{Kind: events.BoardFollowed, User: "cid", Peer: "bob", Board: "art"}),
		w.Envelope(pinCreated("1"), pinCreated("2"), pinCreated("3")),
		w.Envelope(events.Event{Kind: events.Played, User: "ann", Item: "film"}),
		w.Envelope(events.Event{Kind: events.UserBlocked, User: "ann", Peer: "dan"}),
		w.Envelope(events.Event{Kind: events.Reacted, User: "eve", Item: "film"}),
	}

	// A node that holds the partitions of all these ids finds the same as one that holds all.
	ids := []string{"ann", "bob", "cid", "dan", "eve", "film"}
	var partitionsOfIDs events.Partitions
	for _, id := range ids {
		partitionsOfIDs.AddHome(id)
	}
	var somePartitions [4]*events.Partitions
	for i := range somePartitions {
		somePartitions[i] = &partitionsOfIDs
	}
	nodes := map[string][4]*events.Partitions{
		"all partitions":  {},
		"some partitions": somePartitions,
	}

	for _, test := range []struct {
		store       int
		row, change string // see changeRow
		wantCheck   string
		wantEntity  string
	}{
		{graphStore, "user-counts A=bob", "set 00000102", "counts", "user bob"},
		{graphStore, "follower B=bob", "drop", "mirror", "user ann"},
		{graphStore, "following A=ann", "drop", "mirror", "user bob"},
		{graphStore, "board-follower B=bob", "drop", "mirror", "user cid"},
		{graphStore, "edge A=dan", "drop", "mirror", "user ann"},
		{graphStore, "edge A=ann B=bob", "set ff", "rows", "user ann"},
		{inboxStore, "edge A=ann B=bob", "drop", "feed", "user ann"},
		{inboxStore, "board-pin-count B=bob", "set 09", "counts", "board \"art\" of bob"},
		{countersStore, "shown B=bob i=film p=1", "set 63", "items", "user bob"},
		{countersStore, "shown B=bob i=film p=1", "drop", "items", "user bob"},
		{countersStore, "user-tallies A=bob", "drop", "counts", "user bob"},
		{countersStore, "board-pins B=bob b=art", "drop", "counts", "board \"art\" of bob"},
	} {
		for node, held := range nodes {
			t.Run(test.row+" "+test.change+" "+node, func(t *testing.T) {
				f := newPartitionedTestStores(t, envs, held)
				f.damage(test.store, func(db *pebble.DB) error {
					return changeRow(t, db, newProjection(test.store).Name(), test.row, test.change)
				})

				// Audit in turns, each of which checks some of the users completely, and at once.
				var foundInTurns []audit.Finding
				for turn := range uint64(3) {
					foundInTurns = append(foundInTurns, f.mustAudit(audit.Limits{FeedTurn: turn, FeedTurns: 3}, ids...)...)
				}
				foundAtOnce := f.mustAudit(audit.Limits{}, ids...)

				checkHasFinding(t, "in turns", foundInTurns, test.wantCheck, test.wantEntity)
				checkHasFinding(t, "at once", foundAtOnce, test.wantCheck, test.wantEntity)
			})
		}
	}
}

// checkHasFinding checks that one of the findings of an audit is by a check about an entity.
func checkHasFinding(t *testing.T, auditName string, found []audit.Finding, wantCheck, wantEntity string) {
	t.Helper()
	isWanted := func(f audit.Finding) bool { return f.Check == wantCheck && f.Entity.String() == wantEntity }
	if !slices.ContainsFunc(found, isWanted) {
		t.Errorf("%s: got the findings %v, expected one of the check %s about %s", auditName, found, wantCheck, wantEntity)
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
				found := f.mustAudit(audit.Limits{FeedTurn: turn, FeedTurns: 3}, "bob")
				checkHasFinding(t, fmt.Sprint("turn ", turn), found, "mirror", "user bob")
			}
		})
	}
}

// changeRow changes the first row whose description contains the text row. The change is "drop",
// which deletes the row, or "set" with the new value in hexadecimal.
func changeRow(t *testing.T, db *pebble.DB, projection, row, change string) error {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()

	var descriptions []string
	for it.First(); it.Valid(); it.Next() {
		text, err := all.Describe(projection, it.Key(), it.Value())
		descriptions = append(descriptions, text)
		if err != nil || !strings.Contains(text, " "+row) {
			continue
		}

		if change == "drop" {
			return db.Delete(it.Key(), nil)
		}
		var value []byte
		if _, err := fmt.Sscanf(change, "set %x", &value); err != nil {
			t.Fatal(err)
		}
		return db.Set(it.Key(), value, nil)
	}

	t.Fatalf("got the rows\n%s\nexpected one with %q", strings.Join(descriptions, "\n"), row)
	return nil
}

// Audits at common positions of stores that fold all the time find nothing.
func TestAuditWhileFoldingFindsNothing(t *testing.T) {
	w := memlog.NewWorld(2, 60)
	f := newTestStores(t, w.Envelopes(300))

	// Append envelopes, and wait until all stores have folded each, until the audits have ended.
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	f.startFolding(ctx, &wg)
	wg.Go(func() {
		for n := 0; ctx.Err() == nil && n < 2000; n++ {
			env := w.Envelopes(1)
			f.log.Append(env...)
			for _, s := range f.stores {
				if err := s.WaitFor(ctx, env[0].Seq()); err != nil && ctx.Err() == nil {
					t.Errorf("%s: wait for sequence %d: got %v, expected no error", s.Name(), env[0].Seq(), err)
				}
			}
		}
	})

	for range 20 {
		for _, finding := range f.mustAudit(audit.Limits{}, "user1", "user2", "user9", "1001", "1002") {
			t.Errorf("got the finding %v, expected none", finding)
		}
	}

	cancel()
	wg.Wait()
}

// startFolding lets all stores fold the log until ctx ends.
func (f *testStores) startFolding(ctx context.Context, wg *sync.WaitGroup) {
	for _, s := range f.stores {
		wg.Go(func() {
			if err := s.Run(ctx, f.log.Subscribe); err != nil {
				f.t.Errorf("%s: Run returned %v, expected no error", s.Name(), err)
			}
		})
	}
}
