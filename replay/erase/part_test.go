package erase

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/wait"
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
			copyErr := peers[name].CheckMayCopy(epoch)
			done, err := peers[name].Clean(ctx, epoch)

			// Rows may be copied from a node only if its stores contain no erased data. Then it has
			// nothing to do.
			if copyErr == nil && !done {
				s.t.Errorf("CheckMayCopy of node %s returned no error, expected one, because its stores may contain erased data", name)
			}

			return asAnswer(done, err)
		},
	}
}

// asAnswer returns what a node answers to a call, as [Nodes] has it.
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

	// A node that was away during an erasure removes its stores before it opens them.
	missed, err := HasMissedErasure(dir, "stores", s.o.Log)
	if err == nil && missed {
		err = RemoveStores(dir, "stores")
	}
	if err != nil {
		s.t.Fatal(err)
	}

	nodeArchive, err := archive.Open(s.t.Context(), s.o.Buckets[0], s.o.Log.ID())
	if err != nil {
		s.t.Fatal(err)
	}
	p := &otherNode{Part: Part{Log: s.o.Log, Archive: nodeArchive}, s: s, dir: dir}
	for _, newProjection := range all.Constructors(smallSettings()) {
		l, err := live.Open(live.Options{Options: store.Options{Dir: filepath.Join(dir, "stores")}, New: newProjection})
		if err != nil {
			s.t.Fatal(err)
		}
		p.Stores = append(p.Stores, l)
	}
	if err := p.Open(dir); err != nil {
		s.t.Fatal(err)
	}

	// Fold, and rebuild the stores when an erasure demands it, until stop is called.
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
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
			release()
			if err != nil && ctx.Err() == nil {
				s.t.Errorf("rebuild after an erasure: got %v, expected no error", err)
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
	s := testService{t: p.s.t, o: Options{Stores: p.Stores}}
	return s.waitForRows(seq)
}

// mustReach waits until all stores have reached a sequence. Unlike waitForRows, it does not flush
// them.
func (p *otherNode) mustReach(seq uint64) {
	p.s.t.Helper()
	s := testService{t: p.s.t, o: Options{Stores: p.Stores}}
	s.mustReach(seq)
}

// After an erasure, no file of any node contains the id, and the rows of all other users are
// unchanged.
func TestErasedIDIsInNoFileOfAnyNode(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	b := s.startNode(t.TempDir())
	defer func() { b.stop() }()
	s.setOtherNodes(map[string]*otherNode{"b": b})

	// Look at rows, not at files: a compaction may replace files while they are read.
	last := s.publish(memlog.NewWorld(1, 30).Envelopes(300), map[string]string{"user1": user})
	if !slices.ContainsFunc(b.waitForRows(last), func(rows conformance.Rows) bool { return rows.With(user) }) {
		t.Fatal("before the erasure, the other node has no rows of the user, expected some")
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
	if diff := cmp.Diff([]string{"node b: its stores were built anew"}, r.Nodes); diff != "" {
		t.Errorf("what the nodes did (-want +got):\n%s", diff)
	}

	for _, dir := range []string{s.dir, b.dir} {
		checkInNoFile(t, dir, []string{user})
	}

	want := s.waitForRows(r.Head)
	for i, rows := range b.waitForRows(r.Head) {
		withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s", b.Stores[i].Name())
	}

	if done, err := b.Clean(t.Context(), r.Epoch); !done || err != nil {
		t.Errorf("after the erasure, Clean of node b returned %v and %v, expected that it is done", done, err)
	}
}

// From the deletion of the users until the new epoch begins, a node builds no generation: it could
// have read a user's events before they were scrubbed, and the deletion afterwards, when that names
// only the pseudonym.
func TestNodeBuildsNothingWhileLogIsScrubbed(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	b := s.startNode(t.TempDir())
	defer func() { b.stop() }()
	s.setOtherNodes(map[string]*otherNode{"b": b})
	b.mustReach(s.publish(memlog.NewWorld(1, 20).Envelopes(50), map[string]string{"user1": user}))

	mayBuild := func() bool {
		ok := b.builds.TryAcquire(1)
		if ok {
			b.builds.Release(1)
		}
		return ok
	}
	var flushed atomic.Bool // an erasure that takes long calls Flush again in another goroutine
	flush := s.o.Nodes.Flush
	s.o.Nodes.Flush = func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
		done, why, err := flush(ctx, name, epoch, seq)
		if done && seq > 0 {
			flushed.Store(true)
		}
		return done, why, err
	}
	// The erasure archives the rest of the epoch when the archive is scrubbed.
	logArchiver := s.o.Archiver
	checks := 0
	s.o.Archiver = archiverFunc(func(ctx context.Context, seq uint64) error {
		if flushed.Load() && s.o.Log.Epoch() == 1 {
			checks++
			if mayBuild() {
				t.Error("after the scrub, and before the new epoch, the node may build a generation, expected that it may not")
			}
		}
		return logArchiver.ArchiveNow(ctx, seq)
	})
	if _, err := Erase(t.Context(), s.o, []string{user}, nil); err != nil {
		t.Fatal(err)
	}
	if checks == 0 {
		t.Error("the archiver was not called between the scrub and the new epoch, expected that it was")
	}

	// The node could only build its stores anew because it may build again in the new epoch.
	release, err := b.LockBuilds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// A node that has flushed a deletion may build generations again some time after the process that
// erases has called it last.
func TestNodeBuildsAgainAfterLostErasure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &Part{builds: semaphore.NewWeighted(maxBuilds)}
		began := time.Now()
		const calls = 3
		for range calls {
			if err := p.holdBuilds(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if err := wait.For(t.Context(), renewInterval); err != nil {
				t.Fatal(err)
			}
		}

		release, err := p.ShareBuilds(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		release()
		if took, want := time.Since(began), (calls-1)*renewInterval+holdTime; took != want {
			t.Errorf("the node may build after %v, expected %v", took, want)
		}

		// The next erasure takes the lock again.
		if err := p.holdBuilds(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if p.builds.TryAcquire(1) {
			t.Error("in the next erasure, the node may build, expected that it may not")
		}
	})
}

// If a node cannot take part, the user is not deleted, or nothing is scrubbed.
func TestNothingIsScrubbedWithoutANode(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	b := s.startNode(t.TempDir())
	peers := map[string]*otherNode{"b": b}
	s.setOtherNodes(peers)
	last := s.publish(memlog.NewWorld(1, 20).Envelopes(50), map[string]string{"user1": user})
	s.mustReach(last)
	if err := s.o.Archiver.ArchiveNow(t.Context(), last); err != nil {
		t.Fatal(err)
	}

	checkEraseRefused := func(reason string) {
		t.Helper()
		_, err := Erase(t.Context(), s.o, []string{user}, nil)
		if !errors.Is(err, ErrNode) {
			t.Errorf("%s: got %v, expected %v", reason, err, ErrNode)
		}
		if epoch := s.o.Log.Epoch(); epoch != 1 {
			t.Errorf("%s: got epoch %d, expected 1", reason, epoch)
		}
		if len(conformance.FilesWith(t, filepath.Join(s.dir, "bucket"), user)) == 0 {
			t.Errorf("%s: no file of the archive has the id, expected that it is not scrubbed", reason)
		}
	}

	// The node answers only that it can take part.
	flush := s.o.Nodes.Flush
	s.o.Nodes.Flush = func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
		if seq > 0 {
			return false, "", errors.New("no answer")
		}
		return flush(ctx, name, epoch, seq)
	}
	checkEraseRefused("the node does not answer any more")
	s.o.Nodes.Flush = flush

	b.Archive = nil
	checkEraseRefused("the node has no archive")

	// If it is known before that a node cannot take part, the user is not even deleted.
	b.stop()
	before, err := s.o.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	checkEraseRefused("the node is not running")
	after, err := s.o.Log.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if after.Last != before.Last {
		t.Errorf("after the refused erasure, the log ends at %d, expected still %d", after.Last, before.Last)
	}

	// With the node, the user is erased.
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
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.joinCluster()
	w := memlog.NewWorld(1, 20)
	last := s.publish(w.Envelopes(100), map[string]string{"user1": user})

	// The erasure asks only the node that takes part.
	away := s.startNode(t.TempDir())
	notAsked := s.startNode(t.TempDir())
	takesPart := s.startNode(t.TempDir())
	for _, p := range []*otherNode{away, notAsked, takesPart} {
		p.waitForRows(last)
		for _, l := range p.Stores {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	away.stop()

	// The erasure ends before the node has rebuilt its stores, as if this process stopped.
	ctx, cancel := context.WithCancel(t.Context())
	s.setOtherNodes(map[string]*otherNode{"takes part": takesPart})
	s.o.Nodes.Clean = func(context.Context, string, uint32) (bool, string, error) {
		cancel()
		return false, "", ctx.Err()
	}
	if _, err := Erase(ctx, s.o, []string{user}, nil); !errors.Is(err, context.Canceled) || s.o.Log.Epoch() != 2 {
		t.Fatalf("got %v in epoch %d, expected context.Canceled in epoch 2", err, s.o.Log.Epoch())
	}

	// Only the node that took part may continue with its stores.
	takesPart.stop()
	if _, err := notAsked.CheckErasures(); !errors.Is(err, ErrMissed) {
		t.Errorf("CheckErasures of a running node that was not asked returned %v, expected ErrMissed", err)
	}
	notAsked.stop()
	for name, p := range map[string]*otherNode{"away": away, "not asked": notAsked, "takes part": takesPart} {
		wantMissed := p != takesPart
		missed, err := HasMissedErasure(p.dir, "stores", s.o.Log)
		if err != nil || missed != wantMissed {
			t.Errorf("HasMissedErasure for node %q returned %v and %v, expected %v", name, missed, err, wantMissed)
		}
	}

	// Start all of them again, and wait until they have rebuilt their stores.
	peers := map[string]*otherNode{
		"away":       s.startNode(away.dir),
		"not asked":  s.startNode(notAsked.dir),
		"takes part": s.startNode(takesPart.dir),
	}
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
		checkInNoFile(t, p.dir, []string{user})
		if missed, err := HasMissedErasure(p.dir, "stores", s.o.Log); missed || err != nil {
			t.Errorf("HasMissedErasure for node %q returned %v and %v after the rebuild, expected false", name, missed, err)
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
