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

// listed returns the names of the snapshots in a bucket.
func listed(t *testing.T, b *memory) (names []string) {
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
func runKeeper(t *testing.T, k *snapshot.Keeper) (stop func()) {
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

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestScheduledSnapshotsAreTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		n := newNodeWith(t, snapshot.Options{Bucket: b, Keep: 3}, newGraph())
		envs := follows(600)
		fold := func(i int) { n.fold(t, envs[:i*len(envs)/10]) }
		fold(1)
		n.take(t, "by-hand")
		began := time.Now().UTC()
		at := func(hours int) string {
			return began.Add(time.Duration(hours) * time.Hour).Format("20060102t150405.000z")
		}
		stop := runKeeper(t, n.keeper)
		pass(time.Minute)
		if got := listed(t, b); !slices.Equal(got, []string{at(0), "by-hand"}) && !slices.Equal(got, []string{"by-hand", at(0)}) {
			t.Errorf("at the start there is %v", got)
		}
		for i := range 4 {
			fold(2 + i)
			pass(time.Hour)
		}
		want := []string{"by-hand", at(2), at(3), at(4)}
		if got := listed(t, b); !slices.Equal(got, want) {
			t.Errorf("after four hours there is %v, want %v", got, want)
		}
		// What no snapshot names is gone.
		before := b.names("")
		if _, err := snapshot.Prune(t.Context(), b, 0); err != nil || !slices.Equal(b.names(""), before) {
			t.Errorf("there was garbage: %v", err)
		}
		// A restart does not take another before it is time, and does not wait for longer than until then.
		stop()
		pass(30 * time.Minute)
		stop = runKeeper(t, n.keeper)
		defer func() { stop() }()
		pass(28 * time.Minute)
		if got := listed(t, b); !slices.Equal(got, want) {
			t.Errorf("after a restart there is %v, want %v", got, want)
		}
		pass(2 * time.Minute)
		want = []string{"by-hand", at(3), at(4), at(5)}
		if got := listed(t, b); !slices.Equal(got, want) {
			t.Errorf("an hour after the last there is %v, want %v", got, want)
		}
		// The bucket fails for three hours.
		b.fails(func(int, string, string) outcome { return undone })
		pass(3 * time.Hour)
		if s := n.keeper.Stats(); s.Failed != 3 || s.Error == nil || s.Taken != 7 {
			t.Errorf("%+v", s)
		}
		b.fails(nil)
		pass(time.Hour)
		want = []string{"by-hand", at(4), at(5), at(9)}
		if got := listed(t, b); !slices.Equal(got, want) {
			t.Errorf("after the failure there is %v, want %v", got, want)
		}
		if s := n.keeper.Stats(); s.Error != nil || s.Taken != 8 || s.Bytes == 0 || s.Uploaded == 0 {
			t.Errorf("%+v", s)
		}
		mustRestore(t, b, at(9), newGraph, envs)
		mustRestore(t, b, "by-hand", newGraph, envs)
	})
}

// TestProcessesShareASchedule has two processes over one log with one target: the schedule is one.
func TestProcessesShareASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		var nodes []*node
		for range 2 {
			n := newNode(t, b, newGraph())
			n.fold(t, follows(100))
			nodes = append(nodes, n)
		}
		stop := runKeeper(t, nodes[0].keeper)
		pass(10 * time.Minute)
		stop2 := runKeeper(t, nodes[1].keeper)
		pass(5*time.Hour + 5*time.Minute)
		stop()
		stop2()
		if got := listed(t, b); len(got) != 6 {
			t.Errorf("in five hours there are %v", got)
		}
	})
}

func TestOldScheduledSnapshotsArePruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemory()
		n := newNodeWith(t, snapshot.Options{Bucket: b, Every: time.Hour}, newGraph())
		envs := follows(200)
		n.fold(t, envs)
		stop := runKeeper(t, n.keeper)
		pass(5*time.Hour + time.Minute)
		stop()
		all := listed(t, b)
		if len(all) != 6 {
			t.Fatalf("there is %v", all)
		}
		for name, c := range map[string]struct {
			keep int
			left int
		}{
			"everything":         {0, 6},
			"by number":          {2, 2},
			"more than is there": {7, 6},
		} {
			b := b.clone()
			p, err := snapshot.Prune(t.Context(), b, c.keep)
			if err != nil || len(p.Snapshots) != 6-c.left {
				t.Errorf("%s: %v, %v", name, p, err)
			}
			if got := listed(t, b); !slices.Equal(got, all[6-c.left:]) {
				t.Errorf("%s: there is %v", name, got)
			}
			mustRestore(t, b, "", newGraph, envs)
		}
		// No file goes while a manifest cannot be read.
		func() {
			b := b.clone()
			name := b.names("snapshots/")[0]
			b.objects[name] = object{data: b.objects[name].data[1:]}
			b.objects["snapshot-files/garbage"] = object{data: []byte("x")}
			p, err := snapshot.Prune(t.Context(), b, 1)
			if err != nil || p.Files != 0 || len(p.Unreadable) != 1 || len(b.names("snapshot-files/garbage")) != 1 {
				t.Errorf("%v, %v", p, err)
			}
			if !strings.Contains(p.String(), p.Unreadable[0]) {
				t.Errorf("%s does not name it", p)
			}
			p, err = snapshot.Remove(t.Context(), b, all[0])
			if err != nil || p.Files == 0 || len(p.Unreadable) > 0 || len(b.names("snapshot-files/garbage")) != 0 {
				t.Errorf("removed by name: %v, %v", p, err)
			}
		}()
		if _, err := snapshot.Remove(t.Context(), b, all[0], "none"); err == nil || len(listed(t, b)) != 6 {
			t.Errorf("none of one name: %v, left %v", err, listed(t, b))
		}
	})
}
