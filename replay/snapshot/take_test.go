package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/snapshot"
)

// TestSnapshotsOfFoldingStores takes snapshots of all projections while they fold.
func TestSnapshotsOfFoldingStores(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, all.All(all.Settings{})...)
	envs := makeLog(histories.FixedPlays(0, 800))
	const snapshots = 4
	var folding errgroup.Group
	gates := make([]chan struct{}, len(n.stores))
	for i, s := range n.stores {
		gate := make(chan struct{})
		gates[i] = gate
		folding.Go(func() error {
			for i := range envs {
				if i%(len(envs)/snapshots) == 0 {
					<-gate
				}
				if err := s.Fold(envs[i : i+1]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for i := range snapshots {
		for _, gate := range gates {
			gate <- struct{}{}
		}
		for _, s := range n.stores { // something is folded
			if err := s.WaitFor(t.Context(), envs[i*(len(envs)/snapshots)].Seq()); err != nil {
				t.Fatal(err)
			}
		}
		var p replay.Progress
		r, err := n.keeper.Take(t.Context(), fmt.Sprintf("s%d", i), nil, &p)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		bytes, _ := r.Bytes()
		if at := p.Now(); at.Unit != "bytes" || at.Done != at.Total || at.Done != uint64(bytes) || at.Done == 0 {
			t.Errorf("got %+v, the snapshot has %d bytes", at, bytes)
		}
	}
	for _, gate := range gates {
		close(gate)
	}
	if err := folding.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range snapshots {
		for _, p := range allConstructors() {
			mustRestore(t, b, fmt.Sprintf("s%d", i), p, envs)
		}
	}
}

// A second snapshot uploads only the files that the first one does not have.
func TestSecondSnapshotUploadsOnlyNewFiles(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	envs := follows(2000)
	n.fold(t, envs[:len(envs)-10])
	_, first := n.take(t, "first").Bytes()
	n.fold(t, envs[len(envs)-10:])
	all, second := n.take(t, "second").Bytes()
	if second == 0 || second >= all || first == 0 {
		t.Errorf("%d bytes first, then %d of %d", first, second, all)
	}
	// Until the compactions have ended that the fold began, there is more.
	for i := 0; ; i++ {
		_, more := n.take(t, fmt.Sprintf("again-%d", i)).Bytes()
		if more == 0 {
			break
		}
		if i == 50 {
			t.Fatalf("%d bytes were written without anything new", more)
		}
	}
	mustRestore(t, b, "", newGraph, envs)
}

// Stores that have folded nothing are left out of a snapshot.
func TestEmptyStoresAreSkipped(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	if r := n.take(t, "first"); len(r.Taken) > 0 || len(b.objectNames("")) > 0 {
		t.Errorf("%v took %v", r, b.objectNames(""))
	}
}

// TestCrashAtEveryOperation makes the bucket fail from one operation on, as for a process that crashes there. The previous snapshot can still be restored, a
// later one can be taken, and pruning leaves no garbage.
func TestCrashAtEveryOperation(t *testing.T) {
	envs := follows(300)
	for name, out := range map[string]outcome{"before": undone, "after": unknown} {
		t.Run(name, func(t *testing.T) {
			for at, over := 0, false; !over; at++ {
				synctest.Test(t, func(t *testing.T) {
					over = checkCrashAt(t, at, out, envs)
				})
			}
		})
	}
}

func checkCrashAt(t *testing.T, at int, out outcome, envs []*events.Envelope) (over bool) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, envs[:200])
	n.take(t, "previous")
	previous := b.clone()
	n.fold(t, envs[200:])
	b.n = 0
	over = true
	b.fault = func(i int, _, _ string) outcome {
		switch {
		case i < at:
			return done
		case i == at:
			over = false
			return out
		}
		return undone
	}
	_, err := n.keeper.Take(t.Context(), "latter", nil, nil)
	if (err == nil) != over {
		t.Fatalf("operation %d: %v", at, err)
	}
	crashed := b.clone()
	mustRestore(t, crashed, "previous", newGraph, envs)
	mustRestore(t, crashed, "", newGraph, envs)
	if list, err := snapshot.List(t.Context(), crashed); err != nil || slices.ContainsFunc(list, func(l snapshot.Listed) bool { return l.Err != nil }) {
		t.Errorf("operation %d: %v, %v", at, list, err)
	}
	// The dead process may have left a claim, which is void in time.
	<-time.After(time.Hour)
	pruned, err := snapshot.Prune(t.Context(), crashed, 0)
	if err != nil {
		t.Fatalf("operation %d: %v", at, err)
	}
	if len(pruned.Snapshots) > 0 {
		t.Errorf("operation %d: removed %v", at, pruned.Snapshots)
	}
	want := previous.objectNames("")
	if len(crashed.objectNames("snapshots/latter/")) > 0 {
		mustRestore(t, crashed, "latter", newGraph, envs)
		want = b.objectNames("snapshot")
		want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "snapshot-claims/") })
	}
	if left := crashed.objectNames(""); !slices.Equal(left, want) {
		t.Errorf("operation %d: after pruning there is\n%q, want\n%q", at, left, want)
	}
	again := newTestProcess(t, crashed, newGraph())
	again.fold(t, envs)
	again.take(t, "again")
	mustRestore(t, crashed, "", newGraph, envs)
	return over
}

// Of two processes with one bucket, only one takes a snapshot at a time.
func TestOnlyOneProcessTakesASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcess(t, b, newGraph())
		n.fold(t, follows(100))
		inside, beside := 0, make(chan error)
		b.fault = func(_ int, op, name string) outcome {
			if op != "put" || !strings.HasPrefix(name, "snapshot-files/") || inside > 0 {
				return done
			}
			inside++
			other := &memoryBucket{objects: b.objects} // the same objects; the lock is held
			if _, err := snapshot.Prune(t.Context(), other, 0); !errors.Is(err, snapshot.ErrBusy) {
				t.Errorf("pruned beside a snapshot: %v", err)
			}
			go func() {
				_, err := n.keeper.Take(t.Context(), "beside", nil, nil)
				beside <- err
			}()
			synctest.Wait() // it waits for the first
			return done
		}
		n.take(t, "first")
		if err := <-beside; err != nil {
			t.Errorf("asked for during the first: %v", err)
		}
		// A process that is gone has left its claim, which is void after some minutes.
		if err := b.Put(t.Context(), "snapshot-claims/left", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
		n.take(t, "later")
		if list := b.objectNames("snapshots/"); len(list) != 3 || n.keeper.Stats().Failed != 0 {
			t.Errorf("%v, %d failed", list, n.keeper.Stats().Failed)
		}
		if inside == 0 || len(b.objectNames("snapshot-claims/")) > 0 {
			t.Errorf("%d, %v", inside, b.objectNames("snapshot-claims/"))
		}
	})
}

// A snapshot whose claim cannot be renewed stops before another process may remove the files.
func TestLostClaimStopsTaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcess(t, b, newGraph())
		n.fold(t, follows(100))
		began, claims := time.Now(), 0
		b.fault = func(_ int, op, name string) outcome {
			if strings.HasPrefix(name, "snapshot-claims/") && op == "put" {
				if claims++; claims > 1 {
					return undone
				}
			}
			return done
		}
		slow := &stalledBucket{memoryBucket: b}
		n = &testProcess{fs: n.fs, stores: n.stores, keeper: snapshot.New(snapshot.Options{
			Bucket: slow, FS: n.fs, Scratch: "data/snapshots", Stores: func() []snapshot.Store { return []snapshot.Store{n.stores[0]} },
		})}
		_, err := n.keeper.Take(t.Context(), "lost", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "claim") || time.Since(began) > 3*time.Minute {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if left := b.objectNames("snapshots/"); len(left) > 0 {
			t.Errorf("there is %v", left)
		}
	})
}

// stalledBucket blocks writes of files until their context ends.
type stalledBucket struct{ *memoryBucket }

func (s *stalledBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if strings.HasPrefix(name, "snapshot-files/") {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.memoryBucket.Put(ctx, name, r, size)
}

func TestInvalidSnapshotRequestIsRefused(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, follows(100))
	n.take(t, "first")
	for name, c := range map[string]struct {
		name string
		of   []string
		want string
	}{
		"the name of another": {name: "first", want: snapshot.ErrExists.Error()},
		"no name":             {name: "../x", want: snapshot.ErrName.Error()},
		"no projection":       {name: "second", of: []string{"none"}, want: `no projection "none"`},
	} {
		t.Run(name, func(t *testing.T) {
			before := b.objectNames("")
			_, err := n.keeper.Take(t.Context(), c.name, c.of, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
			if after := b.objectNames(""); !slices.Equal(before, after) {
				t.Errorf("there is %v", after)
			}
		})
	}
	if s := n.keeper.Stats(); s.Taken != 1 || s.Failed != 3 || s.Error == nil {
		t.Errorf("%+v", s)
	}
	if _, err := n.keeper.Take(t.Context(), "second", []string{"graph", "graph"}, nil); err != nil {
		t.Error(err)
	}
}
