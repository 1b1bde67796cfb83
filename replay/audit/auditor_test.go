package audit_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

// runAuditor runs the stores and an auditor. It returns a channel that receives the auditor's
// status, and a function that stops everything.
func (f *testStores) runAuditor(change func(*audit.Config)) (statuses <-chan audit.Status, stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var wg sync.WaitGroup
	f.startFolding(ctx, &wg)

	ch := make(chan audit.Status)
	stores := map[string]audit.Store{}
	indexOf := map[string]int{}
	for i, s := range f.stores {
		stores[s.Name()] = s
		indexOf[s.Name()] = i
	}
	cfg := audit.Config{
		Graph:     f.stores[graphStore],
		Inbox:     f.stores[inboxStore],
		Counters:  f.stores[countersStore],
		All:       stores,
		Subscribe: f.log.Subscribe,
		Share:     1,
		Shadow: func(name string) verify.Options {
			return verify.Options{
				FS:        f.fs,
				Dir:       "data/shadow/" + name,
				Subscribe: f.log.Subscribe,
				New:       func() projections.Projection { return newProjection(indexOf[name]) },
			}
		},
		Observe: func(s audit.Status) {
			select {
			case ch <- s:
			case <-ctx.Done():
			}
		},
	}
	if change != nil {
		change(&cfg)
	}

	a := audit.NewAuditor(cfg)
	wg.Go(func() {
		if err := a.Run(ctx); err != nil {
			f.t.Errorf("the auditor: Run returned %v, expected no error", err)
		}
	})
	return ch, func() {
		cancel()
		wg.Wait()
	}
}

// Wrong rows in any store are repaired without anyone asking for it.
func TestAuditorRepairsWrongRows(t *testing.T) {
	t.Parallel()
	envs := memlog.NewWorld(3, 40).Envelopes(400)
	f := newTestStores(t, envs)

	// Delete every ninth row of each store.
	var want [4]conformance.Rows
	for i := range f.stores {
		want[i] = conformance.RowsOf(t, f.stores[i])
		f.damage(i, func(db *pebble.DB) error {
			for n, row := range want[i] {
				if n%9 != 0 || !store.Repairable(row.Key) {
					continue
				}
				if err := db.Delete(row.Key, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}

	// Wait until all stores are repaired and verified.
	statuses, stop := f.runAuditor(nil)
	defer stop()
	for s := range statuses {
		repairedStores := 0
		for _, rows := range s.Repaired {
			if rows > 0 {
				repairedStores++
			}
		}
		if s.Unexplained > 0 {
			t.Errorf("got the unexplained finding %s, expected none", s.LastFinding)
		}
		if repairedStores == len(f.stores) && len(s.Verified) == len(f.stores) {
			break
		}
	}
	stop()

	for i := range f.stores {
		conformance.RowsOf(t, f.stores[i]).MustEqual(t, want[i], "store %d", i)
	}
}

// If a wrong Apply has written rows, a shadow has the same rows. The audit logs an error, and
// leaves the stores as they are.
func TestAuditorReportsAWrongFold(t *testing.T) {
	w := memlog.NewWorld(5, 10)
	envs := []*events.Envelope{
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}),
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "cid", Peer: "bob"}),
	}
	f := newTestStores(t, envs)

	// Replace the graph by one with a wrong fold, which a shadow has, too.
	conformance.Close(t, f.stores[graphStore])
	if err := f.fs.RemoveAll("data/graph"); err != nil {
		t.Fatal(err)
	}
	f.stores[graphStore] = conformance.Open(t, f.fs, graphWithoutFollowers{graph.New()}, store.Bounds{})
	conformance.Fold(t, f.stores[graphStore], envs)
	shadow := verify.Options{FS: f.fs, Dir: "data/scratch", New: newGraphWithoutFollowers, Subscribe: f.log.Subscribe}
	if r, err := verify.Verify(t.Context(), f.stores[graphStore], shadow); err != nil || !r.Equal {
		t.Fatalf("got %v, %v, expected that a shadow with the same fold is equal", r, err)
	}

	statuses, stop := f.runAuditor(func(c *audit.Config) {
		defaultShadow := c.Shadow
		c.Shadow = func(name string) verify.Options {
			o := defaultShadow(name)
			if name == "graph" {
				o.New = newGraphWithoutFollowers
			}
			return o
		}
	})
	defer stop()
	for s := range statuses {
		if s.Unexplained > 0 && s.Findings["graph"] > 0 {
			if s.Repaired["graph"] > 0 {
				t.Errorf("got %d repaired rows, expected that rows of the fold stay", s.Repaired["graph"])
			}
			break
		}
	}
}

// newGraphWithoutFollowers is the constructor of graphWithoutFollowers.
func newGraphWithoutFollowers() projections.Projection { return graphWithoutFollowers{graph.New()} }

// graphWithoutFollowers is a graph that does not write followers.
type graphWithoutFollowers struct{ *graph.Graph }

// Apply implements projections.Projection.
func (g graphWithoutFollowers) Apply(ev events.Event, b *projections.Batch) error {
	if err := g.Graph.Apply(ev, b); err != nil {
		return err
	}

	prefix := graph.FollowersPrefix(nil, ev.Peer)
	var keys [][]byte
	it := b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		keys = append(keys, append([]byte{}, it.Key()...))
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, key := range keys {
		b.Delete(key)
	}
	return nil
}

// While everything is written and nothing is wrong, nothing is found and nothing is repaired.
func TestAuditorFindsNothingUnderLoad(t *testing.T) {
	t.Parallel()
	w := memlog.NewWorld(6, 60)
	f := newTestStores(t, w.Envelopes(200))
	statuses, stop := f.runAuditor(nil)
	defer stop()

	// Append envelopes, and wait until all stores have folded them, until the checks have ended.
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil && n < 400; n++ {
			more := w.Envelopes(3)
			f.log.Append(more...)
			for _, s := range f.stores {
				if err := s.WaitFor(ctx, more[2].Seq()); err != nil && ctx.Err() == nil {
					t.Errorf("%s: wait for sequence %d: got %v, expected no error", s.Name(), more[2].Seq(), err)
				}
			}
		}
	})

	received := 0
	for s := range statuses {
		if len(s.Findings) > 0 || s.Unexplained > 0 {
			t.Errorf("got the finding %s, expected none", s.LastFinding)
		}
		for name, differences := range s.Differences {
			if differences > 0 {
				t.Errorf("got %d differences in %s, expected none", differences, name)
			}
		}
		received++
		if received >= 5 && s.Checks > 100 {
			t.Logf("%d checks, %d dropped, %d queued", s.Checks, s.Dropped, s.Queued)
			break
		}
	}
	cancel()
	wg.Wait()
}

// A finding for whose repair there is too little free disk waits. It counts once, and the repair is
// performed when there is enough disk.
func TestAuditorWaitsForDisk(t *testing.T) {
	t.Parallel()
	w := memlog.NewWorld(7, 10)
	f := newTestStores(t, []*events.Envelope{
		w.Envelope(events.Event{Kind: events.UserFollowed, User: "ann", Peer: "bob"}),
	})
	// A wrong count is found in every turn.
	f.damage(graphStore, func(db *pebble.DB) error {
		return changeRow(t, db, "graph", "user-counts A=bob", "set 00000102")
	})

	var hasDisk atomic.Bool
	statuses, stop := f.runAuditor(func(c *audit.Config) {
		defaultShadow := c.Shadow
		c.DiskRetry = 10 * time.Millisecond
		c.Shadow = func(name string) verify.Options {
			o := defaultShadow(name)
			o.StoreBytes = func() uint64 { return 1000 }
			o.FreeDisk = func() (free uint64, err error) {
				if hasDisk.Load() {
					free = 1 << 40
				}
				return free, nil
			}
			return o
		}
	})
	defer stop()

	var found uint64
	for s := range statuses {
		switch {
		case found == 0 && s.Rounds >= 1:
			// A whole round has ended, so all findings have been made, and they wait.
			found = s.Findings["graph"]
			if found == 0 || s.Waiting == 0 {
				t.Fatalf("after a round: got %d findings, of which %d wait, expected some that wait", found, s.Waiting)
			}
		case found > 0 && !hasDisk.Load() && s.Rounds >= 3 && len(s.NoDisk) == len(f.stores) && s.Waiting > 0:
			// Two more rounds have found nothing else, and no store can be verified. While the
			// auditor tries the repair again, no finding waits.
			if s.Findings["graph"] != found || len(s.Repaired) > 0 {
				t.Fatalf("without disk: got %d findings, of which %d wait, repaired %v, no disk for %v, expected the same %d findings, waiting",
					s.Findings["graph"], s.Waiting, s.Repaired, s.NoDisk, found)
			}
			hasDisk.Store(true)
		case hasDisk.Load() && s.Waiting == 0 && s.Repaired["graph"] > 0 && len(s.NoDisk) == 0:
			// The repair has been performed.
			if s.Findings["graph"] != found || s.Unexplained > 0 {
				t.Errorf("with disk: got %d findings, %d of them unexplained, expected the same %d", s.Findings["graph"], s.Unexplained, found)
			}
			return
		}
	}
}
