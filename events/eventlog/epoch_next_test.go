package eventlog

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestPausedLogResumesByItself: a crash while an epoch ends leaves a log that takes events again once it is opened, and one that a
// process left paused continues by itself at the next publish.
func TestPausedLogResumesByItself(t *testing.T) {
	cfg := Config{Dir: t.TempDir()}
	publish := func(l *Log) {
		t.Helper()
		p, err := l.NewPublisher(PublisherOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Publish(t.Context(), []*skeinv1.Event{{
			Kind: &skeinv1.Event_Played{Played: &skeinv1.Played{UserId: "ann", ItemId: "film"}},
		}}, PublishOptions{})
		if err != nil {
			t.Error(err)
		}
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	for n := range 2 {
		l, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		publish(l)
		if n == 1 {
			if err := l.pauseStream(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			publish(l)
		}
		if head, err := l.pauseAndReadHead(t); err != nil || head != uint64(1+2*n) {
			t.Errorf("the head is %d: %v", head, err)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// pauseForHead pauses the log, and leaves it so.
func (l *Log) pauseAndReadHead(t *testing.T) (uint64, error) {
	t.Helper()
	if err := l.pauseStream(t.Context(), time.Now().Add(time.Hour)); err != nil {
		return 0, err
	}
	return l.settledHead(t.Context())
}

// TestSettledHeadCountsEnvelopesInFlight: the last sequence of a paused stream is known when all that was on its way is there, on one server and on three.
func TestSettledHeadCountsEnvelopesInFlight(t *testing.T) {
	t.Parallel()
	_, url := startTestCluster(t, 3)
	for _, cfg := range []Config{{Dir: t.TempDir()}, {URL: url, Logger: slog.New(slog.DiscardHandler)}} {
		l := mustOpenLog(t, cfg)
		if head, err := l.pauseAndReadHead(t); err != nil || head != 0 {
			t.Errorf("the head of an empty log is %d: %v", head, err)
		}
		if err := l.unpauseStream(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := newPublisher(t, l, PublisherOptions{})
		mustPublish(t, p, newFollows(0, 1))
		stop, stopped := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for stop.Err() == nil {
					_, _ = p.Publish(stop, newFollows(1, 2), PublishOptions{})
				}
			})
		}
		l.reconfigureMu.Lock() // or a publisher resumes it
		head, err := l.pauseAndReadHead(t)
		stopped()
		wg.Wait()
		if err != nil {
			t.Fatalf("%q: %v", cfg.URL, err)
		}
		if now, err := l.Head(t.Context()); err != nil || now.Last != head {
			t.Errorf("the head was %d, and goes to %d: %v", head, now.Last, err)
		}
		l.reconfigureMu.Unlock()
		if err := l.unpauseStream(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
