package snapshot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// TestNextSnapshotRepairsDamageThatCheckFound damages a file that two snapshots share. Check finds both, and the next snapshot repairs both.
func TestNextSnapshotRepairsDamageThatCheckFound(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	envs := follows(100)
	n.fold(t, envs)
	n.take(t, "one")
	n.take(t, "two")
	names, last := []string{"one", "two"}, "two"
	list, err := snapshot.List(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	var p replay.Progress
	c, err := snapshot.Check(t.Context(), b, true, replay.Pace{}, &p)
	if err != nil || len(c.Damaged)+len(c.Broken) > 0 || c.Removed || c.Files != len(b.objectNames("snapshot-files/")) {
		t.Fatalf("%+v, %v", c, err)
	}
	if at := p.Now(); at.Done != at.Total || at.Done != uint64(c.Bytes) {
		t.Errorf("got %+v, expected %d bytes", at, c.Bytes)
	}
	two := list[slices.IndexFunc(list, func(l snapshot.Listed) bool { return l.Snapshot == last })].Manifest
	// One that stays as it is while the store is open; which tables do is a matter of compactions.
	i := slices.IndexFunc(two.Files, func(f snapshot.File) bool { return strings.HasPrefix(f.Name, "OPTIONS") })
	name := "snapshot-files/" + two.Files[i].SHA256
	bad := []byte(string(b.objects[name].data))
	bad[len(bad)/2] ^= 1
	b.objects[name] = object{bad, b.objects[name].time}

	c, err = snapshot.Check(t.Context(), b, false, replay.Pace{}, nil)
	if err != nil || !slices.Equal(c.Damaged, []string{name}) || len(c.Broken) < 2 || !slices.Contains(c.Broken, last+"/graph") || c.Removed ||
		len(b.objectNames(name)) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = snapshot.Check(t.Context(), b, true, replay.Pace{}, nil); err != nil || !c.Removed || len(b.objectNames(name)) > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := restoreInMemory(t, b, last, newGraph()); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("restored without a file: %v", err)
	}
	n.take(t, "anew")
	if c, err = snapshot.Check(t.Context(), b, false, replay.Pace{}, nil); err != nil || len(c.Damaged)+len(c.Broken) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, name := range append(names, "anew") {
		mustRestore(t, b, name, newGraph, envs)
	}
}
