package snapshot_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

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

// runScheduler runs a scheduler until the returned function is called.
func runScheduler(t *testing.T, scheduler *snapshot.Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()

	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v, expected no error", err)
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
		envs := makeFollows(600)
		foldTenths := func(i int) { n.fold(t, envs[:i*len(envs)/10]) }
		foldTenths(1)
		n.mustTake(t, "by-hand")

		// nameAfter returns the name of a snapshot that is taken some hours after the start.
		began := time.Now().UTC()
		nameAfter := func(hours int) string {
			return began.Add(time.Duration(hours) * time.Hour).Format("20060102t150405.000z")
		}

		stop := runScheduler(t, n.scheduler)
		letTimePass(time.Minute)
		got := snapshotNames(t, b)
		slices.Sort(got) // both snapshots have the same time
		if diff := cmp.Diff([]string{nameAfter(0), "by-hand"}, got); diff != "" {
			t.Errorf("snapshots a minute after the start (-want +got):\n%s", diff)
		}

		for i := range 4 {
			foldTenths(2 + i)
			letTimePass(time.Hour)
		}
		want := []string{"by-hand", nameAfter(2), nameAfter(3), nameAfter(4)}
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("after four hours, got the snapshots %v, expected %v", got, want)
		}

		// The files of the pruned snapshots are removed, too: nothing remains for Prune.
		before := b.objectNames("")
		if _, err := snapshot.Prune(t.Context(), b, 0); err != nil {
			t.Errorf("Prune returned %v, expected no error", err)
		}
		if diff := cmp.Diff(before, b.objectNames("")); diff != "" {
			t.Errorf("Prune removed files, expected that the scheduler had removed them (-before +after):\n%s", diff)
		}

		// After a restart, the next snapshot is taken when it is due, neither before nor after.
		stop()
		letTimePass(30 * time.Minute)
		stop = runScheduler(t, n.scheduler)
		defer func() { stop() }()
		letTimePass(28 * time.Minute)
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("58 minutes after the last snapshot and after a restart, got the snapshots %v, expected %v", got, want)
		}
		letTimePass(2 * time.Minute)
		want = []string{"by-hand", nameAfter(3), nameAfter(4), nameAfter(5)}
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("an hour after the last snapshot, got the snapshots %v, expected %v", got, want)
		}

		// The bucket fails for three hours.
		b.setOutcomes(func(int, string, string) outcome { return failsBefore })
		letTimePass(3 * time.Hour)
		if s := n.scheduler.Stats(); s.Failed != 3 || s.Error == nil || s.Taken != 7 {
			t.Errorf("while the bucket fails, got %+v, expected 3 failures, an error and 7 taken snapshots", s)
		}

		b.setOutcomes(nil)
		letTimePass(time.Hour)
		want = []string{"by-hand", nameAfter(4), nameAfter(5), nameAfter(9)}
		if got := snapshotNames(t, b); !slices.Equal(got, want) {
			t.Errorf("an hour after the failures, got the snapshots %v, expected %v", got, want)
		}
		if s := n.scheduler.Stats(); s.Error != nil || s.Taken != 8 || s.Bytes == 0 || s.Uploaded == 0 {
			t.Errorf("an hour after the failures, got %+v, expected no error and 8 taken snapshots", s)
		}

		mustRestore(t, b, nameAfter(9), newGraph, envs)
		mustRestore(t, b, "by-hand", newGraph, envs)
	})
}

// Two processes with one log and one bucket follow one schedule together.
func TestProcessesShareASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		var processes []*testProcess
		for range 2 {
			n := newTestProcess(t, b, newGraph())
			n.fold(t, makeFollows(100))
			processes = append(processes, n)
		}

		// The second process starts ten minutes later.
		stopFirst := runScheduler(t, processes[0].scheduler)
		letTimePass(10 * time.Minute)
		stopSecond := runScheduler(t, processes[1].scheduler)
		letTimePass(5*time.Hour + 5*time.Minute)
		stopFirst()
		stopSecond()

		if got := snapshotNames(t, b); len(got) != 6 {
			t.Errorf("after five hours of two processes, got the snapshots %v, expected 6", got)
		}
	})
}

func TestOldScheduledSnapshotsArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcessWith(t, snapshot.Options{Bucket: b, Every: time.Hour}, newGraph())
		envs := makeFollows(200)
		n.fold(t, envs)

		stop := runScheduler(t, n.scheduler)
		letTimePass(5*time.Hour + time.Minute)
		stop()
		all := snapshotNames(t, b)
		if len(all) != 6 {
			t.Fatalf("after five hours, got the snapshots %v, expected 6", all)
		}

		for name, c := range map[string]struct {
			keep          int // 0 keeps all
			wantRemaining int
		}{
			"keep all":                 {0, 6},
			"keep two":                 {2, 2},
			"keep more than there are": {7, 6},
		} {
			b := b.clone()
			wantRemoved := 6 - c.wantRemaining
			p, err := snapshot.Prune(t.Context(), b, c.keep)
			if err != nil || len(p.Snapshots) != wantRemoved {
				t.Errorf("%s: got %v and %v, expected %d removed snapshots", name, p, err, wantRemoved)
			}
			if diff := cmp.Diff(all[wantRemoved:], snapshotNames(t, b)); diff != "" {
				t.Errorf("%s: remaining snapshots (-want +got):\n%s", name, diff)
			}
			mustRestore(t, b, "", newGraph, envs)
		}

		// While a manifest cannot be read, no files are removed: the snapshot may need them.
		damaged := b.clone()
		manifest := damaged.objectNames("snapshots/")[0]
		damaged.objects[manifest] = object{data: damaged.objects[manifest].data[1:]}
		const garbage = "snapshot-files/garbage"
		damaged.objects[garbage] = object{data: []byte("x")}

		p, err := snapshot.Prune(t.Context(), damaged, 1)
		if err != nil || len(p.Unreadable) != 1 {
			t.Fatalf("with an unreadable manifest, got %v and %v, expected one unreadable manifest", p, err)
		}
		if p.Files != 0 || len(damaged.objectNames(garbage)) != 1 {
			t.Errorf("with an unreadable manifest, got %v, expected no removed files", p)
		}
		if !strings.Contains(p.String(), p.Unreadable[0]) {
			t.Errorf("got the report %q, expected that it names the unreadable manifest %s", p, p.Unreadable[0])
		}

		// The snapshot can be removed, and then the files are.
		p, err = snapshot.Remove(t.Context(), damaged, all[0])
		if err != nil || len(p.Unreadable) > 0 {
			t.Errorf("after the removal of the unreadable snapshot, got %v and %v, expected no unreadable manifest", p, err)
		}
		if p.Files == 0 || len(damaged.objectNames(garbage)) != 0 {
			t.Errorf("after the removal of the unreadable snapshot, got %v, expected removed files, among them %s", p, garbage)
		}

		// If one of several names is unknown, nothing is removed.
		if _, err := snapshot.Remove(t.Context(), b, all[0], "none"); err == nil {
			t.Error("Remove with an unknown name returned no error, expected one")
		}
		if got := snapshotNames(t, b); len(got) != 6 {
			t.Errorf("after Remove with an unknown name, got the snapshots %v, expected 6", got)
		}
	})
}
