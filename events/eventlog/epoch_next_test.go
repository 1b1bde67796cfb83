package eventlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
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

// TestOldEpochIsNotPurgedAfterPause lets another process resume the log after the new epoch was
// written and before the messages of the old one are purged. These must stay: the stream has
// messages of the new epoch by then, so the server would not delete whole files.
func TestOldEpochIsNotPurgedAfterPause(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	p := newProxy(t, ns)
	other := mustOpenLog(t, Config{URL: ns.ClientURL()})
	pub := newPublisher(t, other, PublisherOptions{})
	mustPublish(t, pub, newFollows(0, 1))
	all := readWholeLog(t, other)

	// Resume the log before the first request after the update that begins the epoch.
	resume := sync.OnceFunc(func() {
		err := other.updateStreamConfig(testContext(t), func(c *jetstream.StreamConfig) error {
			c.Subjects = []string{Subject}
			delete(c.Metadata, metaPaused)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		mustPublish(t, pub, newFollows(1, 2))
	})
	var epochWritten atomic.Bool
	p.watchChunks(func(chunk []byte) bool {
		if epochWritten.Load() && bytes.Contains(chunk, []byte("PUB "+streamInfoSubject)) {
			resume()
		}
		if bytes.Contains(chunk, []byte(`"`+metaEpoch+`":"2"`)) {
			epochWritten.Store(true)
		}
		return false
	}, nil)

	l := mustOpenLog(t, Config{URL: p.url(), Logger: slog.New(slog.DiscardHandler)})
	err := beginTestEpoch(t, l, &memoryArchive{envs: all})
	if err == nil || errors.Is(err, ErrEpochNotBegun) {
		t.Errorf("NextEpoch: got error %v, want one, but not %v", err, ErrEpochNotBegun)
	}
	if l.Epoch() != 2 {
		t.Errorf("epoch: got %d, want 2", l.Epoch())
	}
	if head, err := other.Head(testContext(t)); err != nil || head.First != 1 || head.Last != 2 {
		t.Errorf("head after the pause: got %+v and error %v, want the messages 1 and 2", head, err)
	}
}

// TestPauseWithoutAnswerIsUndone loses the answer to the request that pauses the log, and lets no
// further attempt be made. The epoch is not begun, and the log accepts envelopes at once: nobody
// else resumes it before the end of the pause.
func TestPauseWithoutAnswerIsUndone(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	p := newProxy(t, ns)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	p.watchChunks(nil, func(chunk []byte) bool {
		isAnswer := bytes.Contains(chunk, []byte("stream_update_response"))
		if isAnswer && ctx.Err() == nil {
			cancel()
			return true
		}
		return false
	})

	other := mustOpenLog(t, Config{URL: ns.ClientURL()})
	l := mustOpenLog(t, Config{URL: p.url(), Logger: slog.New(slog.DiscardHandler)})
	l.SetArchive(&memoryArchive{})
	_, err := l.NextEpoch(ctx, 0, nil, func(context.Context, uint64) (events.Cursor, error) {
		t.Error("the log was sealed, want that it was not paused")
		return events.Cursor{}, nil
	})
	if !errors.Is(err, ErrEpochNotBegun) {
		t.Errorf("NextEpoch: got error %v, want %v", err, ErrEpochNotBegun)
	}
	if ctx.Err() == nil {
		t.Error("no answer was lost, want that of the request that pauses the log")
	}
	info, err := other.fetchStreamInfo(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if isPaused(&info.Config) {
		t.Errorf("subjects of the stream after NextEpoch has returned: got %v, want %s", info.Config.Subjects, Subject)
	}
}

// TestLatePauseIsUndone lets the request that pauses the log arrive only after the process has
// given up the pause and undone it. The process must not wait for the end of the pause before it
// resumes the log.
func TestLatePauseIsUndone(t *testing.T) {
	url := startTestServer(t, server.Options{}).ClientURL()
	l := mustOpenLog(t, Config{URL: url})
	other := mustOpenLog(t, Config{URL: url})
	canceled, cancel := context.WithCancel(testContext(t))
	cancel()
	_, _, pause, err := l.pauseForWork(canceled)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("pauseForWork: got error %v, want %v", err, context.Canceled)
	}

	// Another connection sends the request.
	deadline, err := strconv.ParseInt(string(pause), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	late, err := other.pauseStream(testContext(t), time.UnixMicro(deadline))
	if err != nil || late != pause {
		t.Fatalf("late pause: got %q and error %v, want %q", late, err, pause)
	}
	l.tryUnpauseAbandoned(testContext(t))
	info, err := other.fetchStreamInfo(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	if isPaused(&info.Config) {
		t.Errorf("subjects of the stream after a late pause: got %v, want %s", info.Config.Subjects, Subject)
	}
}

// TestNextEpochKeepsTimeForPurge checks that sealing must end so early that the messages of the old
// epoch can be purged before another process may resume the log.
func TestNextEpochKeepsTimeForPurge(t *testing.T) {
	l := mustOpenLog(t, Config{})
	l.SetArchive(&memoryArchive{})
	sealed := errors.New("sealed")
	_, err := l.NextEpoch(testContext(t), 0, nil, func(ctx context.Context, _ uint64) (events.Cursor, error) {
		info, err := l.fetchStreamInfo(ctx)
		if err != nil {
			return events.Cursor{}, err
		}
		micros, err := strconv.ParseInt(info.Config.Metadata[metaPaused], 10, 64)
		if err != nil {
			return events.Cursor{}, err
		}
		deadline, _ := ctx.Deadline()
		if left := time.UnixMicro(micros).Sub(deadline); left < purgeTime {
			t.Errorf("time of the pause after the last moment of sealing: got %v, want at least %v", left, purgeTime)
		}
		return events.Cursor{}, sealed
	})
	if !errors.Is(err, sealed) {
		t.Errorf("NextEpoch: got error %v, want %v", err, sealed)
	}
}
