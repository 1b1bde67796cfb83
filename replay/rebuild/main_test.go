package rebuild_test

import (
	"context"
	"errors"
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/wait"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.short", "true") // -short=false runs all at full length: docs/development.md
	goleak.VerifyTestMain(m)
}

// testLog is an embedded log with a hub, and projections that follow it.
type testLog struct {
	t         testing.TB
	log       *eventlog.Log
	hub       *eventlog.Hub
	publisher *eventlog.Publisher
	// seed is that of the next history that is published.
	seed atomic.Uint64
}

func newTestLog(t testing.TB) *testLog {
	t.Helper()
	log, err := eventlog.Open(t.Context(), eventlog.Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	w := &testLog{t: t, log: log, hub: eventlog.NewHub(log, eventlog.HubOptions{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.hub.Run(ctx) }()
	if w.publisher, err = log.NewPublisher(eventlog.PublisherOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := w.publisher.Close(context.Background())
		cancel()
		if err := errors.Join(err, <-ended, log.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return w
}

// publish appends envelopes of a few events each, and returns the last sequence.
func (w *testLog) publish(envelopes int) (seq uint64) {
	for n := 0; n < envelopes; {
		seed := w.seed.Add(1)
		for chunk := range slices.Chunk(slices.Concat(histories.Fixed(seed, 60), histories.FixedFeeds(seed, 60), histories.FixedPlays(seed, 60)), 6) {
			var msgs []*skeinv1.Event
			for _, ev := range chunk {
				msgs = append(msgs, ev.Proto())
			}
			took, err := w.publisher.Publish(context.Background(), msgs, eventlog.PublishOptions{})
			if err != nil {
				w.t.Error(err)
				return seq
			}
			seq = took.Position.Seq
			if n++; n >= envelopes {
				break
			}
		}
	}
	return seq
}

type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

func (w *testLog) subscribe(from events.Cursor) (store.Subscription, error) {
	if from == (events.Cursor{}) {
		from = w.log.Start()
	}
	sub, err := w.hub.Subscribe(from)
	if err != nil {
		return nil, err
	}
	return subscription{sub, w.hub}, nil
}

// subscribeKinds is the SubscribeFunc of rebuilds.
func (w *testLog) subscribeKinds(from events.Cursor, _ events.KindSet) (store.Subscription, error) {
	return w.subscribe(from)
}

// envelopes reads the log from its start up to a sequence.
func (w *testLog) envelopes(seq uint64) (envs []*events.Envelope) {
	w.t.Helper()
	sub, err := w.subscribe(events.Cursor{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer sub.Close()
	for len(envs) == 0 || envs[len(envs)-1].Seq() < seq {
		some, err := sub.Next(w.t.Context(), 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		envs = append(envs, some...)
	}
	return envs[:slices.IndexFunc(envs, func(e *events.Envelope) bool { return e.Seq() == seq })+1]
}

// openAll opens every projection on a file system of its own, and makes it follow the log.
func (w *testLog) openAll(o store.Options) (lives []*live.Live) {
	w.t.Helper()
	for _, p := range all.Constructors(all.Settings{}) {
		lives = append(lives, w.openLive(p, o))
	}
	return lives
}

func (w *testLog) openLive(p func() projections.Projection, o store.Options) *live.Live {
	w.t.Helper()
	if o.FS == nil {
		o.FS = vfs.NewMem()
	}
	o.Dir = "data"
	l, err := live.Open(live.Options{Options: o, New: p})
	if err != nil {
		w.t.Fatal(err)
	}
	w.runLive(l)
	return l
}

// runLive makes a projection follow the log until it is closed, at the latest by the end of the
// test.
func (w *testLog) runLive(l *live.Live) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.Run(context.Background(), w.subscribe)
	}()
	w.t.Cleanup(func() {
		if err := l.Close(); err != nil {
			w.t.Error(err)
		}
		<-done
	})
}

// checkRows compares a projection with a fold of the log up to a sequence that the projection has
// reached.
func (w *testLog) checkRows(l *live.Live, seq uint64) {
	w.t.Helper()
	if err := l.WaitFor(w.t.Context(), seq); err != nil {
		w.t.Fatal(l.Name(), err)
	}
	var fresh projections.Projection
	for _, p := range all.All(all.Settings{}) {
		if p.Name() == l.Name() {
			fresh = p
		}
	}
	held := l.Holds()
	straight := conformance.StraightOf(w.t, fresh, &held, w.envelopes(seq))
	conformance.RowsOf(w.t, l.Serving()).MustEqual(w.t, straight, "%s, partitions %s", l.Name(), &held)
}

// startReading reads a projection again and again, at most a thousand times per second. Between two
// reads it rests nine times as long as a read took, which leaves the processors to what is tested.
// No read may fail, and none may return an older position than the one before.
func (w *testLog) startReading(l *live.Live) (stop func() (reads int)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	n := 0
	go func() {
		defer close(done)
		var last uint64
		for rest := time.Millisecond; wait.For(ctx, rest) == nil; n++ {
			began := time.Now()
			if err := w.readOnce(ctx, l, &last); err != nil && ctx.Err() == nil {
				w.t.Errorf("%s, read %d: %v", l.Name(), n, err)
				return
			}
			rest = max(time.Millisecond, 9*time.Since(began))
		}
	}()
	return sync.OnceValue(func() int { cancel(); <-done; return n })
}

var errBack = errors.New("the position went back")

func (w *testLog) readOnce(ctx context.Context, l *live.Live, last *uint64) (err error) {
	if err := l.WaitFor(ctx, *last); err != nil {
		return err
	}
	v, err := l.View()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if v.Cursor().Seq < *last {
		return errBack
	}
	*last = v.Cursor().Seq
	it := v.Iter(nil, nil)
	for n := 0; n < 20 && it.Next(); n++ {
		if _, ok, err := v.Get(it.Key()); err != nil || !ok {
			return errors.Join(err, it.Close(), errors.New("a row is not found"))
		}
	}
	return it.Close()
}
