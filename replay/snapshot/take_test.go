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

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
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
	partLength := len(envs) / snapshots

	// Each store folds a part of the log whenever it receives a value.
	var folding errgroup.Group
	foldPart := make([]chan struct{}, len(n.stores))
	for i, s := range n.stores {
		mayFold := make(chan struct{})
		foldPart[i] = mayFold
		folding.Go(func() error {
			for i := range envs {
				if i%partLength == 0 {
					<-mayFold
				}
				if err := s.Fold(envs[i : i+1]); err != nil {
					return err
				}
			}
			return nil
		})
	}

	for i := range snapshots {
		for _, mayFold := range foldPart {
			mayFold <- struct{}{}
		}

		// Wait for the first envelope of the part, so that there is something to take. The others
		// are folded while the snapshot is taken.
		for _, s := range n.stores {
			if err := s.WaitFor(t.Context(), envs[i*partLength].Seq()); err != nil {
				t.Fatal(err)
			}
		}

		var p replay.Progress
		r, err := n.scheduler.Take(t.Context(), fmt.Sprintf("s%d", i), nil, &p)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		bytes, _ := r.Bytes()
		got := p.Now()
		if got.Unit != "bytes" || got.Done != got.Total || got.Done != uint64(bytes) || got.Done == 0 {
			t.Errorf("got the progress %+v, expected that all %d bytes are done, and at least one", got, bytes)
		}
	}

	for _, mayFold := range foldPart {
		close(mayFold)
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
	envs := makeFollows(2000)
	n.fold(t, envs[:len(envs)-10])
	_, firstUploaded := n.mustTake(t, "first").Bytes()
	if firstUploaded == 0 {
		t.Error("the first snapshot uploaded 0 bytes, expected some")
	}

	n.fold(t, envs[len(envs)-10:])
	secondSize, secondUploaded := n.mustTake(t, "second").Bytes()
	if secondUploaded == 0 || secondUploaded >= secondSize {
		t.Errorf("the second snapshot uploaded %d of %d bytes, expected some but not all", secondUploaded, secondSize)
	}

	// The compactions that the fold has begun write further files. When they have ended, nothing is
	// uploaded any more.
	for i := 0; ; i++ {
		_, more := n.mustTake(t, fmt.Sprintf("again-%d", i)).Bytes()
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
	if r := n.mustTake(t, "first"); len(r.Taken) > 0 || len(b.objectNames("")) > 0 {
		t.Errorf("got %v and the objects %v, expected neither", r, b.objectNames(""))
	}
}

// TestCrashAtEveryOperation makes the bucket fail from one operation on, as for a process that
// crashes there. The previous snapshot can still be restored, a later one can be taken, and pruning
// leaves no garbage.
func TestCrashAtEveryOperation(t *testing.T) {
	envs := makeFollows(300)
	for name, failure := range map[string]outcome{"before": failsBefore, "after": failsAfter} {
		t.Run(name, func(t *testing.T) {
			// Crash one operation later each time, until there is no such operation.
			isCrashed := true
			for crashAt := 0; isCrashed; crashAt++ {
				synctest.Test(t, func(t *testing.T) {
					isCrashed = checkCrashAt(t, crashAt, failure, envs)
				})
			}
		})
	}
}

// checkCrashAt crashes at one operation while a snapshot is taken, and checks what is in the bucket
// then. It returns false if the snapshot was taken with fewer operations.
func checkCrashAt(t *testing.T, crashAt int, failure outcome, envs []*events.Envelope) (isCrashed bool) {
	b := newMemoryBucket()
	n := newTestProcess(t, b, newGraph())
	n.fold(t, envs[:200])
	n.mustTake(t, "previous")
	beforeCrash := b.clone()
	n.fold(t, envs[200:])

	// After the crash, the process performs no operation any more.
	b.operations = 0
	b.outcomeOf = func(number int, _, _ string) outcome {
		switch {
		case number < crashAt:
			return success
		case number == crashAt:
			isCrashed = true
			return failure
		}
		return failsBefore
	}
	_, err := n.scheduler.Take(t.Context(), "latter", nil, nil)
	if (err != nil) != isCrashed {
		t.Fatalf("crash at operation %d: got %v, expected a failure unless there are fewer operations", crashAt, err)
	}

	// Another process finds the bucket as it is now.
	crashed := b.clone()
	mustRestore(t, crashed, "previous", newGraph, envs)
	mustRestore(t, crashed, "", newGraph, envs)
	list, err := snapshot.List(t.Context(), crashed)
	if err != nil {
		t.Errorf("crash at operation %d: got %v for the list of snapshots, expected no error", crashAt, err)
	}
	for _, l := range list {
		if l.Err != nil {
			t.Errorf("crash at operation %d: got %v for the snapshot %s, expected that it can be read", crashAt, l.Err, l.Snapshot)
		}
	}

	// The claim that the crashed process may have left expires.
	<-time.After(time.Hour)
	pruned, err := snapshot.Prune(t.Context(), crashed, 0)
	if err != nil {
		t.Fatalf("crash at operation %d: got %v from Prune, expected no error", crashAt, err)
	}
	if len(pruned.Snapshots) > 0 {
		t.Errorf("crash at operation %d: Prune removed the snapshots %v, expected none", crashAt, pruned.Snapshots)
	}

	// Prune has removed files that no manifest names. If the new snapshot has its manifest, all of
	// its files are there.
	want := beforeCrash.objectNames("")
	if len(crashed.objectNames("snapshots/latter/")) > 0 {
		mustRestore(t, crashed, "latter", newGraph, envs)
		want = b.objectNames("snapshot")
		want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "snapshot-claims/") })
	}
	if diff := cmp.Diff(want, crashed.objectNames("")); diff != "" {
		t.Errorf("crash at operation %d: objects after Prune (-want +got):\n%s", crashAt, diff)
	}

	// The other process can take snapshots.
	other := newTestProcess(t, crashed, newGraph())
	other.fold(t, envs)
	other.mustTake(t, "again")
	mustRestore(t, crashed, "", newGraph, envs)
	return isCrashed
}

// Of two processes with one bucket, only one takes a snapshot at a time.
func TestOnlyOneProcessTakesASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcess(t, b, newGraph())
		n.fold(t, makeFollows(100))

		// While the first snapshot uploads its first file, try to prune, and to take another one.
		attempts := 0
		concurrent := make(chan error)
		b.outcomeOf = func(_ int, op, name string) outcome {
			if op != "put" || !strings.HasPrefix(name, "snapshot-files/") || attempts > 0 {
				return success
			}
			attempts++

			// Prune through another bucket with the same objects, because the lock of b is held here.
			sameObjects := &memoryBucket{objects: b.objects}
			if _, err := snapshot.Prune(t.Context(), sameObjects, 0); !errors.Is(err, snapshot.ErrBusy) {
				t.Errorf("pruning during a snapshot: got %v, expected %v", err, snapshot.ErrBusy)
			}

			// After Wait, the other snapshot waits for the first one.
			go func() {
				_, err := n.scheduler.Take(t.Context(), "beside", nil, nil)
				concurrent <- err
			}()
			synctest.Wait()
			return success
		}
		n.mustTake(t, "first")
		if err := <-concurrent; err != nil {
			t.Errorf("the other snapshot: got %v, expected that it is taken after the first one", err)
		}

		// A process that has crashed leaves its claim, which expires after some minutes.
		if err := b.Put(t.Context(), "snapshot-claims/left", strings.NewReader("x"), 1); err != nil {
			t.Fatal(err)
		}
		n.mustTake(t, "later")
		if list := b.objectNames("snapshots/"); len(list) != 3 {
			t.Errorf("got the snapshots %v, expected 3", list)
		}
		if failed := n.scheduler.Stats().Failed; failed != 0 {
			t.Errorf("got %d failures, expected none", failed)
		}
		if attempts == 0 {
			t.Error("the first snapshot uploaded no file, expected some")
		}
		if claims := b.objectNames("snapshot-claims/"); len(claims) > 0 {
			t.Errorf("got the claims %v, expected none", claims)
		}
	})
}

// A snapshot whose claim cannot be renewed stops before another process may remove the files.
func TestLostClaimStopsTaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBucket()
		n := newTestProcess(t, b, newGraph())
		n.fold(t, makeFollows(100))

		// The first claim is written, and cannot be renewed.
		claims := 0
		b.outcomeOf = func(_ int, op, name string) outcome {
			if op != "put" || !strings.HasPrefix(name, "snapshot-claims/") {
				return success
			}
			claims++
			if claims > 1 {
				return failsBefore
			}
			return success
		}

		// The upload of a file does not end.
		began := time.Now()
		scheduler := snapshot.New(snapshot.Options{
			Bucket: &stalledBucket{memoryBucket: b}, FS: n.fs, Scratch: "data/snapshots",
			Stores: func() []snapshot.Store { return []snapshot.Store{n.stores[0]} },
		})
		_, err := scheduler.Take(t.Context(), "lost", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "claim") {
			t.Errorf("got %v, expected an error about the claim", err)
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("the snapshot ended after %v, expected at most 3m, before the claim expires", took)
		}
		if names := b.objectNames("snapshots/"); len(names) > 0 {
			t.Errorf("got the snapshots %v, expected none", names)
		}
	})
}

// TestLateAnswerShortensClaim checks that a claim lasts from when its write was sent, and not from
// when the bucket answered, because the bucket counts from the write.
func TestLateAnswerShortensClaim(t *testing.T) {
	for name, c := range map[string]struct {
		delay      time.Duration
		wantUpload bool
	}{
		"late":     {delay: 50 * time.Second, wantUpload: true},
		"too late": {delay: 4 * time.Minute, wantUpload: false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newMemoryBucket()
				n := newTestProcess(t, b, newGraph())
				n.fold(t, makeFollows(100))
				late := &lateBucket{stalledBucket: stalledBucket{memoryBucket: b}, delay: c.delay}

				scheduler := snapshot.New(snapshot.Options{
					Bucket: late, FS: n.fs, Scratch: "data/snapshots",
					Stores: func() []snapshot.Store { return []snapshot.Store{n.stores[0]} },
				})
				_, err := scheduler.Take(t.Context(), "late", nil, nil)
				if err == nil || !strings.Contains(err.Error(), "claim") {
					t.Errorf("got %v, expected an error about the claim", err)
				}
				if late.hasUploaded != c.wantUpload {
					t.Errorf("an upload has begun: got %v, expected %v", late.hasUploaded, c.wantUpload)
				}
				if age := late.uploadEnded.Sub(late.claimWritten); late.hasUploaded && age > 3*time.Minute {
					t.Errorf("the upload ended %v after the claim was written, expected at most 3m, before the claim expires", age)
				}
			})
		})
	}
}

// lateBucket answers the first write of a claim late, and fails the later ones. Uploads of files
// block as in a stalledBucket.
type lateBucket struct {
	stalledBucket

	delay                     time.Duration
	hasUploaded               bool
	claimWritten, uploadEnded time.Time
}

// Put implements bucket.Bucket.
func (l *lateBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	isClaim := strings.HasPrefix(name, "snapshot-claims/")
	switch {
	case isClaim && l.claimWritten.IsZero():
		l.claimWritten = time.Now()
		err := l.memoryBucket.Put(ctx, name, r, size)
		return errors.Join(err, wait.For(ctx, l.delay))
	case isClaim:
		return errFault
	}
	l.hasUploaded = true
	err := l.stalledBucket.Put(ctx, name, r, size)
	l.uploadEnded = time.Now()
	return err
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
	n.fold(t, makeFollows(100))
	n.mustTake(t, "first")

	for name, c := range map[string]struct {
		name        string
		projections []string // nil means all
		want        string
	}{
		"the name of another": {name: "first", want: snapshot.ErrExists.Error()},
		"no name":             {name: "../x", want: snapshot.ErrName.Error()},
		"no projection":       {name: "second", projections: []string{"none"}, want: `no projection "none"`},
	} {
		t.Run(name, func(t *testing.T) {
			before := b.objectNames("")
			_, err := n.scheduler.Take(t.Context(), c.name, c.projections, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, expected an error with %q", err, c.want)
			}
			if diff := cmp.Diff(before, b.objectNames("")); diff != "" {
				t.Errorf("objects of the bucket (-before +after):\n%s", diff)
			}
		})
	}

	if s := n.scheduler.Stats(); s.Taken != 1 || s.Failed != 3 || s.Error == nil {
		t.Errorf("got %+v, expected 1 taken snapshot, 3 failures and the last error", s)
	}

	// A projection may be named twice.
	if _, err := n.scheduler.Take(t.Context(), "second", []string{"graph", "graph"}, nil); err != nil {
		t.Errorf("snapshot of a projection that is named twice: got %v, expected no error", err)
	}
}
