package archiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// testLog is a log with its archive, in a directory.
type testLog struct {
	t       *testing.T
	dir     string
	log     *eventlog.Log
	hub     *eventlog.Hub
	archive *archive.Archive
	stop    func()
}

func openLog(t *testing.T, dir string, b bucket.Bucket) *testLog {
	t.Helper()
	w := &testLog{t: t, dir: dir}

	var err error
	if w.log, err = eventlog.Open(t.Context(), eventlog.Config{Dir: filepath.Join(dir, "log")}); err != nil {
		t.Fatal(err)
	}
	if b == nil {
		if b, err = bucket.NewDir(filepath.Join(dir, "bucket")); err != nil {
			t.Fatal(err)
		}
	}
	if w.archive, err = archive.Open(t.Context(), b, w.log.ID()); err != nil {
		t.Fatal(err)
	}
	w.log.SetArchive(w.archive)

	w.hub = eventlog.NewHub(w.log, eventlog.HubOptions{})
	ended := make(chan error, 1)
	go func() { ended <- w.hub.Run(context.Background()) }()

	w.stop = func() {
		w.hub.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := w.log.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}

	return w
}

// startArchiver runs an archiver until the returned function is called.
func (w *testLog) startArchiver(o Options) (*Archiver, func() error) {
	o.Log, o.Hub, o.Archive = w.log, w.hub, w.archive
	a := New(o)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()

	return a, func() error { cancel(); return <-ended }
}

// publish appends n envelopes, each with a follow and a play. The log time passes between them.
func (w *testLog) publish(n int, pause time.Duration) {
	w.t.Helper()
	p, err := w.log.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close(context.Background())

	for i := range n {
		letTimePass(pause)
		_, err := p.Publish(context.Background(), []*skeinv1.Event{
			{EventId: fmt.Sprint("e", i%3), Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
				UserId: fmt.Sprint("u", i), TargetUserId: "ann",
			}}},
			{Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: fmt.Sprint("u", i), ItemId: "film"}}},
		}, eventlog.PublishOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *testLog) head() eventlog.Head {
	w.t.Helper()
	h, err := w.log.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// readEvents reads the events of the log from its start up to a sequence, without the fields that
// the archive does not keep.
func (w *testLog) readEvents(to uint64) (envs []events.Envelope) {
	w.t.Helper()
	sub, err := w.hub.Subscribe(w.log.Start())
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()

	for last := uint64(0); last < to; {
		next, err := sub.Next(w.t.Context(), 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}

		for _, env := range next {
			e := *env
			e.Repeated, e.Cursor = nil, events.Cursor{Seq: env.Cursor.Seq, LastTime: env.Cursor.LastTime}

			e.Events = append([]events.Event(nil), e.Events...)
			for i := range e.Events {
				e.Events[i].ID = ""
			}

			envs = append(envs, e)
			last = env.Seq()
		}
	}

	return envs
}

// letTimePass advances the clock of a synctest bubble.
func letTimePass(d time.Duration) {
	//nolint:forbidigo // in a bubble it waits for all others
	time.Sleep(d)
}

// inBubble runs a test in a synctest bubble, in which time passes whenever all goroutines wait.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()

	// The embedded NATS server keeps one clock for all its file stores, and package archive keeps
	// its coders. Neither may be created in the bubble, and the clock must not stop there. So run
	// an archiver outside first.
	w := openLog(t, t.TempDir(), nil)
	defer func() { w.stop() }()
	a, stop := w.startArchiver(Options{})
	w.publish(60, 0)
	w.readEvents(60)
	for a.ArchiveNow(t.Context(), 60) != nil { // until the archiver runs
		runtime.Gosched()
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	synctest.Test(t, test)
}

// Envelopes that are old enough are sealed, and those that are older than the retention are
// trimmed. Readers notice neither, even after a restart.
func TestOldEnvelopesAreArchivedAndTrimmed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w := openLog(t, dir, nil)

		var sealed []archive.SealResult
		o := Options{
			SegmentAge: 12 * time.Minute, Retention: 30 * time.Minute,
			Sealed: func(s archive.SealResult) { sealed = append(sealed, s) },
		}
		a, stop := w.startArchiver(o)
		w.publish(13, 5*time.Minute)
		want := w.readEvents(13)
		synctest.Wait()
		if len(sealed) != 4 || sealed[0].First != 1 || sealed[0].Last != 3 || sealed[3].Last != 12 {
			t.Errorf("got %d segments, expected 4 that end at sequence 12, the first from 1 to 3: %+v", len(sealed), sealed)
		}

		if err := a.ArchiveNow(t.Context(), 13); err != nil {
			t.Fatal(err)
		}
		if end := w.archive.End().Seq; end != 13 {
			t.Errorf("after ArchiveNow up to 13, the archive ends at %d, expected 13", end)
		}
		if h := w.head(); h.First != 7 && h.First != 8 {
			t.Errorf("after 65 minutes with a retention of 30 the stream begins at %d, expected 7 or 8", h.First)
		}
		if diff := cmp.Diff(want, w.readEvents(13)); diff != "" {
			t.Errorf("events that are read from archive and stream differ (-want +got):\n%s", diff)
		}
		if st := a.Status(); !st.Running || st.Waiting != 0 || st.Err != nil || st.Trimmed == 0 {
			t.Errorf("got status %+v, expected a running archiver that has trimmed and has nothing to do", st)
		}

		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := a.ArchiveNow(t.Context(), 13); !errors.Is(err, ErrNotRunning) {
			t.Errorf("after the archiver ended, ArchiveNow returned %v, expected ErrNotRunning", err)
		}
		w.stop()

		w = openLog(t, dir, nil)
		defer func() { w.stop() }()
		_, stop = w.startArchiver(o)
		w.publish(2, 5*time.Minute)
		letTimePass(15 * time.Minute)
		if diff := cmp.Diff(want, w.readEvents(15)[:13]); diff != "" {
			t.Errorf("after a restart, the first 13 envelopes differ (-want +got):\n%s", diff)
		}
		if end := w.archive.End().Seq; end != 15 {
			t.Errorf("after a restart, the archive ends at %d, expected 15", end)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// The stream keeps what a store of this process would read again, one horizon before that, and what
// is younger than the retention.
func TestTrimKeepsWhatStoresStillRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := openLog(t, t.TempDir(), nil)
		defer func() { w.stop() }()
		w.publish(60, 5*time.Minute)

		sub, err := w.hub.Subscribe(w.log.Start())
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()

		envs, err := sub.Next(t.Context(), 1)
		for err == nil && envs[0].Seq() < 30 {
			envs, err = sub.Next(t.Context(), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		cursor30 := envs[0].Cursor

		for _, c := range []struct {
			retention time.Duration
			cursors   []events.Cursor // of the stores of this process
			wantFirst uint64          // where the stream begins; 0 means one horizon before the end of the archive
		}{
			{retention: -1, wantFirst: 1},
			{retention: time.Hour, cursors: []events.Cursor{cursor30, {}}, wantFirst: cursor30.WarmSeq},
			{retention: time.Hour, wantFirst: 50},
			{retention: time.Nanosecond, wantFirst: 0},
		} {
			a, stop := w.startArchiver(Options{Retention: c.retention, Cursors: func() []events.Cursor { return c.cursors }})
			synctest.Wait()
			if err := a.ArchiveNow(t.Context(), 60); err != nil {
				t.Fatal(err)
			}

			wantFirst := c.wantFirst
			if wantFirst == 0 {
				wantFirst = w.archive.End().WarmSeq
			}
			if got := w.head().First; got+2 < wantFirst || got > wantFirst {
				t.Errorf("retention %v, cursors %v: the stream begins at %d, expected %d or up to 2 before it",
					c.retention, c.cursors, got, wantFirst)
			}

			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// failingBucket is a bucket whose writes fail for a while.
type failingBucket struct {
	bucket.Bucket
	failuresLeft atomic.Int64
}

var errNoBucket = errors.New("the bucket cannot be reached")

func (f *failingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if f.failuresLeft.Add(-1) >= 0 {
		return errNoBucket
	}
	return f.Bucket.Put(ctx, name, r, size)
}

// While the bucket cannot be reached, the status of the archiver says so, and nothing is trimmed.
// Afterwards the archiver continues by itself.
func TestArchivingContinuesAfterBucketOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
		if err != nil {
			t.Fatal(err)
		}
		f := &failingBucket{Bucket: b}
		w := openLog(t, dir, f)
		defer func() { w.stop() }()

		f.failuresLeft.Store(10)
		w.publish(30, 5*time.Minute)
		a, stop := w.startArchiver(Options{Retention: time.Nanosecond, SegmentAge: time.Nanosecond})
		letTimePass(10 * time.Second)
		if st := a.Status(); !errors.Is(st.Err, errNoBucket) || st.Running {
			t.Errorf("during the outage, got status %+v, expected errNoBucket and not running", st)
		}
		if h := w.head(); h.First != 1 || w.archive.End().Seq != 0 {
			t.Errorf("during the outage, the archive ends at %d and the stream begins at %d, expected 0 and 1",
				w.archive.End().Seq, h.First)
		}

		letTimePass(8 * time.Minute)
		if st := a.Status(); st.Err != nil || w.archive.End().Seq != 30 || w.head().First == 1 {
			t.Errorf("after the outage, got status %+v, an archive up to %d and a stream from %d, expected no error, 30 and a trimmed stream",
				st, w.archive.End().Seq, w.head().First)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// forgetfulBucket is a bucket that does not find some objects at first, like a server of S3 that
// has not heard yet of what another one has stored.
type forgetfulBucket struct {
	bucket.Bucket

	namePart  string
	forgotten atomic.Bool
}

// Get is part of [bucket.Bucket].
func (f *forgetfulBucket) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if strings.Contains(name, f.namePart) && !f.forgotten.Swap(true) {
		return nil, fmt.Errorf("%w: %s", bucket.ErrNotFound, name)
	}
	return f.Bucket.Get(ctx, name, offset, length)
}

// TestArchivingContinuesAfterFailedReadBack checks that the archiver continues after the bucket did
// not find a file that was just written. No manifest names the file yet, so nothing is damaged.
func TestArchivingContinuesAfterFailedReadBack(t *testing.T) {
	for _, kind := range []string{"facts", "activity", "recent"} {
		t.Run(kind, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				dir := t.TempDir()
				b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
				if err != nil {
					t.Fatal(err)
				}
				f := &forgetfulBucket{Bucket: b, namePart: "/" + kind + "-"}
				w := openLog(t, dir, f)
				defer w.stop()
				w.publish(3, time.Second)

				a, stop := w.startArchiver(Options{SegmentAge: time.Minute})
				letTimePass(10 * time.Minute)
				if !f.forgotten.Load() {
					t.Errorf("no file of the kind %q was read back, want one", kind)
				}
				if st := a.Status(); st.Err != nil || w.archive.End().Seq != 3 {
					t.Errorf("archiver: got error %v and an archive up to %d, want none and 3", st.Err, w.archive.End().Seq)
				}
				if err := stop(); err != nil {
					t.Errorf("Run: got error %v, want none", err)
				}
			})
		})
	}
}

// If a bucket can be read but not written, for example because the directory belongs to another
// user, the status shows the error all the time, even while the archiver collects events for the
// next segment.
func TestErrorStaysUntilSegmentIsSealed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
		if err != nil {
			t.Fatal(err)
		}
		f := &failingBucket{Bucket: b}
		w := openLog(t, dir, f)
		defer func() { w.stop() }()

		f.failuresLeft.Store(1 << 40)
		w.publish(3, time.Second)
		a, stop := w.startArchiver(Options{SegmentAge: 5 * time.Minute})
		letTimePass(6 * time.Minute)

		running := false
		for range 40 {
			st := a.Status()
			if !errors.Is(st.Err, errNoBucket) {
				t.Fatalf("expected the error of the bucket, got %+v", st)
			}
			running = running || st.Running
			letTimePass(30 * time.Second)
		}
		if !running {
			t.Error("the archiver ran at none of 40 moments in 20 minutes, expected that it tries again")
		}

		f.failuresLeft.Store(0)
		letTimePass(10 * time.Minute)
		if st := a.Status(); st.Err != nil || w.archive.End().Seq != 3 {
			t.Errorf("expected no error and an archive up to 3, got %+v and %d", st, w.archive.End().Seq)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// A bucket with the archive of one log cannot be opened as the archive of another.
func TestArchiveOfAnotherLogIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w := openLog(t, dir, nil)
		a, stop := w.startArchiver(Options{})
		w.publish(3, time.Second)
		if err := a.ArchiveNow(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		w.stop()

		b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
		if err != nil {
			t.Fatal(err)
		}
		other := openLog(t, t.TempDir(), nil)
		defer func() { other.stop() }()
		if _, err := archive.Open(t.Context(), b, other.log.ID()); !errors.Is(err, events.ErrOtherLog) {
			t.Errorf("got %v, expected ErrOtherLog", err)
		}
	})
}

// TestArchiveNowEndsWithArchiver checks that a call of ArchiveNow returns an error if the archiver
// ends for good before it has received the call.
func TestArchiveNowEndsWithArchiver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w := openLog(t, dir, nil)
		defer w.stop()
		w.publish(2, time.Second)
		w.readEvents(2)

		// When the first segment is sealed, call ArchiveNow and damage the manifest. Sealing the
		// second segment fails then, before the archiver receives calls again.
		started := make(chan *Archiver, 1)
		result := make(chan error, 1)
		sealed := func(archive.SealResult) {
			a := <-started
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				result <- a.ArchiveNow(ctx, 2)
			}()
			synctest.Wait()
			if err := os.WriteFile(filepath.Join(dir, "bucket", archive.ManifestName), []byte("damaged"), 0o600); err != nil {
				t.Error(err)
			}
		}
		a, stop := w.startArchiver(Options{SegmentBytes: 1, Retention: -1, Sealed: sealed})
		started <- a

		if err := <-result; !errors.Is(err, ErrNotRunning) {
			t.Errorf("ArchiveNow: got error %v, want %v", err, ErrNotRunning)
		}
		if err := stop(); !errors.Is(err, archive.ErrDamaged) {
			t.Errorf("Run: got error %v, want %v", err, archive.ErrDamaged)
		}
	})
}
