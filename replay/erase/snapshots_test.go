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
	s.o.Shared = shared
	s.o.Bucket = s.bucketOfNode(shared, "a")
	s.o.Scheduler = snapshot.New(snapshot.Options{
		Bucket:       s.o.Bucket,
		Scratch:      filepath.Join(s.dir, "stores", "shadow-snapshots"),
		Stores:       s.snapshotStores,
		ErasureState: s.o.Part.ErasureState,
	})
	return shared
}

// bucketOfNode returns the part of the shared bucket with the snapshots of a node.
func (s *testService) bucketOfNode(shared bucket.Bucket, name string) bucket.Bucket {
	s.t.Helper()
	b, err := snapshot.OfNode(shared, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// newScheduler returns a scheduler of the snapshots of a node, which are in the bucket.
func (p *otherNode) newScheduler(b bucket.Bucket) *snapshot.Scheduler {
	p.Snapshots = b
	s := testService{t: p.s.t, o: Options{Stores: p.Stores}}
	return snapshot.New(snapshot.Options{
		Bucket:       b,
		Scratch:      filepath.Join(p.dir, "stores", "shadow-snapshots"),
		Stores:       s.snapshotStores,
		ErasureState: p.ErasureState,
	})
}

// mustTakeScheduled takes a scheduled snapshot, and returns its name.
func (s *testService) mustTakeScheduled(scheduler *snapshot.Scheduler) (name string) {
	s.t.Helper()
	r, err := scheduler.TakeNow(s.t.Context(), nil)
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
		_, err := snapshot.Restore(s.t.Context(), snapshot.RestoreOptions{
			Bucket: b, Snapshot: name, Projection: p, Dir: filepath.Join(dir, "stores"),
			BeforePlacing: func(m *snapshot.Manifest) error { return RecordRestoredStore(dir, "stores", m.Erased) },
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
	return dir
}

// snapshotNames returns the names of the snapshots in a bucket, sorted.
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
// nor those of another one, of one that no longer exists, or of a process that was not a node. If
// stores are restored from a copy of a snapshot from before the erasure, they do not bring the user
// back.
func TestErasureRemovesSnapshotsOfAllNodes(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	sharedDir := t.TempDir()
	shared := s.shareBucket(sharedDir)
	b := s.startNode(t.TempDir())
	defer func() { b.stop() }()
	gone := s.startNode(t.TempDir())
	s.setOtherNodes(map[string]*otherNode{"b": b})

	w := memlog.NewWorld(1, 30)
	last := s.publish(w.Envelopes(100), map[string]string{"user1": user})
	s.mustReach(last)
	b.mustReach(last)
	gone.mustReach(last)

	// Take snapshots of this node, of two others, and of a process that is not a node.
	schedulerOfB := b.newScheduler(s.bucketOfNode(shared, "b"))
	nameOfA := s.mustTakeScheduled(s.o.Scheduler)
	nameOfB := s.mustTakeScheduled(schedulerOfB)
	nameOfGone := s.mustTakeScheduled(gone.newScheduler(s.bucketOfNode(shared, "gone")))
	nameOfNoNode := s.mustTakeScheduled(snapshot.New(snapshot.Options{
		Bucket: shared, Scratch: filepath.Join(t.TempDir(), "scratch"), Stores: s.snapshotStores,
	}))
	gone.stop()

	// Leave a file of a node that stopped before it had written the manifest of its snapshot.
	unfinished := s.bucketOfNode(shared, "half")
	err := unfinished.Put(t.Context(), "snapshot-files/"+strings.Repeat("0", 64), strings.NewReader(user), int64(len(user)))
	if err != nil {
		t.Fatal(err)
	}
	if found := conformance.FilesWith(t, sharedDir, user); len(found) < 5 {
		t.Fatalf("before the erasure, got the files %v with the id, expected at least 5", found)
	}

	oldDir := filepath.Join(t.TempDir(), "kept")
	if err := os.CopyFS(oldDir, os.DirFS(sharedDir)); err != nil {
		t.Fatal(err)
	}

	// Node b removes its own snapshot, and this node does not report it.
	r, err := Erase(t.Context(), s.o, []string{user}, nil)
	if err != nil {
		t.Fatal(err)
	}
	wantRemoved := []string{nameOfA, nameOfNoNode, "nodes/gone/" + nameOfGone}
	if diff := cmp.Diff(wantRemoved, r.Snapshots); diff != "" {
		t.Errorf("removed snapshots (-want +got):\n%s", diff)
	}
	if len(r.OperatorTasks) > 0 {
		t.Errorf("got the tasks %v for operators, expected none", r.OperatorTasks)
	}
	checkInNoFile(t, sharedDir, []string{user})
	for name, wantCount := range map[string]int{"a": 1, "b": 0, "gone": 0} {
		if got := snapshotNames(t, s.bucketOfNode(shared, name)); len(got) != wantCount {
			t.Errorf("node %s: got the snapshots %v, expected %d", name, got, wantCount)
		}
	}

	// Restore stores from before and after the erasure, and start nodes with them.
	nameAfter := s.mustTakeScheduled(schedulerOfB)
	old, err := bucket.NewDir(oldDir)
	if err != nil {
		t.Fatal(err)
	}
	for dir, wantMissed := range map[string]bool{
		s.restoreStores(s.bucketOfNode(old, "b"), nameOfB):      true,
		s.restoreStores(old, nameOfNoNode):                      true,
		s.restoreStores(s.bucketOfNode(shared, "b"), nameAfter): false,
	} {
		if missed, err := HasMissedErasure(dir, "stores", s.o.Log); err != nil || missed != wantMissed {
			t.Errorf("HasMissedErasure returned %v and %v, expected %v", missed, err, wantMissed)
		}

		p := s.startNode(dir)
		if due, err := p.CheckErasures(); due || err != nil {
			t.Errorf("after the start, CheckErasures returned %v and %v, expected nothing to do", due, err)
		}

		want := s.waitForRows(r.Head)
		for i, rows := range p.waitForRows(r.Head) {
			withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s", p.Stores[i].Name())
		}

		p.stop()
		checkInNoFile(t, dir, []string{user})
	}
}

// Snapshots that were taken by hand are removed by their names only (docs/operations.md). The
// report names those that may contain the user, and where they are.
func TestSnapshotsTakenByHandStayAfterErasure(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	shared := s.shareBucket(t.TempDir())
	gone := s.startNode(t.TempDir())
	s.setOtherNodes(nil)

	last := s.publish(memlog.NewWorld(1, 30).Envelopes(20), map[string]string{"user1": user})
	s.mustReach(last)
	gone.mustReach(last)

	// Take a scheduled snapshot and one by hand, of each node.
	schedulerOfGone := gone.newScheduler(s.bucketOfNode(shared, "gone"))
	for _, scheduler := range []*snapshot.Scheduler{s.o.Scheduler, schedulerOfGone} {
		s.mustTakeScheduled(scheduler)
		if _, err := scheduler.Take(t.Context(), "before-upgrade", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	gone.stop()

	r, err := Erase(t.Context(), s.o, []string{user}, nil)
	if err != nil {
		t.Fatal(err)
	}

	if got := snapshotNames(t, s.o.Bucket); len(got) != 2 || !slices.Contains(got, "before-upgrade") {
		t.Errorf("got the snapshots %v of this node, expected before-upgrade and the snapshot that the erasure took", got)
	}
	if diff := cmp.Diff([]string{"before-upgrade"}, snapshotNames(t, s.bucketOfNode(shared, "gone"))); diff != "" {
		t.Errorf("snapshots of the node that is gone (-want +got):\n%s", diff)
	}

	wantTasks := []string{
		remainingSnapshotsLine(s.o.Bucket, []string{"before-upgrade"}),
		remainingSnapshotsLine(s.bucketOfNode(shared, "gone"), []string{"before-upgrade"}),
	}
	if diff := cmp.Diff(wantTasks, r.OperatorTasks); diff != "" {
		t.Errorf("tasks for operators (-want +got):\n%s", diff)
	}
}

// A snapshot that a node began while its stores were old is removed, and none begins until they are
// rebuilt. A snapshot from after the flush of the deletion can be restored, and its stores are
// rebuilt.
func TestSnapshotOfOldStoresDoesNotOutliveErasure(t *testing.T) {
	t.Parallel()
	const user = "somebody-to-be-erased"
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	sharedDir := t.TempDir()
	shared := s.shareBucket(sharedDir)
	s.mustReach(s.publish(memlog.NewWorld(1, 30).Envelopes(100), map[string]string{"user1": user}))
	b := s.startNode(t.TempDir())
	s.setOtherNodes(map[string]*otherNode{"b": b})

	// When the deletion is on disk, node b takes a snapshot, of which a copy is kept. Its stores
	// stay old until it learns of the new epoch.
	copyDir := filepath.Join(t.TempDir(), "kept")
	scheduler := b.newScheduler(s.bucketOfNode(shared, "b"))
	var takenAfterFlush snapshot.Report
	isFlushed := false
	flush := s.o.Nodes.Flush
	s.o.Nodes.Flush = func(ctx context.Context, name string, epoch uint32, seq uint64) (bool, string, error) {
		done, why, err := flush(ctx, name, epoch, seq)
		if done && seq > 0 && !isFlushed {
			isFlushed = true

			// This is no work of the node for the call, and may take longer than a call.
			ctx = context.WithoutCancel(ctx)
			takenAfterFlush, err = scheduler.TakeNow(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(copyDir, os.DirFS(sharedDir)); err != nil {
				t.Fatal(err)
			}
		}

		return done, why, err
	}

	// While its stores are old, node b must refuse to take a snapshot.
	isChecked := false
	clean := s.o.Nodes.Clean
	s.o.Nodes.Clean = func(ctx context.Context, name string, epoch uint32) (bool, string, error) {
		if !isChecked {
			isChecked = true
			if _, err := b.ErasureState(ctx); !errors.Is(err, snapshot.ErrRebuildPending) || !strings.Contains(err.Error(), "a user was erased") {
				t.Errorf("while the stores of the node are old, ErasureState returned %v, expected ErrRebuildPending with the reason", err)
			}
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
		t.Errorf("after the erasure, ErasureState returned %+v and %v, expected epoch 2", got, err)
	}
	b.stop()

	// Restore the copy.
	copied, err := bucket.NewDir(copyDir)
	if err != nil {
		t.Fatal(err)
	}
	dir := s.restoreStores(s.bucketOfNode(copied, "b"), takenAfterFlush.Name)
	if missed, err := HasMissedErasure(dir, "stores", s.o.Log); err != nil || missed {
		t.Errorf("HasMissedErasure returned %v and %v, expected false", missed, err)
	}

	restored := s.startNode(dir)
	s.setOtherNodes(map[string]*otherNode{"b": restored})
	if _, err := s.o.Nodes.awaitRebuilt(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	restored.stop()
	checkInNoFile(t, dir, []string{user})
}

// The marker of a data directory must hold for all stores in it. So it records the least of what
// was erased from each restored store, and it is not written beside a store that was there before.
func TestMarkerHoldsForAllRestoredStores(t *testing.T) {
	state := func(epoch uint32, flushed uint64) *snapshot.ErasureState {
		return &snapshot.ErasureState{Epoch: epoch, Flushed: flushed}
	}
	for name, c := range map[string]struct {
		hasStore bool                     // a store was there before
		restored []*snapshot.ErasureState // of the restored stores; nil for a snapshot of a process that is not a node
		want     *snapshot.ErasureState   // in the marker; nil means that there is no marker
	}{
		"one store":               {restored: []*snapshot.ErasureState{state(2, 5)}, want: state(2, 5)},
		"lesser of two":           {restored: []*snapshot.ErasureState{state(2, 5), state(1, 7)}, want: state(1, 5)},
		"not a node":              {restored: []*snapshot.ErasureState{nil}},
		"not a node after a node": {restored: []*snapshot.ErasureState{state(2, 5), nil, state(2, 5)}, want: state(0, 0)},
		"beside an older store":   {hasStore: true, restored: []*snapshot.ErasureState{state(2, 5)}},
		"node after not a node":   {hasStore: true, restored: []*snapshot.ErasureState{nil, state(2, 5)}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.hasStore {
				if err := os.MkdirAll(filepath.Join(dir, "stores", "graph", "000001"), 0o750); err != nil {
					t.Fatal(err)
				}
			}

			for _, s := range c.restored {
				if err := RecordRestoredStore(dir, "stores", s); err != nil {
					t.Fatal(err)
				}
			}

			m, found, err := readMarker(filepath.Join(dir, markerName))
			if err != nil {
				t.Fatal(err)
			}
			if found != (c.want != nil) {
				t.Fatalf("got a marker: %v, %+v, expected %+v", found, m.ErasureState, c.want)
			}
			if found && m.ErasureState != *c.want {
				t.Errorf("got the marker %+v, expected %+v", m.ErasureState, *c.want)
			}
		})
	}
}
