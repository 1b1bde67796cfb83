package archiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"reflect"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// world is a log with its archive, in a directory.
type world struct {
	t       *testing.T
	dir     string
	log     *eventlog.Log
	hub     *eventlog.Hub
	archive *archive.Archive
	stop    func()
}

func open(t *testing.T, dir string, b bucket.Bucket) *world {
	t.Helper()
	w := &world{t: t, dir: dir}
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

// archiver runs an archiver until the returned function is called.
func (w *world) archiver(o Options) (*Archiver, func() error) {
	o.Log, o.Hub, o.Archive = w.log, w.hub, w.archive
	a := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	return a, func() error { cancel(); return <-ended }
}

// publish appends n envelopes of one follow and one play, with some minutes between them.
func (w *world) publish(n int, pause time.Duration) {
	w.t.Helper()
	p, err := w.log.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close(context.Background())
	for i := range n {
		pass(pause)
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

func (w *world) head() eventlog.Head {
	w.t.Helper()
	h, err := w.log.Head(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

// read reads the log from its start to a sequence, without what the archive does not keep.
func (w *world) read(to uint64) (envs []events.Envelope) {
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

// pass lets time pass, in a bubble.
func pass(d time.Duration) {
	//nolint:forbidigo // in a bubble it waits for all others
	time.Sleep(d)
}

// inBubble runs a test in which time passes when all wait.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// The server has one clock for all its file stores, and the archive its coders: they must not be made in the bubble, and
	// the clock not be stopped there.
	w := open(t, t.TempDir(), nil)
	defer func() { w.stop() }()
	a, stop := w.archiver(Options{})
	w.publish(60, 0)
	w.read(60)
	for a.Now(t.Context(), 60) != nil { // until it runs
		runtime.Gosched()
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, test)
}

// TestOldEnvelopesAreArchivedAndTrimmed: what is old enough is sealed, what is as old as the retention trimmed, and readers do not notice, also
// after a restart.
func TestOldEnvelopesAreArchivedAndTrimmed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, dir, nil)
		var sealed []archive.Sealed
		o := Options{
			SegmentAge: 12 * time.Minute, Retention: 30 * time.Minute,
			Sealed: func(s archive.Sealed) { sealed = append(sealed, s) },
		}
		a, stop := w.archiver(o)
		w.publish(13, 5*time.Minute)
		want := w.read(13)
		synctest.Wait()
		if len(sealed) != 4 || sealed[0].First != 1 || sealed[0].Last != 3 || sealed[3].Last != 12 {
			t.Errorf("%d segments: %+v", len(sealed), sealed)
		}
		if err := a.Now(t.Context(), 13); err != nil {
			t.Fatal(err)
		}
		if end := w.archive.End().Seq; end != 13 {
			t.Errorf("asked for everything, the archive ends at %d", end)
		}
		if h := w.head(); h.First != 7 && h.First != 8 {
			t.Errorf("after 65 minutes with a retention of 30 the stream begins at %d", h.First)
		}
		if got := w.read(13); !reflect.DeepEqual(got, want) {
			t.Errorf("through the archive the log is\n%+v, was\n%+v", got, want)
		}
		if st := a.Status(); !st.Running || st.Waiting != 0 || st.Err != nil || st.Trimmed == 0 {
			t.Errorf("%+v", st)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := a.Now(t.Context(), 13); !errors.Is(err, ErrNotRunning) {
			t.Errorf("ended: %v", err)
		}
		w.stop()

		w = open(t, dir, nil)
		defer func() { w.stop() }()
		_, stop = w.archiver(o)
		w.publish(2, 5*time.Minute)
		pass(15 * time.Minute)
		if got := w.read(15); !reflect.DeepEqual(got[:13], want) || w.archive.End().Seq != 15 {
			t.Errorf("after a restart the archive ends at %d", w.archive.End().Seq)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestTrimKeepsWhatStoresStillRead: neither what a store of the process would read again is trimmed, nor the horizon before it, nor what is
// younger than the retention.
func TestTrimKeepsWhatStoresStillRead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := open(t, t.TempDir(), nil)
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
		at := envs[0].Cursor
		for _, c := range []struct {
			retention time.Duration
			cursors   []events.Cursor
			first     uint64
		}{
			{-1, nil, 1},
			{time.Hour, []events.Cursor{at, {}}, at.WarmSeq},
			{time.Hour, nil, 50},
			{time.Nanosecond, nil, w.archive.End().WarmSeq},
		} {
			a, stop := w.archiver(Options{Retention: c.retention, Cursors: func() []events.Cursor { return c.cursors }})
			synctest.Wait()
			if err := a.Now(t.Context(), 60); err != nil {
				t.Fatal(err)
			}
			if c.first == 0 {
				c.first = w.archive.End().WarmSeq
			}
			if got := w.head().First; got+2 < c.first || got > c.first {
				t.Errorf("retention %v, cursors %v: the stream begins at %d, not about %d", c.retention, c.cursors, got, c.first)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

// failing is a bucket whose writes fail for a while.
type failing struct {
	bucket.Bucket
	left atomic.Int64
}

var errNoBucket = errors.New("the bucket cannot be reached")

func (f *failing) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if f.left.Add(-1) >= 0 {
		return errNoBucket
	}
	return f.Bucket.Put(ctx, name, r, size)
}

// TestArchivingContinuesAfterBucketOutage: an archiver whose bucket cannot be reached says so, trims nothing, and continues by itself.
func TestArchivingContinuesAfterBucketOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
		if err != nil {
			t.Fatal(err)
		}
		f := &failing{Bucket: b}
		w := open(t, dir, f)
		defer func() { w.stop() }()
		f.left.Store(10)
		w.publish(30, 5*time.Minute)
		a, stop := w.archiver(Options{Retention: time.Nanosecond, SegmentAge: time.Nanosecond})
		pass(10 * time.Second)
		if st := a.Status(); !errors.Is(st.Err, errNoBucket) || st.Running {
			t.Errorf("%+v", st)
		}
		if h := w.head(); h.First != 1 || w.archive.End().Seq != 0 {
			t.Errorf("nothing is archived, and the stream begins at %d", h.First)
		}
		pass(8 * time.Minute)
		if st := a.Status(); st.Err != nil || w.archive.End().Seq != 30 || w.head().First == 1 {
			t.Errorf("%+v, the archive ends at %d", st, w.archive.End().Seq)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestErrorStaysUntilSegmentIsSealed: a bucket that can be read but not written, such as a directory of another user, shows as an error all the
// time, also while the archiver gathers the next segment.
func TestErrorStaysUntilSegmentIsSealed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		b, err := bucket.NewDir(filepath.Join(dir, "bucket"))
		if err != nil {
			t.Fatal(err)
		}
		f := &failing{Bucket: b}
		w := open(t, dir, f)
		defer func() { w.stop() }()
		f.left.Store(1 << 40)
		w.publish(3, time.Second)
		a, stop := w.archiver(Options{SegmentAge: 5 * time.Minute})
		pass(6 * time.Minute)
		running := false
		for range 40 {
			st := a.Status()
			if !errors.Is(st.Err, errNoBucket) {
				t.Fatalf("expected the error of the bucket, got %+v", st)
			}
			running = running || st.Running
			pass(30 * time.Second)
		}
		if !running {
			t.Error("the archiver did not try again")
		}
		f.left.Store(0)
		pass(10 * time.Minute)
		if st := a.Status(); st.Err != nil || w.archive.End().Seq != 3 {
			t.Errorf("expected no error and an archive up to 3, got %+v and %d", st, w.archive.End().Seq)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestArchiveOfAnotherLogStopsArchiver: an archive that does not fit the log stops the archiver for good.
func TestArchiveOfAnotherLogStopsArchiver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, dir, nil)
		a, stop := w.archiver(Options{})
		w.publish(3, time.Second)
		if err := a.Now(t.Context(), 3); err != nil {
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
		other := open(t, t.TempDir(), nil)
		defer func() { other.stop() }()
		if _, err := archive.Open(t.Context(), b, other.log.ID()); !errors.Is(err, events.ErrOtherLog) {
			t.Errorf("%v", err)
		}
	})
}
