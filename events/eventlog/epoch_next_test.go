package eventlog

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestPausedLogResumesByItself leaves a log paused, as a crash at the end of an epoch does. The log
// accepts events again when it is opened the next time, and also when an open process publishes.
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

	for _, pauseWhileOpen := range []bool{false, true} {
		l, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		publish(l)
		wantHead := uint64(1)
		if pauseWhileOpen {
			wantHead = 3
			if _, err := l.pauseStream(t.Context(), time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			publish(l)
		}

		// This leaves the log paused, so the next Open must resume it.
		if head, _, err := l.pauseAndReadHead(t); err != nil || head != wantHead {
			t.Errorf("settled head: got %d and error %v, want %d", head, err, wantHead)
		}
		if err := l.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// pauseAndReadHead pauses the log, returns its settled head and leaves it paused.
func (l *Log) pauseAndReadHead(t *testing.T) (head uint64, pause streamPause, err error) {
	t.Helper()
	pause, err = l.pauseStream(t.Context(), time.Now().Add(time.Hour))
	if err != nil {
		return 0, pause, err
	}
	head, err = l.settledHead(t.Context())
	return head, pause, err
}

// TestSettledHeadCountsEnvelopesInFlight pauses a log while publishers are sending. The settled
// head includes every envelope that the stream accepted before, on one server and on a cluster of
// three.
func TestSettledHeadCountsEnvelopesInFlight(t *testing.T) {
	t.Parallel()
	_, url := startTestCluster(t, 3)
	for _, cfg := range []Config{{Dir: t.TempDir()}, {URL: url, Logger: slog.New(slog.DiscardHandler)}} {
		l := mustOpenLog(t, cfg)
		head, pause, err := l.pauseAndReadHead(t)
		if err != nil || head != 0 {
			t.Errorf("settled head of an empty log: got %d and error %v, want 0", head, err)
		}
		if err := l.unpauseStream(t.Context(), pause); err != nil {
			t.Fatal(err)
		}

		p := newPublisher(t, l, PublisherOptions{})
		mustPublish(t, p, newFollows(0, 1))
		publishing, stopPublishing := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for publishing.Err() == nil {
					_, _ = p.Publish(publishing, newFollows(1, 2), PublishOptions{})
				}
			})
		}

		// With the lock, no publisher resumes the stream.
		l.reconfigureMu.Lock()
		head, pause, err = l.pauseAndReadHead(t)
		stopPublishing()
		wg.Wait()

		if err != nil {
			t.Fatalf("settled head of %q: %v", cfg.URL, err)
		}
		if now, err := l.Head(t.Context()); err != nil || now.Last != head {
			t.Errorf("head after the settled head %d: got %d and error %v, want the same", head, now.Last, err)
		}
		l.reconfigureMu.Unlock()
		if err := l.unpauseStream(t.Context(), pause); err != nil {
			t.Fatal(err)
		}
	}
}
