package erase

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/rebuild"
)

// otherNode is another node on the log of a service.
type otherNode struct {
	Part

	s    *testService
	dir  string
	stop func()
}

// joinCluster makes a service a node of a cluster that has no other nodes yet.
func (s *testService) joinCluster() {
	s.t.Helper()
	s.o.Part = &Part{Log: s.o.Log, Archive: s.o.Archive, Stores: s.o.Stores}
	if err := s.o.Part.Open(s.dir); err != nil {
		s.t.Fatal(err)
	}
	s.o.Nodes = &Nodes{List: func() []Node { return nil }}
}

// setOtherNodes sets the other nodes with which the service performs erasures.
func (s *testService) setOtherNodes(peers map[string]*otherNode) {
	s.o.Nodes = &Nodes{
		List: func() (list []Node) {
			for name, p := range peers {
				list = append(list, Node{name, p.stop != nil})
			}
			return list
		},
		Flush: func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
			return asAnswer(peers[name].Flush(ctx, epoch, seq))
		},
		Clean: func(ctx context.Context, name string, epoch uint32) (bool, string, error) {
			given := peers[name].CheckMayCopy(epoch)
			done, err := peers[name].Clean(ctx, epoch)

			// Rows may be copied from a node only if its stores contain no erased data. Then it has
			// nothing to do.
			if given == nil && !done {
				s.t.Errorf("node %s may be copied from, although its stores may contain erased data", name)
			}

			return asAnswer(done, err)
		},
	}
}

func asAnswer(done bool, err error) (bool, string, error) {
	if err != nil {
		return done, err.Error(), nil //nolint:nilerr // a node answers with it
	}

	return done, "", nil
}

// startNode starts a node with a data directory, as a service does. The node rebuilds its stores
// when an erasure demands it.
func (s *testService) startNode(dir string) *otherNode {
	s.t.Helper()
	stale, err := HasMissedErasure(dir, "stores", s.o.Log)
	if err == nil && stale {
		err = RemoveStores(dir, "stores")
	}
	if err != nil {
		s.t.Fatal(err)
	}

	own, err := archive.Open(s.t.Context(), s.o.Buckets[0], s.o.Log.ID())
	if err != nil {
		s.t.Fatal(err)
	}
	p := &otherNode{Part: Part{Log: s.o.Log, Archive: own}, s: s, dir: dir}

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, makes := range all.Constructors(smallSettings()) {
		l, err := live.Open(live.Options{Options: store.Options{Dir: filepath.Join(dir, "stores")}, New: makes})
		if err != nil {
			s.t.Fatal(err)
		}
		p.Stores = append(p.Stores, l)
	}
	if err := p.Open(dir); err != nil {
		s.t.Fatal(err)
	}

	for _, l := range p.Stores {
		wg.Go(func() {
			_ = l.Run(ctx, func(from events.Cursor) (store.Subscription, error) { return s.subscribe(from, events.AllKinds) })
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-p.RebuildWanted():
			case <-ctx.Done():
			}

			release, err := p.LockBuilds(ctx)
			if err != nil {
				return
			}

			_, err = p.RebuildIfErased(ctx, s.subscribe, rebuild.Options{})
			if release(); err != nil && ctx.Err() == nil {
				s.t.Error(err)
			}
		}
	})

	p.stop = func() {
		p.stop = nil
		cancel()
		for _, l := range p.Stores {
			if err := l.Close(); err != nil {
				s.t.Error(err)
			}
		}
		wg.Wait()
	}

	return p
}

// waitForRows waits until all stores have reached a sequence, and returns their rows.
func (p *otherNode) waitForRows(seq uint64) []conformance.Rows {
	p.s.t.Helper()
	of := testService{t: p.s.t, o: Options{Stores: p.Stores}}
	return of.waitForRows(seq)
}

// After an erasure, no file of any node contains the id, and the rows of all other users are
// unchanged.
func TestErasedIDIsInNoFileOfAnyNode(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	b := s.startNode(t.TempDir())
	defer func() { b.stop() }()
	s.setOtherNodes(map[string]*otherNode{"b": b})

	last := s.publish(memlog.NewWorld(1, 30).Envelopes(300), map[string]string{"user1": user})
	// Look at rows, not at files: a compaction may replace files while they are read.
	if !slices.ContainsFunc(b.waitForRows(last), func(rows conformance.Rows) bool { return rows.With(user) }) {
		t.Fatal("expected the other node to have rows of the user before the erasure")
	}
	for _, l := range b.Stores {
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}

	r, err := Erase(t.Context(), s.o, []string{user}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Nodes) != 1 || r.Nodes[0] != "node b: its stores were built anew" {
		t.Errorf("got %+v, expected that the stores of node b were built anew", r)
	}

	for _, dir := range []string{s.dir, b.dir} {
		if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
			t.Errorf("expected no file with the id, got %v", found)
		}
	}

	want := s.waitForRows(r.Head)
	for i, rows := range b.waitForRows(r.Head) {
		withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s", b.Stores[i].Name())
	}

	if done, err := b.Clean(t.Context(), r.Epoch); !done || err != nil {
		t.Errorf("after the erasure, Clean of node b returned %v and %v, expected that it is done", done, err)
	}
}

// If a node cannot take part, the user is not deleted, or nothing is scrubbed.
func TestNothingIsScrubbedWithoutANode(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	b := s.startNode(t.TempDir())
	peers := map[string]*otherNode{"b": b}
	s.setOtherNodes(peers)
	last := s.publish(memlog.NewWorld(1, 20).Envelopes(50), map[string]string{"user1": user})
	s.waitForRows(last)

	refused := func(what string) {
		t.Helper()
		_, err := Erase(t.Context(), s.o, []string{user}, nil)
		if !errors.Is(err, ErrNode) || s.o.Log.Epoch() != 1 || len(conformance.FilesWith(t, filepath.Join(s.dir, "bucket"), user)) == 0 {
			t.Errorf("%s: got %v in epoch %d, expected ErrNode in epoch 1, and the id still in the bucket", what, err, s.o.Log.Epoch())
		}
	}

	if err := s.o.Archiver.ArchiveNow(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	flush := s.o.Nodes.Flush
	s.o.Nodes.Flush = func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
		if seq > 0 {
			return false, "", errors.New("no answer")
		}
		return flush(ctx, name, epoch, seq)
	}
	refused("the node does not answer any more")
	s.o.Nodes.Flush = flush

	b.Archive = nil
	refused("the node has no archive")

	b.stop()
	head, err := s.o.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	refused("the node is not running")
	if now, err := s.o.Log.Head(t.Context()); err != nil || now.Last != head.Last {
		t.Errorf("after the refused erasure, the log ends at %d (%v), expected %d", now.Last, err, head.Last)
	}

	peers["b"] = s.startNode(b.dir)
	defer func() { peers["b"].stop() }()
	if _, err := Erase(t.Context(), s.o, []string{user}, nil); err != nil {
		t.Error(err)
	}
}

// A node that was away during an erasure rebuilds its stores before it serves. A node that took
// part, and stopped before it had rebuilt its stores, continues with them and rebuilds them later.
// A node that was running but was not asked stops.
func TestNodeAwayDuringErasureRebuildsItsStores(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	w := memlog.NewWorld(1, 20)
	last := s.publish(w.Envelopes(100), map[string]string{"user1": user})

	away, running, there := s.startNode(t.TempDir()), s.startNode(t.TempDir()), s.startNode(t.TempDir())
	for _, p := range []*otherNode{away, running, there} {
		p.waitForRows(last)
		for _, l := range p.Stores {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	away.stop()

	ctx, cancel := context.WithCancel(t.Context())
	s.setOtherNodes(map[string]*otherNode{"there": there})
	s.o.Nodes.Clean = func(context.Context, string, uint32) (bool, string, error) { // as if this process stopped
		cancel()
		return false, "", ctx.Err()
	}
	if _, err := Erase(ctx, s.o, []string{user}, nil); !errors.Is(err, context.Canceled) || s.o.Log.Epoch() != 2 {
		t.Fatalf("got %v in epoch %d, expected context.Canceled in epoch 2", err, s.o.Log.Epoch())
	}

	there.stop()
	if _, err := running.CheckErasures(); !errors.Is(err, ErrMissed) {
		t.Errorf("CheckErasures of a running node that was not asked returned %v, expected ErrMissed", err)
	}
	running.stop()
	for name, p := range map[string]*otherNode{"away": away, "running": running, "there": there} {
		stale, err := HasMissedErasure(p.dir, "stores", s.o.Log)
		if err != nil || stale != (p != there) {
			t.Errorf("HasMissedErasure for node %s returned %v and %v, expected %v", name, stale, err, p != there)
		}
	}

	peers := map[string]*otherNode{"away": s.startNode(away.dir), "running": s.startNode(running.dir), "there": s.startNode(there.dir)}
	s.setOtherNodes(peers)
	if _, err := s.o.Nodes.awaitRebuilt(t.Context(), 2); err != nil {
		t.Fatal(err)
	}

	last = s.publish(w.Envelopes(20), map[string]string{"user1": "other1"})
	want := s.waitForRows(last)
	for name, p := range peers {
		for i, rows := range p.waitForRows(last) {
			withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s of %s", p.Stores[i].Name(), name)
		}

		p.stop()
		if found := conformance.FilesWith(t, p.dir, user); len(found) > 0 {
			t.Errorf("node %s: expected no file with the id, got %v", name, found)
		}
		if stale, err := HasMissedErasure(p.dir, "stores", s.o.Log); stale || err != nil {
			t.Errorf("node %s: after the rebuild, HasMissedErasure returned %v and %v", name, stale, err)
		}
	}

	// Another erasure, with all three nodes.
	for name, p := range peers {
		peers[name] = s.startNode(p.dir)
		defer func() { peers[name].stop() }()
	}
	if r, err := Erase(t.Context(), s.o, []string{user}, nil); err != nil || r.Epoch != 3 || len(r.Nodes) != 3 {
		t.Errorf("got %+v and %v, expected epoch 3 and 3 nodes", r, err)
	}
}
