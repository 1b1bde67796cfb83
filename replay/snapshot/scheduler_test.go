package snapshot_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-feed/skein/replay/snapshot"
)

// snapshotNames returns the names of the snapshots in a bucket.
func snapshotNames(t *testing.T, b *memoryBucket) (names []string) {
	t.Helper()
	list, err := snapshot.List(t.Context(), b.clone())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		names = append(names, l.Snapshot)
	}
	return names
}

// runKeeper runs a keeper until the returned function is called.
func runKeeper(t *testing.T, k *snapshot.Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()

	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// letTimePass advances the clock of a synctest bubble.
func letTimePass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestScheduledSnapshotsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcessWith(t, snapshot.Options{Bucket: b, Keep: 3}, newGraph())
		envs := follows(600)
		fold := func(i int) { n.fold(t, envs[:i*len(envs)/10]) }
		fold(1)
		n.take(t, "by-hand")

		began := time.Now().UTC()
		at := func(hours int) string {
			return began.Add(time.Duration(hours) * time.Hour).Format("20060102t150405.000z")
		}

		stop := runKeeper(t, n.keeper)
		letTimePass(time.Minute)
		if got := snapshotNames(t, b); !slices.Equal(got, []string{at(0), "by-hand"}) && !slices.Equal(got, []string{"by-hand", at(0)}) {
			t.Errorf("a minute after the start, got the snapshots %v, expected by-hand and %s", got, at(0))
		}

		for i := range 4 {
			fold(2 + i)
			letTimePass(time.Hour)
		}
		want := []string{"by-hand", at(2), at(3), at(4)}
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("after four hours, got the snapshots %v, expected %v", got, want)
		}

		// The files of the pruned snapshots are removed, too: nothing remains for Prune.
		before := b.objectNames("")
		if _, err := snapshot.Prune(t.Context(), b, 0); err != nil || !slices.Equal(b.objectNames(""), before) {
			t.Errorf("expected no files that no snapshot needs: Prune returned %v and left %v of %v", err, b.objectNames(""), before)
		}

		// After a restart, the next snapshot is taken when it is due, neither before nor after.
		stop()
		letTimePass(30 * time.Minute)
		stop = runKeeper(t, n.keeper)
		defer func() { stop() }()
		letTimePass(28 * time.Minute)
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("58 minutes after the last snapshot and after a restart, got the snapshots %v, expected %v", got, want)
		}
		letTimePass(2 * time.Minute)
		want = []string{"by-hand", at(3), at(4), at(5)}
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("an hour after the last snapshot, got the snapshots %v, expected %v", got, want)
		}

		// The bucket fails for three hours.
		b.setOutcomes(func(int, string, string) outcome { return undone })
		letTimePass(3 * time.Hour)
		if s := n.keeper.Stats(); s.Failed != 3 || s.Error == nil || s.Taken != 7 {
			t.Errorf("while the bucket fails, got %+v, expected 3 failures, an error and 7 taken snapshots", s)
		}

		b.setOutcomes(nil)
		letTimePass(time.Hour)
		want = []string{"by-hand", at(4), at(5), at(9)}
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("an hour after the failures, got the snapshots %v, expected %v", got, want)
		}
		if s := n.keeper.Stats(); s.Error != nil || s.Taken != 8 || s.Bytes == 0 || s.Uploaded == 0 {
			t.Errorf("an hour after the failures, got %+v, expected no error and 8 taken snapshots", s)
		}

		mustRestore(t, b, at(9), newGraph, envs)
		mustRestore(t, b, "by-hand", newGraph, envs)
	})
}

// Two processes with one log and one bucket follow one schedule together.
func TestProcessesShareASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		var nodes []*testProcess
		for range 2 {
			n := newTestProcess(t, b, newGraph())
			n.fold(t, follows(100))
			nodes = append(nodes, n)
		}

		stop := runKeeper(t, nodes[0].keeper)
		letTimePass(10 * time.Minute)
		stop2 := runKeeper(t, nodes[1].keeper)
		letTimePass(5*time.Hour + 5*time.Minute)
		stop()
		stop2()

		if got := snapshotNames(t, b); len(got) != 6 {
			t.Errorf("after five hours of two processes, got the snapshots %v, expected 6", got)
		}
	})
}

func TestOldScheduledSnapshotsArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcessWith(t, snapshot.Options{Bucket: b, Every: time.Hour}, newGraph())
		envs := follows(200)
		n.fold(t, envs)

		stop := runKeeper(t, n.keeper)
		letTimePass(5*time.Hour + time.Minute)
		stop()
		all := snapshotNames(t, b)
		if len(all) != 6 {
			t.Fatalf("after five hours, got the snapshots %v, expected 6", all)
		}

		for name, c := range map[string]struct {
			keep int
			left int
		}{
			"keep all":                 {0, 6},
			"keep two":                 {2, 2},
			"keep more than there are": {7, 6},
		} {
			b := b.clone()
			p, err := snapshot.Prune(t.Context(), b, c.keep)
			if err != nil || len(p.Snapshots) != 6-c.left {
				t.Errorf("%s: got %v and %v, expected %d removed snapshots", name, p, err, 6-c.left)
			}
			if got := snapshotNames(t, b); !slices.Equal(got, all[6-c.left:]) {
				t.Errorf("%s: got the snapshots %v, expected %v", name, got, all[6-c.left:])
			}
			mustRestore(t, b, "", newGraph, envs)
		}

		// While a manifest cannot be read, no files are removed: the snapshot may need them.
		func() {
			b := b.clone()
			name := b.objectNames("snapshots/")[0]
			b.objects[name] = object{data: b.objects[name].data[1:]}
			b.objects["snapshot-files/garbage"] = object{data: []byte("x")}

			p, err := snapshot.Prune(t.Context(), b, 1)
			if err != nil || p.Files != 0 || len(p.Unreadable) != 1 || len(b.objectNames("snapshot-files/garbage")) != 1 {
				t.Errorf("with an unreadable manifest, got %v and %v, expected no removed files", p, err)
			}
			if !strings.Contains(p.String(), p.Unreadable[0]) {
				t.Errorf("expected the unreadable manifest %s to be named in %q", p.Unreadable[0], p)
			}

			p, err = snapshot.Remove(t.Context(), b, all[0])
			if err != nil || p.Files == 0 || len(p.Unreadable) > 0 || len(b.objectNames("snapshot-files/garbage")) != 0 {
				t.Errorf("after the removal of the unreadable snapshot, got %v and %v, expected removed files", p, err)
			}
		}()

		if _, err := snapshot.Remove(t.Context(), b, all[0], "none"); err == nil || len(snapshotNames(t, b)) != 6 {
			t.Errorf("Remove with an unknown name returned %v and left %v, expected an error and 6 snapshots", err, snapshotNames(t, b))
		}
	})
}
