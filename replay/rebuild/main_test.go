package rebuild_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/testmain"
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
	_ = flag.Set("test.parallel", "4") // parallel tests mostly wait, for disks
	testmain.Run(m)
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

// newTestLog returns an empty log, which is closed at the end of the test.
func newTestLog(t testing.TB) *testLog {
	t.Helper()
	log, err := eventlog.Open(t.Context(), eventlog.Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}

	w := &testLog{t: t, log: log, hub: eventlog.NewHub(log, eventlog.HubOptions{})}
	w.publisher, err = log.NewPublisher(eventlog.PublisherOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.hub.Run(ctx) }()

	t.Cleanup(func() {
		err := w.publisher.Close(context.Background())
		cancel()
		if err := errors.Join(err, <-ended, log.Close(context.Background())); err != nil {
			t.Errorf("close of the log: got %v, expected no error", err)
		}
	})
	return w
}

// publish appends envelopes of a few events each, and returns the last sequence.
func (w *testLog) publish(envelopes int) (seq uint64) {
	published := 0
	for published < envelopes {
		seed := w.seed.Add(1)
		history := slices.Concat(histories.Fixed(seed, 60), histories.FixedFeeds(seed, 60), histories.FixedPlays(seed, 60))
		for chunk := range slices.Chunk(history, 6) {
			var msgs []*skeinv1.Event
			for _, ev := range chunk {
				msgs = append(msgs, ev.Proto())
			}

			res, err := w.publisher.Publish(context.Background(), msgs, eventlog.PublishOptions{})
			if err != nil {
				w.t.Errorf("publish an envelope: got %v, expected no error", err)
				return seq
			}
			seq = res.Position.Seq
			published++
			if published >= envelopes {
				break
			}
		}
	}
	return seq
}

// subscription implements [store.Subscription] with the head of the hub.
type subscription struct {
	*eventlog.Subscription
	hub *eventlog.Hub
}

func (s subscription) Head() uint64 { return s.hub.Head() }

// subscribe subscribes to the log after a cursor. The zero cursor is the start of the log.
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
		batch, err := sub.Next(w.t.Context(), 1<<20)
		if err != nil {
			w.t.Fatal(err)
		}
		envs = append(envs, batch...)
	}

	last := slices.IndexFunc(envs, func(e *events.Envelope) bool { return e.Seq() == seq })
	return envs[:last+1]
}

// openAll opens every projection on a file system of its own, and makes it follow the log.
func (w *testLog) openAll(o store.Options) (lives []*live.Live) {
	w.t.Helper()
	for _, p := range all.Constructors(all.Settings{}) {
		lives = append(lives, w.openLive(p, o))
	}
	return lives
}

// openLive opens a projection, and makes it follow the log. Without a file system in the options,
// the projection gets one of its own.
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
			w.t.Errorf("close %s: got %v, expected no error", l.Name(), err)
		}
		<-done
	})
}

// checkRows compares a projection with a fold of the log up to a sequence that the projection has
// reached.
func (w *testLog) checkRows(l *live.Live, seq uint64) {
	w.t.Helper()
	if err := l.WaitFor(w.t.Context(), seq); err != nil {
		w.t.Fatalf("%s: wait for sequence %d: got %v, expected no error", l.Name(), seq, err)
	}

	var projection projections.Projection
	for _, p := range all.All(all.Settings{}) {
		if p.Name() == l.Name() {
			projection = p
		}
	}
	held := l.Holds()
	want := conformance.StraightOf(w.t, projection, &held, w.envelopes(seq))
	conformance.RowsOf(w.t, l.Serving()).MustEqual(w.t, want, "%s, partitions %s", l.Name(), &held)
}

// startReading reads a projection again and again, at most a thousand times per second. Between two
// reads it rests nine times as long as a read took, which leaves the processors to what is tested.
// No read may fail, and none may return an older position than the one before.
func (w *testLog) startReading(l *live.Live) (stop func() (reads int)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	hasRead := make(chan struct{}) // is closed after the first read
	count := 0
	go func() {
		defer close(done)
		var lastSeq uint64
		for rest := time.Millisecond; wait.For(ctx, rest) == nil; count++ {
			if count == 1 {
				close(hasRead)
			}
			began := time.Now()
			if err := w.readOnce(ctx, l, &lastSeq); err != nil && ctx.Err() == nil {
				w.t.Errorf("%s, read %d: got %v, expected no error", l.Name(), count, err)
				return
			}
			rest = max(time.Millisecond, 9*time.Since(began))
		}
	}()

	return sync.OnceValue(func() int {
		// On a busy machine, the first read may come only now.
		select {
		case <-hasRead:
		case <-done:
		}
		cancel()
		<-done
		return count
	})
}

// readOnce reads some rows of a projection at a position that is not before lastSeq. It sets lastSeq
// to this position.
func (w *testLog) readOnce(ctx context.Context, l *live.Live, lastSeq *uint64) (err error) {
	if err := l.WaitFor(ctx, *lastSeq); err != nil {
		return err
	}
	view, err := l.View()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, view.Close()) }()

	seq := view.Cursor().Seq
	if seq < *lastSeq {
		return fmt.Errorf("the view is at sequence %d, an earlier one was at %d", seq, *lastSeq)
	}
	*lastSeq = seq

	// Every row that an iterator returns can also be read by its key.
	it := view.Iter(nil, nil)
	for n := 0; n < 20 && it.Next(); n++ {
		_, ok, err := view.Get(it.Key())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !ok {
			return errors.Join(fmt.Errorf("the row %x is not found by its key", it.Key()), it.Close())
		}
	}
	return it.Close()
}
