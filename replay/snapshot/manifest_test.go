package snapshot_test

import (
	"os"
	"testing"
	"time"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/replay/snapshot"
)

const goldenManifest = "testdata/manifest.golden"

// TestManifestOfAnEarlierVersionIsRead reads a manifest that an earlier version has written. It can
// be read only if this version would write the same bytes.
func TestManifestOfAnEarlierVersionIsRead(t *testing.T) {
	if os.Getenv(conformance.UpdateGolden) != "" {
		b := bucketWithSnapshot(t)
		if err := os.WriteFile(goldenManifest, b.objects["snapshots/one/graph.json"].data, 0o644); err != nil {
			t.Fatal(err)
		}
	}

	data, err := os.ReadFile(goldenManifest)
	if err != nil {
		t.Fatal(err)
	}

	b := newMemoryBucket()
	b.objects["snapshots/one/graph.json"] = object{data, time.Now()}
	list, err := snapshot.List(t.Context(), b)
	if err != nil || len(list) != 1 || list[0].Err != nil {
		t.Fatalf("got %v and %v, expected one snapshot", list, err)
	}

	m := list[0].Manifest
	c, err := m.Cursor.Parse()
	if err != nil || c.Log != logID || c.Epoch != 1 || c.Seq == 0 || c.LastTime == 0 {
		t.Errorf("got the cursor %+v and %v, expected one of the test log in epoch 1", c, err)
	}
	if m.Fingerprint.Name != "graph" || len(m.Files) < 4 || m.Bytes() == 0 || m.Format.Rows != 1 {
		t.Errorf("got %+v, expected a manifest of the graph with at least 4 files", m)
	}
}

// TestSnapshotInADirectory takes and restores a snapshot in a directory, with real files.
func TestSnapshotInADirectory(t *testing.T) {
	b, err := bucket.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n := newTestProcess(t, b, newGraph())
	envs := makeFollows(300)

	n.fold(t, envs[:200])
	n.mustTake(t, "one")
	n.fold(t, envs)
	n.mustTake(t, "two")

	for _, name := range []string{"one", "two", ""} {
		mustRestore(t, b, name, newGraph, envs)
	}

	if p, err := snapshot.Remove(t.Context(), b, "one"); err != nil || p.Files == 0 {
		t.Errorf("Remove returned %v and %v, expected removed files", p, err)
	}
	mustRestore(t, b, "two", newGraph, envs)

	dir := t.TempDir()
	r, err := snapshot.Restore(t.Context(), snapshot.RestoreOptions{Bucket: b, Projection: newGraph(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := r.Manifest.Cursor.Parse(); err != nil || c.Seq != envs[len(envs)-1].Seq() {
		t.Errorf("got the cursor %+v and %v, expected the end of the log", c, err)
	}
	if _, err := os.Stat(r.Dir); err != nil {
		t.Errorf("directory of the restored store: got %v, expected that it exists", err)
	}
}
