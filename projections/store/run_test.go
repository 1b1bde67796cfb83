package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// startRun runs a store until the returned function is called, which returns what Run has returned.
func startRun(t *testing.T, s *store.Store, log *storetest.Log) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, log.Subscribe) }()
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

// TestRunFollowsLogAcrossRestarts checks that Run folds what the log has and what is appended, and
// that a second Run continues at the position of the first.
func TestRunFollowsLogAcrossRestarts(t *testing.T) {
	envs := tally.History(5, 400)
	log := storetest.NewLog(envs[:200]...)
	states := &storetest.States{}
	fs := vfs.NewMem()
	opts := store.Options{FS: fs, Listener: store.Listener{StateChanged: states.Add}}
	s := storetest.OpenTally(t, opts)
	if st := s.Status(); st.State != store.Starting {
		t.Errorf("got state %s before Run, want starting", st.State)
	}

	stop := startRun(t, s, log)
	if err := s.WaitFor(t.Context(), envs[199].Seq()); err != nil {
		t.Fatal(err)
	}
	for _, env := range envs[200:300] {
		log.Append(env)
		if err := s.WaitFor(t.Context(), env.Seq()); err != nil {
			t.Fatal(err)
		}
		if c := openView(t, s).Cursor(); c != env.Cursor {
			t.Fatalf("position of a view: got %+v, want %+v", c, env.Cursor)
		}
	}

	// After Run, the store stays where it is and can be read.
	if err := stop(); err != nil {
		t.Fatalf("end of the context: Run returned %v, want nil", err)
	}
	if err := s.WaitFor(t.Context(), envs[399].Seq()); !errors.Is(err, projections.ErrStopped) {
		t.Errorf("wait for a position after the end of Run: got error %v, want %v", err, projections.ErrStopped)
	}
	if err := s.WaitFor(t.Context(), envs[299].Seq()); err != nil {
		t.Errorf("wait for a visible position after the end of Run: got error %v, want none", err)
	}
	openView(t, s) // rows can be read until the store is closed

	// A second Run continues at the position of the first.
	log.Append(envs[300:]...)
	<-log.Subscribed
	stop = startRun(t, s, log)
	<-log.Subscribed
	if err := s.WaitFor(t.Context(), envs[399].Seq()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}

	conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "followed")
	const wantStates = "catching_up ready stopped catching_up ready stopped"
	if states.String() != wantStates {
		t.Errorf("got states %s, want %s", states, wantStates)
	}
	if log.Open != 0 {
		t.Errorf("got %d open subscriptions, want none", log.Open)
	}
	if want := []events.Cursor{{}, envs[299].Cursor}; !slices.Equal(log.From, want) {
		t.Errorf("got subscriptions from %+v, want %+v", log.From, want)
	}
}

// TestStoreOfEmptyLogIsReadyAtOnce checks that a store without anything to fold becomes ready and
// has no lag.
func TestStoreOfEmptyLogIsReadyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.OpenTally(t, store.Options{})
		stop := startRun(t, s, storetest.NewLog())
		synctest.Wait()
		if st := s.Status(); st.State != store.Ready || st.Behind != 0 || st.Lag(time.Now()) != 0 {
			t.Errorf("got status %+v, want state ready and no lag", st)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// growingSubscription is a subscription to a log whose head is always far ahead of what was read.
type growingSubscription struct {
	store.Subscription
	lastRead uint64
	// beforeNext is called with the last sequence that was read, before more is read.
	beforeNext func(uint64)
}

func (o *growingSubscription) Head() uint64 { return max(o.Subscription.Head(), 2*o.lastRead) }

func (o *growingSubscription) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	o.beforeNext(o.lastRead)
	envs, err := o.Subscription.Next(ctx, maxBytes)
	if len(envs) > 0 {
		o.lastRead = envs[len(envs)-1].Seq()
	}
	return envs, err
}

// TestReadyWhilePublishingOutrunsTheFold checks that a projection becomes Ready when it reaches the
// head as of its start, not earlier, and although the present head is never reached.
func TestReadyWhilePublishingOutrunsTheFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		envs := tally.History(5, 100)
		log := storetest.NewLog(envs[:60]...)
		s := storetest.OpenTally(t, store.Options{})

		var reads []string // the position and state before each read
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- s.Run(ctx, func(from events.Cursor) (store.Subscription, error) {
				sub, err := log.Subscribe(from)
				return &growingSubscription{Subscription: sub, beforeNext: func(at uint64) {
					reads = append(reads, fmt.Sprint(at, " ", s.Status().State))
				}}, err
			})
		}()

		// Run reads what the log has, and then what is appended.
		synctest.Wait()
		log.Append(envs[60:]...)
		synctest.Wait()
		if st := s.Status(); st.Behind != envs[99].Seq() {
			t.Errorf("got %d behind at %d, want %d behind", st.Behind, st.Cursor.Seq, envs[99].Seq())
		}

		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}

		want := fmt.Sprintf("0 catching_up, %d catching_up, %d ready, %d ready", envs[49].Seq(), envs[59].Seq(), envs[99].Seq())
		if got := strings.Join(reads, ", "); got != want {
			t.Errorf("got the reads %s, want %s", got, want)
		}
	})
}

// TestNotReadyInsideEvent checks that after a crash inside an event there is no view until the
// event is folded to its end (I3).
func TestNotReadyInsideEvent(t *testing.T) {
	envs, fs := crashInsideEvent(t)
	s := storetest.OpenTally(t, store.Options{FS: fs})
	log := storetest.NewLog(envs[0])
	stop := startRun(t, s, log)
	if _, err := s.View(); !errors.Is(err, projections.ErrNotReady) {
		t.Errorf("view inside an event: got error %v, want %v", err, projections.ErrNotReady)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.WaitFor(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait inside an event: got error %v, want %v", err, context.DeadlineExceeded)
	}
	if st := s.Status(); st.State == store.Ready {
		t.Errorf("got status %+v, want another state than ready", st)
	}

	// The rest of the event makes the store ready.
	log.Append(envs[1:]...)
	if err := s.WaitFor(t.Context(), envs[2].Seq()); err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	conformance.RowsOf(t, s).MustEqual(t, foldStraight(t, envs), "finished")
}

// TestRunFlushesInTime checks that rows are flushed within a minute, a position without new rows
// within ten minutes, and nothing if nothing is new.
func TestRunFlushesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := storetest.One(events.Event{Kind: events.Reacted, User: "ann", Item: "x"})
		envs := storetest.Envelopes(storetest.One(storetest.Follow("ann", "bob")), unread, unread, storetest.One(storetest.Follow("ann", "cid")))
		log := storetest.NewLog()
		var flushes atomic.Int64
		s := storetest.OpenTally(t, store.Options{Listener: store.Listener{
			Flushed: func(store.FlushInfo) { flushes.Add(1) },
		}})
		stop := startRun(t, s, log)

		// check waits, and then checks which position is on disk after how many flushes.
		check := func(after time.Duration, wantSeq uint64, wantFlushes int64) {
			t.Helper()
			time.Sleep(after) //nolint:forbidigo // the clock is synctest's
			synctest.Wait()
			seq, n := s.Status().Flushed.Seq, flushes.Load()
			if seq != wantSeq || n != wantFlushes {
				t.Errorf("position %d is on disk after %d flushes, want %d after %d", seq, n, wantSeq, wantFlushes)
			}
		}

		check(61*time.Second, 0, 1) // the fingerprint
		check(time.Hour, 0, 1)

		// A row is flushed within a minute.
		log.Append(envs[0])
		check(59*time.Second, 0, 1)
		check(2*time.Second, 1, 2)

		// A position without rows is flushed within ten minutes.
		log.Append(envs[1])
		check(5*time.Minute, 1, 2)
		log.Append(envs[2])
		check(6*time.Minute, 3, 3)
		check(time.Hour, 3, 3)

		// After that, rows are flushed within a minute again.
		log.Append(envs[3])
		check(2*time.Minute, 4, 4)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPositionIsFlushedAfterManyEnvelopes checks that the position is flushed before its time if
// many envelopes had no row for the store.
func TestPositionIsFlushedAfterManyEnvelopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unread := storetest.One(events.Event{Kind: events.Reacted, User: "ann", Item: "x"})
		envs := storetest.Envelopes(unread, unread, unread, unread, unread)
		log := storetest.NewLog(envs...)
		s := storetest.OpenTally(t, store.Options{Bounds: store.Bounds{FlushEnvelopes: 3, FlushEvery: time.Second}})
		stop := startRun(t, s, log)

		// One more envelope makes the store check again whether to flush.
		time.Sleep(3 * time.Second) //nolint:forbidigo // the clock is synctest's
		synctest.Wait()
		log.Append(storetest.Envelopes(unread, unread, unread, unread, unread, unread)[5])
		synctest.Wait()
		if got := s.Status().Flushed.Seq; got != 5 {
			t.Errorf("got flushed position %d, want 5", got)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRunReturnsErrorOfFoldOrLog checks that Run, and every caller that waits, gets the error that
// stopped the projection.
func TestRunReturnsErrorOfFoldOrLog(t *testing.T) {
	logError := errors.New("the log failed")
	envs := storetest.Follows(4)
	for name, test := range map[string]struct {
		sabotage func(p *tally.Tally, l *storetest.Log)
		want     error
		seq      uint64
	}{
		"fold":      {func(p *tally.Tally, _ *storetest.Log) { p.FailAt = 3 }, tally.ErrFails, 2},
		"subscribe": {func(_ *tally.Tally, l *storetest.Log) { l.Err = logError }, logError, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := tally.New()
			log := storetest.NewLog(envs...)
			log.Most = 1
			test.sabotage(p, log)

			s := storetest.OpenTally(t, store.Options{Projection: p})
			err := s.Run(t.Context(), log.Subscribe)
			if !errors.Is(err, test.want) || !errors.Is(err, projections.ErrStopped) {
				t.Fatalf("run: got error %v, want one that is %v and %v", err, test.want, projections.ErrStopped)
			}
			if err := s.WaitFor(t.Context(), 4); !errors.Is(err, test.want) {
				t.Errorf("wait: got error %v, want %v", err, test.want)
			}
			st := s.Status()
			if st.State != store.Failed || !errors.Is(st.Error, test.want) {
				t.Errorf("got status %+v, want state failed with %v", st, test.want)
			}
			if st.Cursor.Seq != test.seq {
				t.Errorf("got position %d, want %d", st.Cursor.Seq, test.seq)
			}
			if log.Open != 0 {
				t.Errorf("got %d open subscriptions, want none", log.Open)
			}
		})
	}
}

// TestFailingLogReleasesWaiters checks that an error of the log stops a projection that waits for
// envelopes, and every caller that waits for a position.
func TestFailingLogReleasesWaiters(t *testing.T) {
	logError := errors.New("the log failed")
	log := storetest.NewLog(storetest.Follows(1)...)
	s := storetest.OpenTally(t, store.Options{})
	done := make(chan error)
	go func() { done <- s.Run(t.Context(), log.Subscribe) }()
	waited := make(chan error)
	go func() { waited <- s.WaitFor(t.Context(), 2) }()

	if err := s.WaitFor(t.Context(), 1); err != nil {
		t.Fatal(err)
	}

	log.Fail(logError)
	if err := <-done; !errors.Is(err, logError) {
		t.Errorf("run: got error %v, want %v", err, logError)
	}
	if err := <-waited; !errors.Is(err, logError) {
		t.Errorf("wait: got error %v, want %v", err, logError)
	}
}
