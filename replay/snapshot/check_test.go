package snapshot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// TestNextSnapshotRepairsDamageThatCheckFound damages a file that two snapshots share. Check finds
// both, and the next snapshot repairs both.
func TestNextSnapshotRepairsDamageThatCheckFound(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	envs := makeFollows(100)
	n.fold(t, envs)
	n.mustTake(t, "one")
	n.mustTake(t, "two")

	list, err := snapshot.List(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}

	var p replay.Progress
	c, err := snapshot.Check(t.Context(), b, true, replay.Pace{}, &p)
	if err != nil || len(c.Damaged)+len(c.Broken) > 0 || c.Removed || c.Files != len(b.objectNames("snapshot-files/")) {
		t.Fatalf("got %+v and %v, expected all files and no damage", c, err)
	}
	if got := p.Now(); got.Done != got.Total || got.Done != uint64(c.Bytes) {
		t.Errorf("got the progress %+v, expected all %d bytes done", got, c.Bytes)
	}

	// Damage a file that does not change while the store is open. Whether a table changes depends
	// on compactions.
	two := list[slices.IndexFunc(list, func(l snapshot.ListedSnapshot) bool { return l.Snapshot == "two" })].Manifest
	i := slices.IndexFunc(two.Files, func(f snapshot.File) bool { return strings.HasPrefix(f.Name, "OPTIONS") })
	name := "snapshot-files/" + two.Files[i].SHA256
	damaged := slices.Clone(b.objects[name].data)
	damaged[len(damaged)/2] ^= 1
	b.objects[name] = object{damaged, b.objects[name].time}

	// Without the permission to remove files, Check only reports the damage.
	c, err = snapshot.Check(t.Context(), b, false, replay.Pace{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{name}, c.Damaged); diff != "" {
		t.Fatalf("damaged files (-want +got):\n%s", diff)
	}
	if len(c.Broken) < 2 || !slices.Contains(c.Broken, "two/graph") {
		t.Fatalf("got the broken snapshots %v, expected at least two, among them two/graph", c.Broken)
	}
	if c.Removed || len(b.objectNames(name)) != 1 {
		t.Fatalf("got %+v, expected that the damaged file is not removed", c)
	}

	// With it, Check removes the file.
	c, err = snapshot.Check(t.Context(), b, true, replay.Pace{}, nil)
	if err != nil || !c.Removed || len(b.objectNames(name)) > 0 {
		t.Fatalf("got %+v and %v, expected that the damaged file %s was removed", c, err, name)
	}
	if _, err := restoreInMemory(t, b, "two", newGraph()); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("after a file was removed, Restore returned %v, expected ErrDamaged", err)
	}

	n.mustTake(t, "anew")
	c, err = snapshot.Check(t.Context(), b, false, replay.Pace{}, nil)
	if err != nil || len(c.Damaged)+len(c.Broken) > 0 {
		t.Errorf("after another snapshot, got %+v and %v, expected no damage", c, err)
	}
	for _, name := range []string{"one", "two", "anew"} {
		mustRestore(t, b, name, newGraph, envs)
	}
}

// TestCheckIgnoresSnapshotRemovedMeanwhile removes a snapshot with its files after Check has listed
// the snapshots. Check does not report it as broken.
func TestCheckIgnoresSnapshotRemovedMeanwhile(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, makeFollows(100))
	n.mustTake(t, "one")

	b.setOutcomes(func(_ int, op, name string) outcome {
		if op == "list" && name == "snapshot-files/" {
			clear(b.objects) // the caller holds the lock
		}
		return success
	})
	c, err := snapshot.Check(t.Context(), b, false, replay.Pace{}, nil)
	if err != nil || len(c.Damaged)+len(c.Broken) > 0 {
		t.Errorf("got %+v and %v, expected no damage", c, err)
	}
}
