package projections_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/conformance"
)

// sliceLog is a log of envelopes in memory that grows.
type sliceLog struct {
	mu    sync.Mutex
	envs  []*events.Envelope
	grown chan struct{}
	// most is how many envelopes are delivered at once.
	most int
	// err is what every subscription fails with; from are the cursors of all subscriptions, open how many are.
	err  error
	from []events.Cursor
	open int
	// subscribed gets each subscription, if a test waits for one.
	subscribed chan struct{}
}

func newLog(envs ...*events.Envelope) *sliceLog {
	return &sliceLog{envs: envs, grown: make(chan struct{}), subscribed: make(chan struct{}, 10), most: 50}
}

func (l *sliceLog) append(envs ...*events.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.envs = append(l.envs, envs...)
	close(l.grown)
	l.grown = make(chan struct{})
}

func (l *sliceLog) subscribe(from events.Cursor) (projections.Subscription, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	l.from = append(l.from, from)
	l.open++
	l.subscribed <- struct{}{}
	return &sliceReader{log: l, next: conformance.After(l.envs, from)}, nil
}

type sliceReader struct {
	log  *sliceLog
	next int
}

func (r *sliceReader) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	for {
		r.log.mu.Lock()
		rest, grown, err := r.log.envs[r.next:], r.log.grown, r.log.err
		r.log.mu.Unlock()
		if err != nil {
			return nil, err
		}
		n, bytes := 0, 0
		for n < min(len(rest), r.log.most) && (n == 0 || bytes+rest[n].Bytes <= maxBytes) {
			bytes += rest[n].Bytes
			n++
		}
		if n > 0 {
			r.next += n
			return rest[:n], nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (r *sliceReader) Head() uint64 {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if len(r.log.envs) == 0 {
		return 0
	}
	return r.log.envs[len(r.log.envs)-1].Seq()
}

func (r *sliceReader) Close() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	r.log.open--
}

// states notes what a listener hears.
type states struct {
	mu   sync.Mutex
	seen []projections.State
}

func (s *states) add(state projections.State, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, state)
}

func (s *states) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, state := range s.seen {
		names = append(names, state.String())
	}
	return strings.Join(names, " ")
}

// start runs a store until the returned function is called, which returns what Run returned.
func start(t *testing.T, s *projections.Store, log *sliceLog) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, log.subscribe) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-done
		})
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func TestFoldRun(t *testing.T) {
	envs := tally.History(5, 400)
	log := newLog(envs[:200]...)
	heard := &states{}
	fs := vfs.NewMem()
	opts := projections.Options{FS: fs, Listener: projections.Listener{StateChanged: heard.add}}
	s := open(t, opts)
	if st := s.Status(); st.State != projections.Starting {
		t.Errorf("state %s before Run", st.State)
	}
	stop := start(t, s, log)
	if err := s.WaitFor(t.Context(), envs[199].Seq()); err != nil {
		t.Fatal(err)
	}
	for _, env := range envs[200:300] {
		log.append(env)
		if err := s.WaitFor(t.Context(), env.Seq()); err != nil {
			t.Fatal(err)
		}
		if c := view(t, s).Cursor(); c != env.Cursor {
			t.Fatalf("at %+v, want %+v", c, env.Cursor)
		}
	}
	if err := stop(); err != nil {
		t.Fatalf("stopped as told: %v", err)
	}
	if err := s.WaitFor(t.Context(), envs[399].Seq()); !errors.Is(err, projections.ErrStopped) {
		t.Errorf("wait for what will not come: %v", err)
	}
	if err := s.WaitFor(t.Context(), envs[299].Seq()); err != nil {
		t.Errorf("wait for what is there: %v", err)
	}
	view(t, s) // rows are shown until the store is closed

	// It continues where it was, from where it was.
	log.append(envs[300:]...)
	<-log.subscribed
	stop = start(t, s, log)
	<-log.subscribed
	if err := s.WaitFor(t.Context(), envs[399].Seq()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	conformance.RowsOf(t, s).MustEqual(t, straight(t, envs), "followed")
	if heard.String() != "catching_up ready stopped catching_up ready stopped" {
		t.Errorf("states: %s", heard)
	}
	if log.open != 0 || len(log.from) != 2 || log.from[0] != (events.Cursor{}) || log.from[1] != envs[299].Cursor {
		t.Errorf("%d subscriptions open, all from %+v", log.open, log.from)
	}
}

func TestReadyAtOnceOnAnEmptyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, projections.Options{})
		stop := start(t, s, newLog())
		synctest.Wait()
		if st := s.Status(); st.State != projections.Ready || st.Behind != 0 || st.Lag(time.Now()) != 0 {
			t.Errorf("%+v", st)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// outrun is a reading of a log that is always longer than what was read of it.
type outrun struct {
	projections.Subscription
	read uint64
	// asked is called with the last sequence that was read, before more is.
	asked func(uint64)
}

func (o *outrun) Head() uint64 { return max(o.Subscription.Head(), 2*o.read) }

func (o *outrun) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	o.asked(o.read)
	envs, err := o.Subscription.Next(ctx, maxBytes)
	if len(envs) > 0 {
		o.read = envs[len(envs)-1].Seq()
	}
	return envs, err
}

// TestReadyWhilePublishingOutrunsTheFold: ready is having caught up with the head as of the start, not before, and not with more.
func TestReadyWhilePublishingOutrunsTheFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envs := tally.History(5, 100)
		log := newLog(envs[:60]...)
		s := open(t, projections.Options{})
		var seen []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, func(from events.Cursor) (projections.Subscription, error) {
				sub, err := log.subscribe(from)
				return &outrun{Subscription: sub, asked: func(at uint64) {
					seen = append(seen, fmt.Sprint(at, " ", s.Status().State))
				}}, err
			})
		}()
		synctest.Wait()
		log.append(envs[60:]...)
		synctest.Wait()
		if st := s.Status(); st.Behind != envs[99].Seq() {
			t.Errorf("%d behind, at %d", st.Behind, st.Cursor.Seq)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("0 catching_up, %d catching_up, %d ready, %d ready", envs[49].Seq(), envs[59].Seq(), envs[99].Seq())
		if got := strings.Join(seen, ", "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestNotReadyInsideAnEvent: after a crash inside an event there is nothing to show before it is finished (I3).
func TestNotReadyInsideAnEvent(t *testing.T) {
	envs, fs := crashInside(t)
	s := open(t, projections.Options{FS: fs})
	log := newLog(envs[0])
	stop := start(t, s, log)
	if _, err := s.View(); !errors.Is(err, projections.ErrNotReady) {
		t.Errorf("view: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.WaitFor(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
	if st := s.Status(); st.State == projections.Ready {
		t.Errorf("%+v", st)
	}
	log.append(envs[1:]...)
	if err := s.WaitFor(t.Context(), envs[2].Seq()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	conformance.RowsOf(t, s).MustEqual(t, straight(t, envs), "finished")
}

// TestRunFlushesInTime: rows within a minute, a position without rows within ten, and nothing when nothing is new.
func TestRunFlushesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := one(events.Event{Kind: events.Liked, User: "ann", Item: "x"})
		envs := logOf(one(follow("ann", "bob")), unread, unread, one(follow("ann", "cid")))
		log := newLog()
		var flushes atomic.Int64
		s := open(t, projections.Options{Listener: projections.Listener{
			Flushed: func(projections.FlushInfo) { flushes.Add(1) },
		}})
		stop := start(t, s, log)
		check := func(after time.Duration, seq uint64, n int64) {
			t.Helper()
			time.Sleep(after) //nolint:forbidigo // the clock is synctest's
			synctest.Wait()
			if got, f := s.Status().Flushed.Seq, flushes.Load(); got != seq || f != n {
				t.Errorf("position %d is on disk after %d flushes, want %d after %d", got, f, seq, n)
			}
		}
		check(61*time.Second, 0, 1) // the fingerprint
		check(time.Hour, 0, 1)
		log.append(envs[0])
		check(59*time.Second, 0, 1)
		check(2*time.Second, 1, 2)
		log.append(envs[1])
		check(5*time.Minute, 1, 2)
		log.append(envs[2])
		check(6*time.Minute, 3, 3)
		check(time.Hour, 3, 3)
		log.append(envs[3])
		check(2*time.Minute, 4, 4)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPositionIsFlushedByCount: many envelopes without a row for this store do not wait for the time.
func TestPositionIsFlushedByCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := one(events.Event{Kind: events.Liked, User: "ann", Item: "x"})
		envs := logOf(unread, unread, unread, unread, unread)
		log := newLog(envs...)
		s := open(t, projections.Options{Bounds: projections.Bounds{FlushEnvelopes: 3, FlushEvery: time.Second}})
		stop := start(t, s, log)
		time.Sleep(3 * time.Second) //nolint:forbidigo // the clock is synctest's
		synctest.Wait()
		log.append(logOf(unread, unread, unread, unread, unread, unread)[5]) // to look again
		synctest.Wait()
		if got := s.Status().Flushed.Seq; got != 5 {
			t.Errorf("position %d is on disk", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRunFails(t *testing.T) {
	boom := errors.New("boom")
	envs := follows(4)
	for name, test := range map[string]struct {
		sabotage func(p *tally.Tally, l *sliceLog)
		want     error
		seq      uint64
	}{
		"fold":      {func(p *tally.Tally, _ *sliceLog) { p.FailAt = 3 }, tally.ErrFails, 2},
		"subscribe": {func(_ *tally.Tally, l *sliceLog) { l.err = boom }, boom, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p, log := tally.New(), newLog(envs...)
			log.most = 1
			test.sabotage(p, log)
			s := open(t, projections.Options{Projection: p})
			err := s.Run(t.Context(), log.subscribe)
			if !errors.Is(err, test.want) || !errors.Is(err, projections.ErrStopped) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if err := s.WaitFor(t.Context(), 4); !errors.Is(err, test.want) {
				t.Errorf("wait: %v", err)
			}
			st := s.Status()
			if st.State != projections.Failed || !errors.Is(st.Error, test.want) || st.Cursor.Seq != test.seq || log.open != 0 {
				t.Errorf("%+v, %d subscriptions open", st, log.open)
			}
		})
	}
}

// TestRunFailsWhileWaiting: a log that fails under a quiet projection stops it and all who wait for it.
func TestRunFailsWhileWaiting(t *testing.T) {
	boom := errors.New("boom")
	log := newLog(follows(1)...)
	s := open(t, projections.Options{})
	done := make(chan error)
	go func() { done <- s.Run(t.Context(), log.subscribe) }()
	waited := make(chan error)
	go func() { waited <- s.WaitFor(t.Context(), 2) }()
	if err := s.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	log.mu.Lock()
	log.err = boom
	log.mu.Unlock()
	log.append()
	if err := <-done; !errors.Is(err, boom) {
		t.Errorf("run: %v", err)
	}
	if err := <-waited; !errors.Is(err, boom) {
		t.Errorf("wait: %v", err)
	}
}
