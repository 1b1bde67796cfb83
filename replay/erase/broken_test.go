package erase

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/archiver"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/snapshot"
)

var errScheduled = errors.New("the step fails as scheduled")

// failureSchedule makes every step fail from the n-th on, and then ends a context. The zero value
// lets all steps succeed.
type failureSchedule struct {
	mu        sync.Mutex
	isActive  bool     // whether steps are counted
	firstFail int      // number of the first step that fails; 0 for none
	steps     []string // steps since failAtStep, up to the first that failed
	hasFailed bool     // whether step firstFail has been reached
	cancel    func()   // ends the context that failAtStep returned
}

// failIfDue counts a step, and returns an error if the step fails.
func (d *failureSchedule) failIfDue(step string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isActive {
		return nil
	}

	if !d.hasFailed {
		d.steps = append(d.steps, step)
		if len(d.steps) == d.firstFail {
			d.hasFailed = true
			d.cancel()
		}
	}

	if d.hasFailed {
		return fmt.Errorf("%w: %s", errScheduled, step)
	}
	return nil
}

// failAtStep schedules the failure for the n-th step from now. It returns the context that ends
// then.
func (d *failureSchedule) failAtStep(ctx context.Context, n int) context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	ctx, d.cancel = context.WithCancel(ctx)
	d.isActive = true
	d.firstFail = n
	d.steps = nil
	d.hasFailed = false
	return ctx
}

// stopFailing lets all steps succeed again, and returns the steps since failAtStep.
func (d *failureSchedule) stopFailing() (steps []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel()
	d.isActive = false
	return d.steps
}

// failingBucket is a bucket whose operations fail as the schedule says.
type failingBucket struct {
	bucket.Bucket
	*failureSchedule
}

func (b failingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := b.failIfDue("put " + name); err != nil {
		return err
	}
	return b.Bucket.Put(ctx, name, r, size)
}

func (b failingBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := b.failIfDue("get " + name); err != nil {
		return nil, err
	}
	return b.Bucket.Get(ctx, name, offset, length)
}

func (b failingBucket) List(ctx context.Context, prefix string) ([]bucket.Object, error) {
	if err := b.failIfDue("list " + prefix); err != nil {
		return nil, err
	}
	return b.Bucket.List(ctx, prefix)
}

func (b failingBucket) Delete(ctx context.Context, name string) error {
	if err := b.failIfDue("delete " + name); err != nil {
		return err
	}
	return b.Bucket.Delete(ctx, name)
}

// failingArchiver is an archiver that fails as the schedule says, before or after it archives.
type failingArchiver struct {
	Archiver
	*failureSchedule
}

func (a failingArchiver) ArchiveNow(ctx context.Context, seq uint64) error {
	if err := a.failIfDue("archive"); err != nil {
		return err
	}
	return errors.Join(a.Archiver.ArchiveNow(ctx, seq), a.failIfDue("archived"))
}

// failingLogHandler fails when the log reports that it is in a new epoch. The messages of the
// previous epoch are not destroyed yet then.
type failingLogHandler struct {
	slog.Handler
	*failureSchedule
}

// newEpoch is the message with which package eventlog logs that the log is in a new epoch.
const newEpoch = "log: it goes on in a new epoch"

func (failingLogHandler) Enabled(context.Context, slog.Level) bool { return true }

func (l failingLogHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == newEpoch {
		return l.failIfDue(newEpoch)
	}
	return nil
}

func (l failingLogHandler) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l failingLogHandler) WithGroup(string) slog.Handler      { return l }

// erased are users who are erased together. erasedNames are the users of histories who get their
// names.
var (
	erased      = []string{"somebody-to-be-erased", "7234567890123456789", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"}
	erasedNames = map[string]string{"user1": erased[0], "user2": erased[1], "user3": erased[2]}
)

// deletions returns the events that delete users.
func deletions(users []string) (evs []*skeinv1.Event) {
	for _, user := range users {
		evs = append(evs, &skeinv1.Event{Kind: &skeinv1.Event_UserDeleted{UserDeleted: &skeinv1.UserDeleted{UserId: user}}})
	}
	return evs
}

// prepareDir makes the data directory of a service in which the erased users occur everywhere,
// including snapshots.
func prepareDir(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := startService(t, dir)
	s.mustReach(s.publish(memlog.NewWorld(7, 20).Envelopes(100), erasedNames))
	for _, l := range s.o.Stores {
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
	}

	for range 2 {
		if _, err := s.o.Scheduler.TakeNow(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		s.mustReach(s.publish(memlog.NewWorld(8, 20).Envelopes(10), erasedNames))
	}

	s.stop()
	return dir
}

// mustErase erases the users, and checks that nothing else has changed and that no file contains an
// id.
func mustErase(t *testing.T, s *testService) {
	t.Helper()
	res, err := s.o.Publisher.Publish(t.Context(), deletions(erased), eventlog.PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := s.waitForRows(res.Position.Seq)

	// Snapshots need a claim. One that was not released is void after some minutes, so make it that
	// old.
	claims, err := filepath.Glob(filepath.Join(s.dir, "snapshots", "snapshot-claims", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range claims {
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}

	// After a fault, the archiver pauses for some time.
	for errors.Is(s.o.Archiver.ArchiveNow(t.Context(), 0), archiver.ErrNotRunning) {
		runtime.Gosched()
	}

	r, err := Erase(t.Context(), s.o, erased, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, rows := range s.waitForRows(r.Head) {
		withoutLogTime(rows).MustEqual(t, withoutLogTime(want[i]), "%s after the erasure", s.o.Stores[i].Name())
	}
	if err := s.o.Archive.Check(t.Context(), nil); err != nil {
		t.Error(err)
	}

	s.stop()
	checkInNoFile(t, s.dir, erased)
}

// stepsToInterrupt chooses steps at which an erasure is to be interrupted. Of similar steps in a
// row, such as those for the files of a store, it considers the first and the last only.
func stepsToInterrupt(t *testing.T, from string) []int {
	t.Helper()
	_, steps, err := eraseInterruptedAt(t, from, 0)
	if err != nil {
		t.Fatal(err)
	}

	dirOf := func(i int) string {
		if i < 0 || i >= len(steps) {
			return ""
		}
		return path.Dir(steps[i])
	}
	var candidates []int
	for i := range steps {
		if dirOf(i) != dirOf(i-1) || dirOf(i) != dirOf(i+1) {
			candidates = append(candidates, i+1)
		}
	}

	// At full length, each run interrupts at other steps, so that over time every step is tested.
	stride := 4
	first := rand.IntN(stride)
	if testing.Short() {
		const points = 10
		stride = max(1, len(candidates)/points)
		first = 0
	}

	var chosen []int
	for i := first; i < len(candidates); i += stride {
		chosen = append(chosen, candidates[i])
	}
	t.Logf("an erasure has %d steps, and is interrupted at %v", len(steps), chosen)
	return chosen
}

// eraseInterruptedAt erases the users in a copy of a directory. Everything fails from step n on; 0
// lets everything succeed.
func eraseInterruptedAt(t *testing.T, from string, n int) (s *testService, steps []string, err error) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}

	d := &failureSchedule{}
	s = startFailingService(t, dir, d)
	_, err = Erase(d.failAtStep(t.Context(), n), s.o, erased, nil)
	steps = d.stopFailing()
	if n == 0 {
		s.stop()
	}

	return s, steps, err
}

// Wherever an erasure of several users is interrupted, by a restart or by a temporary fault, the
// log continues. When the erasure is repeated, no file contains an id.
func TestInterruptedErasureCanBeRepeated(t *testing.T) {
	t.Parallel()
	from := prepareDir(t)

	// The interruptions wait for the disk most of the time, so several run at once.
	var inOldEpoch, inNewEpoch atomic.Int32
	t.Run("steps", func(t *testing.T) {
		for i, n := range stepsToInterrupt(t, from) {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				s, steps, err := eraseInterruptedAt(t, from, n)
				switch {
				case err == nil:
					// The number of steps varies, because the archiver and the scheduler of
					// snapshots work at the same time.
					t.Logf("the erasure had only %d steps", len(steps))
				case s.o.Log.Epoch() > 1:
					inNewEpoch.Add(1)
				default:
					inOldEpoch.Add(1)
				}

				// After every other interruption, restart the service. The others are temporary
				// faults.
				interruption := fmt.Sprintf("at step %d, %s, in epoch %d", n, steps[len(steps)-1], s.o.Log.Epoch())
				if i%2 == 0 {
					s.stop()
					s = startService(t, s.dir)
					interruption += ", restarted"
				}

				mustErase(t, s)
				if t.Failed() {
					t.Fatalf("the erasure could not be repeated after it was interrupted %s", interruption)
				}
			})
		}
	})

	if inOldEpoch.Load() == 0 || inNewEpoch.Load() == 0 {
		t.Errorf("got %d interruptions before the log was in the new epoch and %d after it, expected some of both",
			inOldEpoch.Load(), inNewEpoch.Load())
	}
}

// An erasure also removes the id from leftovers: stores that were being built, objects that nothing
// names, files that were being written, copies of stores, and stores of projections that the
// process does not have.
func TestErasureRemovesLeftoverFiles(t *testing.T) {
	t.Parallel()
	s := startService(t, prepareDir(t))

	// Remove the manifests of snapshots, as if the process had crashed before it wrote them.
	list, err := snapshot.List(t.Context(), s.o.Bucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list {
		if err := os.RemoveAll(filepath.Join(s.dir, "snapshots", "snapshots", l.Snapshot)); err != nil {
			t.Fatal(err)
		}
	}

	// Make other leftovers, which are a minute old.
	minuteAgo := time.Now().Add(-time.Minute)
	for _, name := range []string{
		"bucket/archive/segment-left",
		"bucket/.put-1",
		"snapshots/.put-2",
		"stores/shadow-snapshots/inbox/000007.sst",
		"stores/inbox/shadow-next/000007.sst",
		"stores/inbox/shadow-next.parts/events",
		"stores/inbox/shadow-audit/000007.sst",
		"stores/of-another-version/000003/000007.sst",
		"stores/of-the-next-version/prepared/of-the-next-version/000001/000007.sst",
	} {
		name = filepath.Join(s.dir, filepath.FromSlash(name))
		err := errors.Join(
			os.MkdirAll(filepath.Dir(name), 0o750),
			os.WriteFile(name, []byte(erased[0]), 0o600),
			os.Chtimes(name, minuteAgo, minuteAgo),
		)
		if err != nil {
			t.Fatal(err)
		}
	}

	// An erasure does not succeed while the temporary store of an audit is there.
	s.o.Part.RemoveTemporaryStores = func(context.Context) error { return errScheduled }
	if _, err := Erase(t.Context(), s.o, erased, nil); !errors.Is(err, errScheduled) {
		t.Errorf("the temporary stores cannot be removed: got %v, expected %v", err, errScheduled)
	}
	s.o.Part.RemoveTemporaryStores = func(context.Context) error {
		return os.RemoveAll(filepath.Join(s.dir, "stores", "inbox", "shadow-audit"))
	}
	mustErase(t, s)
}

// archiverFunc is an Archiver that calls a function.
type archiverFunc func(ctx context.Context, seq uint64) error

func (f archiverFunc) ArchiveNow(ctx context.Context, seq uint64) error { return f(ctx, seq) }

// Before the log is scrubbed, the deletion is on disk. A crash after that cannot take a store back
// to before the deletion, which the store would not find in the scrubbed log any more.
func TestDeletionIsOnDiskBeforeScrubbing(t *testing.T) {
	s := startService(t, t.TempDir())
	defer func() { s.stop() }()
	s.mustReach(s.publish(memlog.NewWorld(9, 20).Envelopes(20), erasedNames))

	// The erasure archives the log between the deletion and the scrub.
	s.o.Archiver = archiverFunc(func(_ context.Context, seq uint64) error {
		for _, l := range s.o.Stores {
			if flushed := l.Status().Flushed.Seq; flushed < seq {
				t.Errorf("the store %s is on disk up to %d, expected the deletion at %d", l.Name(), flushed, seq)
			}
		}
		return errScheduled
	})

	if _, err := Erase(t.Context(), s.o, erased, nil); !errors.Is(err, errScheduled) {
		t.Errorf("got %v, expected the error of the archiver", err)
	}
}
