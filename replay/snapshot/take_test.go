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

	// Each store folds a part of the log whenever its gate is opened.
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
		for _, s := range n.stores { // so that there is something to take
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
			t.Errorf("got %+v, expected %d bytes, all done", at, bytes)
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
		t.Errorf("got %d bytes first and then %d of %d, expected some and then a part", first, second, all)
	}

	// The compactions that the fold has begun write further files. When they have ended, nothing is
	// uploaded any more.
	for i := 0; ; i++ {
		_, more := n.take(t, fmt.Sprintf("again-%d", i)).Bytes()
		if more == 0 {
			break
		}
		if i == 50 {
			t.Fatalf("got %d bytes in snapshot %d, expected none any more", more, i)
		}
	}
	mustRestore(t, b, "", newGraph, envs)
}

// Stores that have folded nothing are left out of a snapshot.
func TestEmptyStoresAreSkipped(t *testing.T) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	if r := n.take(t, "first"); len(r.Taken) > 0 || len(b.objectNames("")) > 0 {
		t.Errorf("got %v and the objects %v, expected neither", r, b.objectNames(""))
	}
}

// TestCrashAtEveryOperation makes the bucket fail from one operation on, as for a process that
// crashes there. The previous snapshot can still be restored, a later one can be taken, and pruning
// leaves no garbage.
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

// checkCrashAt crashes at one operation while a snapshot is taken, and checks what is left. over
// reports that there are fewer operations.
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
		t.Fatalf("operation %d: got %v, expected a failure unless there is no such operation", at, err)
	}

	// Another process finds the bucket as it is now.
	crashed := b.clone()
	mustRestore(t, crashed, "previous", newGraph, envs)
	mustRestore(t, crashed, "", newGraph, envs)
	if list, err := snapshot.List(t.Context(), crashed); err != nil || slices.ContainsFunc(list, func(l snapshot.ListedSnapshot) bool { return l.Err != nil }) {
		t.Errorf("operation %d: got the snapshots %v, %v, expected that all can be read", at, list, err)
	}

	// The claim that the crashed process may have left expires.
	<-time.After(time.Hour)
	pruned, err := snapshot.Prune(t.Context(), crashed, 0)
	if err != nil {
		t.Fatalf("operation %d: %v", at, err)
	}
	if len(pruned.Snapshots) > 0 {
		t.Errorf("operation %d: got removed snapshots %v, expected none", at, pruned.Snapshots)
	}

	want := previous.objectNames("")
	if len(crashed.objectNames("snapshots/latter/")) > 0 {
		mustRestore(t, crashed, "latter", newGraph, envs)
		want = b.objectNames("snapshot")
		want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "snapshot-claims/") })
	}
	if left := crashed.objectNames(""); !slices.Equal(left, want) {
		t.Errorf("operation %d: got the objects\n%q, expected\n%q", at, left, want)
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

		// While the first snapshot uploads its first file, try to prune, and to take another one.
		attempts := 0
		concurrent := make(chan error)
		b.fault = func(_ int, op, name string) outcome {
			if op != "put" || !strings.HasPrefix(name, "snapshot-files/") || attempts > 0 {
				return done
			}
			attempts++
			other := &memoryBucket{objects: b.objects} // another lock, because b's is held here
			if _, err := snapshot.Prune(t.Context(), other, 0); !errors.Is(err, snapshot.ErrBusy) {
				t.Errorf("pruning during a snapshot: got %v, expected %v", err, snapshot.ErrBusy)
			}
			go func() {
				_, err := n.keeper.Take(t.Context(), "beside", nil, nil)
				concurrent <- err
			}()
			synctest.Wait() // the other snapshot waits for the first one now
			return done
		}
		n.take(t, "first")
		if err := <-concurrent; err != nil {
			t.Errorf("the other snapshot: got %v, expected that it is taken after the first one", err)
		}

		// A process that has crashed leaves its claim, which expires after some minutes.
		if err := b.Put(t.Context(), "snapshot-claims/left", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
		n.take(t, "later")
		if list := b.objectNames("snapshots/"); len(list) != 3 || n.keeper.Stats().Failed != 0 {
			t.Errorf("got the snapshots %v and %d failures, expected 3 and none", list, n.keeper.Stats().Failed)
		}
		if attempts == 0 || len(b.objectNames("snapshot-claims/")) > 0 {
			t.Errorf("got %d attempts and the claims %v, expected some attempts and no claim", attempts, b.objectNames("snapshot-claims/"))
		}
	})
}

// A snapshot whose claim cannot be renewed stops before another process may remove the files.
func TestLostClaimStopsTaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcess(t, b, newGraph())
		n.fold(t, follows(100))
		began := time.Now()
		claims := 0
		b.fault = func(_ int, op, name string) outcome {
			if op != "put" || !strings.HasPrefix(name, "snapshot-claims/") {
				return done
			}
			claims++
			if claims > 1 {
				return undone
			}
			return done
		}
		slow := &stalledBucket{memoryBucket: b}
		n = &testProcess{fs: n.fs, stores: n.stores, keeper: snapshot.New(snapshot.Options{
			Bucket: slow, FS: n.fs, Scratch: "data/snapshots", Stores: func() []snapshot.Store { return []snapshot.Store{n.stores[0]} },
		})}
		_, err := n.keeper.Take(t.Context(), "lost", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "claim") || time.Since(began) > 3*time.Minute {
			t.Errorf("got %v after %v, expected that the claim was lost before it expires", err, time.Since(began))
		}
		if left := b.objectNames("snapshots/"); len(left) > 0 {
			t.Errorf("got the snapshots %v, expected none", left)
		}
	})
}

// stalledBucket blocks writes of files until their context ends.
type stalledBucket struct{ *memoryBucket }

// Put implements bucket.Bucket.
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
				t.Errorf("got %v, expected an error with %q", err, c.want)
			}
			if after := b.objectNames(""); !slices.Equal(before, after) {
				t.Errorf("got the objects %v, expected %v", after, before)
			}
		})
	}
	if s := n.keeper.Stats(); s.Taken != 1 || s.Failed != 3 || s.Error == nil {
		t.Errorf("got %+v, expected 1 taken and 3 failed", s)
	}
	if _, err := n.keeper.Take(t.Context(), "second", []string{"graph", "graph"}, nil); err != nil {
		t.Error(err)
	}
}
