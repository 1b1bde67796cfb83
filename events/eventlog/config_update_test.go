package eventlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// answerLoser makes the first answer to a certain update of the stream's configuration arrive so
// late that the client sends the request again. Before the client's next request reaches the
// server, the test can do something on another connection.
type answerLoser struct {
	// isUpdate reports whether a chunk from the client contains the update.
	isUpdate func(chunk []byte) bool
	// applied is closed when the server has answered the update, and retried when the client has
	// sent the next request. The proxy forwards that request when the test has called proceed.
	applied, retried, proceeding chan struct{}
	proceed                      func()

	mu   sync.Mutex
	sent bool
}

// loseAnswer makes the proxy lose the answer to the update for all later connections.
func loseAnswer(t *testing.T, p *proxy, isUpdate func(chunk []byte) bool) *answerLoser {
	t.Helper()
	a := &answerLoser{
		isUpdate: isUpdate, applied: make(chan struct{}), retried: make(chan struct{}), proceeding: make(chan struct{}),
	}
	a.proceed = sync.OnceFunc(func() { close(a.proceeding) })
	t.Cleanup(a.proceed) // otherwise a failed test would wait for the proxy
	p.watchChunks(a.up, a.down)
	return a
}

// up forwards the update, and holds the next request back.
func (a *answerLoser) up(chunk []byte) bool {
	a.mu.Lock()
	wasSent := a.sent
	a.sent = wasSent || bytes.Contains(chunk, []byte(streamUpdateSubject)) && a.isUpdate(chunk)
	a.mu.Unlock()

	if wasSent && bytes.Contains(chunk, []byte("PUB $JS.API.STREAM.")) {
		select {
		case <-a.retried:
		default:
			close(a.retried)
		}
		<-a.proceeding
	}
	return false
}

// down holds the answer to the update back until the client has sent another request.
func (a *answerLoser) down(chunk []byte) bool {
	a.mu.Lock()
	wasSent := a.sent
	a.mu.Unlock()

	if wasSent && bytes.Contains(chunk, []byte("stream_update_response")) {
		select {
		case <-a.applied:
		default:
			close(a.applied)
			<-a.retried
		}
	}
	return false
}

// beginTestEpoch begins a new epoch of the log, whose archive takes everything.
func beginTestEpoch(t *testing.T, l *Log, archive *memoryArchive) error {
	t.Helper()
	l.SetArchive(archive)
	_, err := l.NextEpoch(testContext(t), 0, nil, func(_ context.Context, head uint64) (events.Cursor, error) {
		archive.setLength(int(head))
		return archive.End(), nil
	})
	return err
}

// TestRepeatedUpdateKeepsChangesOfOthers loses the answer to an update of the stream's
// configuration, so that the process sends it again. The second attempt must keep what another
// process has written meanwhile.
func TestRepeatedUpdateKeepsChangesOfOthers(t *testing.T) {
	t.Run("accepted hole and new epoch", func(t *testing.T) {
		checkLeaks(t)
		ns := startTestServer(t, server.Options{})
		p := newProxy(t, ns)
		other := mustOpenLog(t, Config{URL: ns.ClientURL()})
		mustPublish(t, newPublisher(t, other, PublisherOptions{}), newFollows(0, 1), newFollows(1, 2), newFollows(2, 3))
		all := readWholeLog(t, other)
		deleteMessages(t, other, 2)

		lost := loseAnswer(t, p, func(chunk []byte) bool { return bytes.Contains(chunk, []byte(metaHoles)) })
		l := mustOpenLog(t, Config{URL: p.url(), Logger: slog.New(slog.DiscardHandler)})
		ctx := testContext(t)
		accepted := make(chan error, 1)
		go func() { accepted <- l.AcceptHole(ctx, SeqRange{2, 2}) }()
		<-lost.applied
		if err := beginTestEpoch(t, other, &memoryArchive{envs: all}); err != nil {
			t.Error(err)
		}
		lost.proceed()

		if err := <-accepted; err != nil {
			t.Errorf("AcceptHole, whose first attempt was applied: got error %v, want none", err)
		}
		checkStreamMeta(t, ns, 2, SeqRange{2, 2})
	})

	t.Run("end of a pause and accepted hole", func(t *testing.T) {
		checkLeaks(t)
		ns := startTestServer(t, server.Options{})
		p := newProxy(t, ns)
		other := mustOpenLog(t, Config{URL: ns.ClientURL()})
		pub := newPublisher(t, other, PublisherOptions{})
		mustPublish(t, pub, newFollows(0, 1))
		all := readWholeLog(t, other)

		lost := loseAnswer(t, p, func(chunk []byte) bool { return bytes.Contains(chunk, []byte(`"subjects":["`+Subject)) })
		l := mustOpenLog(t, Config{URL: p.url(), Logger: slog.New(slog.DiscardHandler)})
		begun := make(chan error, 1)
		go func() { begun <- beginTestEpoch(t, l, &memoryArchive{envs: all}) }()
		<-lost.applied
		mustPublish(t, pub, newFollows(1, 2), newFollows(2, 3))
		deleteMessages(t, other, 2)
		if err := other.AcceptHole(testContext(t), SeqRange{2, 2}); err != nil {
			t.Error(err)
		}
		lost.proceed()

		if err := <-begun; err != nil {
			t.Errorf("NextEpoch: got error %v, want none", err)
		}
		checkStreamMeta(t, ns, 2, SeqRange{2, 2})
	})
}

// checkStreamMeta checks the epoch and the accepted holes in the metadata of the server's stream.
func checkStreamMeta(t *testing.T, ns *server.Server, wantEpoch uint32, wantHoles ...SeqRange) {
	t.Helper()
	l := mustOpenLog(t, Config{URL: ns.ClientURL()})
	if l.Epoch() != wantEpoch {
		t.Errorf("epoch of the stream: got %d, want %d", l.Epoch(), wantEpoch)
	}
	if diff := cmp.Diff(wantHoles, l.AcceptedHoles(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("accepted holes of the stream (-want +got):\n%s", diff)
	}
}

// TestHoleIsNotAcceptedDuringNewEpoch checks that a hole is not accepted while another process
// begins an epoch, nor if an epoch has begun since the messages were looked for. The new epoch has
// deleted them because the archive has them.
func TestHoleIsNotAcceptedDuringNewEpoch(t *testing.T) {
	t.Run("paused", func(t *testing.T) {
		url := startTestServer(t, server.Options{}).ClientURL()
		l := mustOpenLog(t, Config{URL: url})
		other := mustOpenLog(t, Config{URL: url})
		mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(0, 1), newFollows(1, 2))
		deleteMessages(t, l, 1)
		if _, err := other.pauseStream(testContext(t), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}

		if err := l.AcceptHole(testContext(t), SeqRange{1, 1}); !errors.Is(err, events.ErrLogUnavailable) {
			t.Errorf("AcceptHole of a paused log: got error %v, want %v", err, events.ErrLogUnavailable)
		}
		if holes := l.AcceptedHoles(); len(holes) > 0 {
			t.Errorf("accepted holes: got %v, want none", holes)
		}
	})

	t.Run("new epoch", func(t *testing.T) {
		checkLeaks(t)
		ns := startTestServer(t, server.Options{})
		p := newProxy(t, ns)
		other := mustOpenLog(t, Config{URL: ns.ClientURL()})
		mustPublish(t, newPublisher(t, other, PublisherOptions{}), newFollows(0, 1), newFollows(1, 2))
		all := readWholeLog(t, other)

		// Begin the epoch before the request for the message reaches the server.
		var once sync.Once
		p.watchChunks(func(chunk []byte) bool {
			if bytes.Contains(chunk, []byte("PUB "+getMessageSubject)) {
				once.Do(func() {
					if err := beginTestEpoch(t, other, &memoryArchive{envs: all}); err != nil {
						t.Error(err)
					}
				})
			}
			return false
		}, nil)
		l := mustOpenLog(t, Config{URL: p.url(), Logger: slog.New(slog.DiscardHandler)})
		if err := l.AcceptHole(testContext(t), SeqRange{1, 1}); !errors.Is(err, events.ErrLogUnavailable) {
			t.Errorf("AcceptHole of a message that the new epoch has archived: got error %v, want %v", err, events.ErrLogUnavailable)
		}
		checkStreamMeta(t, ns, 2)
	})
}
