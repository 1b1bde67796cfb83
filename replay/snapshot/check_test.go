package snapshot_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// TestCheckMends damages a file that two snapshots share: checking finds both, and the next snapshot mends both.
func TestCheckMends(t *testing.T) {
	b := newMemory()
	n := newNode(t, b, newGraph())
	envs := follows(400)
	n.fold(t, envs)
	n.take(t, "one")
	for { // until compactions have ended
		if _, more := n.take(t, "two").Bytes(); more == 0 {
			break
		}
		if _, err := snapshot.Remove(t.Context(), b, "two"); err != nil {
			t.Fatal(err)
		}
	}
	list, err := snapshot.List(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	var p replay.Progress
	c, err := snapshot.Check(t.Context(), b, true, replay.Pace{}, &p)
	if err != nil || len(c.Damaged)+len(c.Broken) > 0 || c.Removed || c.Files != len(b.names("snapshot-files/")) {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, done, total := p.Now(); done != total || done != uint64(c.Bytes) {
		t.Errorf("progress %d of %d, %d bytes", done, total, c.Bytes)
	}
	two := list[slices.IndexFunc(list, func(l snapshot.Listed) bool { return l.Snapshot == "two" })].Manifest
	i := slices.IndexFunc(two.Files, func(f snapshot.File) bool { return len(f.Name) > 4 && f.Name[len(f.Name)-4:] == ".sst" })
	name := "snapshot-files/" + two.Files[i].SHA256
	bad := []byte(string(b.objects[name].data))
	bad[len(bad)/2] ^= 1
	b.objects[name] = object{bad, b.objects[name].time}

	c, err = snapshot.Check(t.Context(), b, false, replay.Pace{}, nil)
	if err != nil || !slices.Equal(c.Damaged, []string{name}) || !slices.Contains(c.Broken, "two/graph") || c.Removed ||
		len(b.names(name)) != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if c, err = snapshot.Check(t.Context(), b, true, replay.Pace{}, nil); err != nil || !c.Removed || len(b.names(name)) > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	if _, err := restore(t, b, "two", newGraph()); !errors.Is(err, snapshot.ErrDamaged) {
		t.Errorf("restored without a file: %v", err)
	}
	n.take(t, "three")
	if c, err = snapshot.Check(t.Context(), b, false, replay.Pace{}, nil); err != nil || len(c.Damaged)+len(c.Broken) > 0 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, name := range []string{"one", "two", "three"} {
		mustRestore(t, b, name, newGraph, envs)
	}
}
