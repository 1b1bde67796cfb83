package erase

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/snapshot"
)

// shareBucket makes a service a node whose snapshots are in a bucket that nodes share.
func (s *testService) shareBucket(dir string) bucket.Bucket {
	s.t.Helper()
	s.joinCluster()
	shared, err := bucket.NewDir(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	s.o.Shared, s.o.Bucket = shared, s.bucketOfNode(shared, "a")
	s.o.Scheduler = snapshot.New(snapshot.Options{
		Bucket: s.o.Bucket, Scratch: filepath.Join(s.dir, "stores", "shadow-snapshots"), Stores: s.snapshotStores, ErasureState: s.o.Part.ErasureState,
	})
	return shared
}

func (s *testService) bucketOfNode(shared bucket.Bucket, name string) bucket.Bucket {
	s.t.Helper()
	b, err := snapshot.OfNode(shared, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// newKeeper returns a keeper of the snapshots of a node.
func (p *otherNode) newKeeper(b bucket.Bucket) *snapshot.Scheduler {
	p.Snapshots = b
	of := testService{t: p.s.t, o: Options{Stores: p.Stores}}
	return snapshot.New(snapshot.Options{
		Bucket: b, Scratch: filepath.Join(p.dir, "stores", "shadow-snapshots"), Stores: of.snapshotStores, ErasureState: p.ErasureState,
	})
}

// takeScheduled takes a scheduled snapshot, and returns its name.
func (s *testService) takeScheduled(k *snapshot.Scheduler) (name string) {
	s.t.Helper()
	r, err := k.TakeNow(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Name
}

// restoreStores returns a data directory with the stores of a snapshot.
func (s *testService) restoreStores(b bucket.Bucket, name string) (dir string) {
	s.t.Helper()
	dir = s.t.TempDir()
	for _, p := range all.All(smallSettings()) {
		if _, err := snapshot.Restore(s.t.Context(), snapshot.RestoreOptions{
			Bucket: b, Snapshot: name, Projection: p, Dir: filepath.Join(dir, "stores"),
			BeforePlacing: func(m *snapshot.Manifest) error { return RecordRestoredStore(dir, "stores", m.Erased) },
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

func snapshotNames(t *testing.T, b bucket.Bucket) (names []string) {
	t.Helper()
	list, err := snapshot.List(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		names = append(names, l.Snapshot)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// After an erasure, no snapshot in the shared bucket contains the id: neither those of this node
// nor those of another one, of one that no longer exists, or of a process that was not a node. A
// snapshot from before, which was kept elsewhere, does not bring the user back.
func TestErasureRemovesSnapshotsOfAllNodes(t *testing.T) {
	const user = "somebody-to-be-erased"
	s, target := startService(t, t.TempDir()), t.TempDir()
	defer func() { s.stop() }()
	shared := s.shareBucket(target)
	b, gone := s.startNode(t.TempDir()), s.startNode(t.TempDir())
	defer func() { b.stop() }()
	s.setOtherNodes(map[string]*otherNode{"b": b})

	w := memlog.NewWorld(1, 30)
	last := s.publish(w.Envelopes(100), map[string]string{"user1": user})
	s.waitForRows(last)
	b.waitForRows(last)
	gone.waitForRows(last)

	ofB := b.newKeeper(s.bucketOfNode(shared, "b"))
	nameOfA, nameOfB := s.takeScheduled(s.o.Scheduler), s.takeScheduled(ofB)
	nameOfGone := s.takeScheduled(gone.newKeeper(s.bucketOfNode(shared, "gone")))
	nameOfWhole := s.takeScheduled(snapshot.New(snapshot.Options{
		Bucket: shared, Scratch: filepath.Join(t.TempDir(), "scratch"), Stores: s.snapshotStores,
	}))
	gone.stop()

	// A node that stopped before it had written the manifest of its snapshot.
	half := s.bucketOfNode(shared, "half")
	if err := half.Put(t.Context(), "snapshot-files/"+strings.Repeat("0", 64), strings.NewReader(user), int64(len(user))); err != nil {
		t.Fatal(err)
	}
	if found := conformance.FilesWith(t, target, user); len(found) < 5 {
		t.Fatalf("before the erasure, expected the id in at least 5 files, got %v", found)
	}

	kept := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(kept, os.DirFS(target)); err != nil {
		t.Fatal(err)
	}

	r, err := Erase(t.Context(), s.o, []string{user}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Node b has removed its own snapshot, and this node does not report it.
	if want := []string{nameOfA, nameOfWhole, "nodes/gone/" + nameOfGone}; !slices.Equal(r.Snapshots, want) || len(r.OperatorTasks) > 0 {
		t.Errorf("got the removed snapshots %v, expected %v; remaining, expected none: %v", r.Snapshots, want, r.OperatorTasks)
	}
	if found := conformance.FilesWith(t, target, user); len(found) > 0 {
		t.Errorf("expected no file with the id, got %v", found)
	}
	for name, n := range map[string]int{"a": 1, "b": 0, "gone": 0} {
		if got := snapshotNames(t, s.bucketOfNode(shared, name)); len(got) != n {
			t.Errorf("node %s: got the snapshots %v, expected %d", name, got, n)
		}
	}
	after := s.takeScheduled(ofB)

	old, err := bucket.NewDir(kept)
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{
		s.restoreStores(s.bucketOfNode(old, "b"), nameOfB):  true,
		s.restoreStores(old, nameOfWhole):                   true,
		s.restoreStores(s.bucketOfNode(shared, "b"), after): false,
	} {
		if stale, err := HasMissedErasure(dir, "stores", s.o.Log); err != nil || stale != want {
			t.Errorf("HasMissedErasure returned %v and %v, expected %v", stale, err, want)
		}

		p := s.startNode(dir)
		if due, err := p.CheckErasures(); due || err != nil {
			t.Errorf("after the start, CheckErasures returned %v and %v, expected nothing to do", due, err)
		}

		at := s.waitForRows(r.Head)
		for i, rows := range p.waitForRows(r.Head) {
			withoutLogTime(rows).MustEqual(t, withoutLogTime(at[i]), "%s", p.Stores[i].Name())
		}

		p.stop()
		if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
			t.Errorf("expected no file with the id, got %v", found)
		}
	}
}

// Snapshots that were taken by hand are removed by their names only (docs/operations.md). The
// report names those that may contain the user, and where they are.
func TestSnapshotsTakenByHandStayAfterErasure(t *testing.T) {
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	shared := s.shareBucket(t.TempDir())
	gone := s.startNode(t.TempDir())
	s.setOtherNodes(nil)

	last := s.publish(memlog.NewWorld(1, 30).Envelopes(20), map[string]string{"user1": user})
	s.waitForRows(last)
	gone.waitForRows(last)

	ofGone := gone.newKeeper(s.bucketOfNode(shared, "gone"))
	for _, k := range []*snapshot.Scheduler{s.o.Scheduler, ofGone} {
		s.takeScheduled(k)
		if _, err := k.Take(t.Context(), "before-upgrade", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	gone.stop()

	r, err := Erase(t.Context(), s.o, []string{user}, nil)
	if err != nil {
		t.Fatal(err)
	}

	if got := snapshotNames(t, s.o.Bucket); len(got) != 2 || !slices.Contains(got, "before-upgrade") {
		t.Errorf("expected before-upgrade and the snapshot that the erasure took, got %v", got)
	}
	want := []string{remainingSnapshotsLine(s.o.Bucket, []string{"before-upgrade"}), remainingSnapshotsLine(s.bucketOfNode(shared, "gone"), []string{"before-upgrade"})}
	if diff := cmp.Diff(want, r.OperatorTasks); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"before-upgrade"}, snapshotNames(t, s.bucketOfNode(shared, "gone"))); diff != "" {
		t.Error(diff)
	}
}

// A snapshot that a node began while its stores were old is removed, and none begins until they are
// rebuilt. A snapshot from after the flush of the deletion can be restored, and its stores are
// rebuilt.
func TestSnapshotOfOldStoresDoesNotOutliveErasure(t *testing.T) {
	const user = "somebody-to-be-erased"
	s, target := startService(t, t.TempDir()), t.TempDir()
	defer func() { s.stop() }()
	shared := s.shareBucket(target)
	s.waitForRows(s.publish(memlog.NewWorld(1, 30).Envelopes(100), map[string]string{"user1": user}))
	b := s.startNode(t.TempDir())
	s.setOtherNodes(map[string]*otherNode{"b": b})

	kept := filepath.Join(t.TempDir(), "kept")
	k := b.newKeeper(s.bucketOfNode(shared, "b"))

	clean := s.o.Nodes.Clean
	flush, release := s.o.Nodes.Flush, func() {}
	var flushed, built bool
	var taken snapshot.Report
	s.o.Nodes.Flush = func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
		done, why, err := flush(ctx, name, epoch, seq)
		if done && seq > 0 && !flushed {
			flushed = true

			if taken, err = k.TakeNow(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(kept, os.DirFS(target)); err != nil {
				t.Fatal(err)
			}
			if release, err = b.LockBuilds(ctx); err != nil { // until release, its stores stay old
				t.Fatal(err)
			}
		}

		return done, why, err
	}
	s.o.Nodes.Clean = func(ctx context.Context, name string, epoch uint32) (bool, string, error) {
		if !built {
			if _, err := b.ErasureState(ctx); !errors.Is(err, snapshot.ErrBusy) || !strings.Contains(err.Error(), "a user was erased") {
				t.Errorf("while the stores of the node are old, Erased returned %v, expected ErrBusy with the reason", err)
			}
			built = true
			release()
		}

		return clean(ctx, name, epoch)
	}

	if _, err := Erase(t.Context(), s.o, []string{user}, nil); err != nil {
		t.Fatal(err)
	}
	if got := snapshotNames(t, s.bucketOfNode(shared, "b")); len(got) > 0 {
		t.Errorf("after the erasure, got the snapshots %v of the node, expected none", got)
	}
	if got, err := b.ErasureState(t.Context()); err != nil || got.Epoch != 2 {
		t.Errorf("after the erasure, Erased returned %+v and %v, expected epoch 2", got, err)
	}
	b.stop()

	old, err := bucket.NewDir(kept)
	if err != nil {
		t.Fatal(err)
	}
	dir := s.restoreStores(s.bucketOfNode(old, "b"), taken.Name)
	if stale, err := HasMissedErasure(dir, "stores", s.o.Log); err != nil || stale {
		t.Errorf("HasMissedErasure returned %v and %v, expected false", stale, err)
	}

	again := s.startNode(dir)
	s.setOtherNodes(map[string]*otherNode{"b": again})
	if _, err := s.o.Nodes.awaitRebuilt(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	again.stop()

	if found := conformance.FilesWith(t, dir, user); len(found) > 0 {
		t.Errorf("expected no file with the id, got %v", found)
	}
}

// The marker of a data directory must hold for all stores in it. So it records the least of what
// was erased from each restored store, and it is not written beside a store that was there before.
func TestMarkerHoldsForAllRestoredStores(t *testing.T) {
	of := func(epoch uint32, seq uint64) *snapshot.ErasureState {
		return &snapshot.ErasureState{Epoch: epoch, Flushed: seq}
	}
	for name, c := range map[string]struct {
		store bool
		notes []*snapshot.ErasureState
		want  *snapshot.ErasureState
	}{
		"one store":               {notes: []*snapshot.ErasureState{of(2, 5)}, want: of(2, 5)},
		"lesser of two":           {notes: []*snapshot.ErasureState{of(2, 5), of(1, 7)}, want: of(1, 5)},
		"not a node":              {notes: []*snapshot.ErasureState{nil}},
		"not a node after a node": {notes: []*snapshot.ErasureState{of(2, 5), nil, of(2, 5)}, want: of(0, 0)},
		"beside an older store":   {store: true, notes: []*snapshot.ErasureState{of(2, 5)}},
		"node after not a node":   {store: true, notes: []*snapshot.ErasureState{nil, of(2, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()

			if c.store {
				if err := os.MkdirAll(filepath.Join(dir, "stores", "graph", "000001"), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			for _, e := range c.notes {
				if err := RecordRestoredStore(dir, "stores", e); err != nil {
					t.Fatal(err)
				}
			}

			m, found, err := readMarker(filepath.Join(dir, markerName))
			if err != nil || found != (c.want != nil) || found && m.ErasureState != *c.want {
				t.Errorf("got the marker %+v, %v and %v, expected %+v", m, found, err, c.want)
			}
		})
	}
}
