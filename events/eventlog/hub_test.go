package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// openFilledLog opens a log and publishes envelopes with the given number of events each.
func openFilledLog(t testing.TB, envelopes, events int) (*Log, *Publisher) {
	t.Helper()
	l := mustOpenLog(t, Config{})
	p := newPublisher(t, l, PublisherOptions{})
	for n := range envelopes {
		mustPublish(t, p, newFollows(n*events, (n+1)*events))
	}
	return l, p
}

// areIdentical reports whether two subscribers got the same envelope objects, which the hub has
// decoded once.
func areIdentical(a, b []*events.Envelope) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}

	return true
}

// TestHubDecodesOnce checks that subscribers near each other share the decoded envelopes, also at
// the head of the log, and so do those that come later with a cursor in the ring.
func TestHubDecodesOnce(t *testing.T) {
	checkLeaks(t)
	l, p := openFilledLog(t, 20, 3)
	h, _ := runHub(t, l, HubOptions{})
	a, b := mustSubscribe(t, h, l.Start()), mustSubscribe(t, h, l.Start())

	if !areIdentical(readEnvelopes(t, a, 20), readEnvelopes(t, b, 20)) {
		t.Error("two subscribers near each other: got different envelope objects, want the same")
	}

	for n := range 5 {
		mustPublish(t, p, newFollows(n, n+1))
		if !areIdentical(readEnvelopes(t, a, uint64(21+n)), readEnvelopes(t, b, uint64(21+n))) {
			t.Error("two subscribers at the head: got different envelope objects, want the same")
		}
	}

	// A subscriber whose cursor is in the ring continues there.
	all := listCursors(t, l)
	c := mustSubscribe(t, h, all[10])
	d := mustSubscribe(t, h, all[10])
	envs := readEnvelopes(t, c, 25)
	if !areIdentical(envs, readEnvelopes(t, d, 25)) {
		t.Error("two subscribers with a cursor in the ring: got different envelope objects, want the same")
	}
	if got := envs[0].Seq(); got != 11 {
		t.Errorf("first envelope after cursor 10: got %d, want 11", got)
	}
	if c.ownReader != nil {
		t.Error("subscriber with a cursor in the ring: got its own reader, want the ring")
	}
	if got := h.Head(); got != 25 {
		t.Errorf("head: got %d, want 25", got)
	}
}

// waitUntilRingReaches waits until the ring ends at a sequence or later, and returns where the ring
// begins. A subscriber that has fallen out of the ring may reach the end of the log before the ring
// does.
func waitUntilRingReaches(t testing.TB, h *Hub, end uint64) (base uint64) {
	t.Helper()
	ctx := testContext(t)
	for {
		h.mu.Lock()
		base, ringEnd, changed := h.ring.base.Seq, h.ring.end().Seq, h.changed
		h.mu.Unlock()
		if ringEnd >= end {
			return base
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("end of the ring: got %d, want %d", ringEnd, end)
		}
	}
}

// TestLateSubscriberReturnsToTheRing reads with a subscriber that has fallen out of the ring. It
// gets equal envelopes from a reader of its own, and shares the ring again when it has reached it.
func TestLateSubscriberReturnsToTheRing(t *testing.T) {
	checkLeaks(t)
	const envelopes = 200
	l, p := openFilledLog(t, envelopes, 10)

	ringBytes := 20 * memoryCost(readWholeLog(t, l)[0])
	h, _ := runHub(t, l, HubOptions{RingBytes: ringBytes})
	early := mustSubscribe(t, h, l.Start())
	shared := readEnvelopes(t, early, envelopes)
	base := waitUntilRingReaches(t, h, envelopes)
	if base < envelopes-25 || base > envelopes-15 {
		t.Errorf("start of a ring for 20 envelopes: got %d of %d, want 15 to 25 before the end", base, envelopes)
	}

	late := mustSubscribe(t, h, l.Start())
	own := readEnvelopes(t, late, envelopes)
	for i := range own {
		if !equalEnvelopes(shared[i], own[i]) {
			t.Fatalf("envelope %d of the late subscriber: got %+v, want %+v", i+1, own[i], shared[i])
		}
	}

	if own[0] == shared[0] {
		t.Error("first envelope of the late subscriber: got the shared object, want another one")
	}

	// The late subscriber returns to the ring when it meets it.
	for n := range 50 {
		mustPublish(t, p, newFollows(n, n+1))
		head := uint64(envelopes + 1 + n)
		if areIdentical(readEnvelopes(t, early, head), readEnvelopes(t, late, head)) {
			return
		}
	}

	t.Error("late subscriber at the head: got its own reader, want the ring")
}

// TestHubReadsOnlyAsFarAsNeeded checks that the hub decodes nothing without a subscriber, and that
// the ring and the part that is read ahead stay within their limits.
func TestHubReadsOnlyAsFarAsNeeded(t *testing.T) {
	t.Parallel()
	const envelopes = 300
	l, _ := openFilledLog(t, envelopes, 100)
	perEnvelope := memoryCost(readWholeLog(t, l)[0])
	opt := HubOptions{RingBytes: 100 * perEnvelope, AheadBytes: 10 * perEnvelope}
	h, _ := runHub(t, l, opt)

	size := func() (bytes int, end uint64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.ring.bytesAfter(h.ring.base.Seq), h.ring.end().Seq
	}

	if _, end := size(); end != 0 {
		t.Errorf("end of the ring without subscribers: got %d, want 0", end)
	}

	s := mustSubscribe(t, h, l.Start())
	ctx := testContext(t)
	for read := uint64(0); read < envelopes; {
		envs, err := s.Next(ctx, bytesOfEnvelopes(3))
		if err != nil {
			t.Fatal(err)
		}
		read = envs[len(envs)-1].Seq()

		bytes, end := size()
		if bytes > opt.RingBytes {
			t.Fatalf("size of the ring: got %d bytes, want at most %d", bytes, opt.RingBytes)
		}

		// One read may return a megabyte of messages. The hub starts one only if less than
		// AheadBytes is left.
		if perRead := uint64(readBytes/2000 + 1); end > read+10+perRead {
			t.Fatalf("end of the ring with a subscriber at %d: got %d, want at most %d", read, end, read+10+perRead)
		}
	}
}

// bytesOfEnvelopes estimates the size in the log of n envelopes of 100 follows.
func bytesOfEnvelopes(n int) int { return n * 2000 }

// TestNextRespectsMaxBytes checks that Next returns envelopes up to the limit, and one envelope if
// that alone is larger.
func TestNextRespectsMaxBytes(t *testing.T) {
	l, _ := openFilledLog(t, 30, 50)
	h, _ := runHub(t, l, HubOptions{})
	a := mustSubscribe(t, h, l.Start())
	envs := readEnvelopes(t, a, 30)

	b := mustSubscribe(t, h, l.Start())
	for _, want := range []int{1, 1, 3} {
		limit := envs[2].Bytes + envs[3].Bytes + envs[4].Bytes
		if want == 1 {
			limit = 1 // a single envelope may be larger
		}
		got, err := b.Next(testContext(t), limit)
		if err != nil || len(got) != want {
			t.Errorf("Next(%d): got %d envelopes and error %v, want %d", limit, len(got), err, want)
		}
	}
}

// TestWaitingReadersEndWithContextAndClose checks that Next returns when its context, its
// subscription or its hub ends, with the error that says which.
func TestWaitingReadersEndWithContextAndClose(t *testing.T) {
	checkLeaks(t)
	l, p := openFilledLog(t, 1, 1)
	h, result := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())
	readEnvelopes(t, s, 1)

	// The context ends.
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Next(ctx, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Next with nothing to read: got error %v, want %v", err, context.DeadlineExceeded)
	}
	mustPublish(t, p, newFollows(1, 2))
	readEnvelopes(t, s, 2)

	// The subscription is closed.
	other := mustSubscribe(t, h, l.Start())
	readEnvelopes(t, other, 2)
	ended := make(chan error)
	go func() {
		_, err := other.Next(context.Background(), 1)
		ended <- err
	}()

	other.Close()
	if err := <-ended; !errors.Is(err, events.ErrClosed) {
		t.Errorf("Next of a subscription that is closed meanwhile: got error %v, want %v", err, events.ErrClosed)
	}
	if _, err := other.Next(testContext(t), 1); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Next of a closed subscription: got error %v, want %v", err, events.ErrClosed)
	}

	// The hub is closed.
	go func() {
		_, err := s.Next(context.Background(), 1)
		ended <- err
	}()

	h.Close()
	if err := <-ended; !errors.Is(err, events.ErrClosed) {
		t.Errorf("Next of a hub that is closed meanwhile: got error %v, want %v", err, events.ErrClosed)
	}
	if err := <-result; err != nil {
		t.Errorf("Run: got error %v, want none", err)
	}
	if _, err := h.Subscribe(l.Start()); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Subscribe to a closed hub: got error %v, want %v", err, events.ErrClosed)
	}
	if err := h.Run(testContext(t)); err == nil {
		t.Error("second Run: got no error, want one")
	}

	again := NewHub(l, HubOptions{})
	canceled, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := again.Run(canceled); err != nil {
		t.Errorf("Run with an ended context: got error %v, want none", err)
	}
	NewHub(l, HubOptions{}).Close() // without Run
}

// TestLogCloseEndsReaders closes a log whose hub is running. The subscriptions and the hub end
// before the connection does.
func TestLogCloseEndsReaders(t *testing.T) {
	checkLeaks(t)
	l, _ := openFilledLog(t, 1, 1)
	h, result := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())
	readEnvelopes(t, s, 1)
	ended := make(chan error)
	go func() {
		_, err := s.Next(context.Background(), 1)
		ended <- err
	}()

	closeLog(t, l)
	if err := <-ended; !errors.Is(err, events.ErrClosed) {
		t.Errorf("Next: got error %v, want %v", err, events.ErrClosed)
	}
	if err := <-result; err != nil {
		t.Errorf("Run: got error %v, want none", err)
	}
}

// TestMalformedEnvelopesAreSkippedAndCounted appends malformed messages with a plain NATS client.
// Readers skip them, count them, and keep the start of each for inspection (I11).
func TestMalformedEnvelopesAreSkippedAndCounted(t *testing.T) {
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL()})
	js := connectPlainClient(t, ns)
	ctx := testContext(t)

	garbage := make([]byte, 5000)
	random := rand.New(rand.NewPCG(1, 0))
	for i := range garbage {
		garbage[i] = byte(random.IntN(256))
	}
	garbage[0] = 0xff // no field begins with this byte

	long := bytes.Repeat(mustEncode(t, newFollow(1)), 50_000)
	bodies := [][]byte{
		garbage,
		nil, // an empty envelope, which is not malformed
		long[:events.MaxEnvelopeBytes+10],
		{8, 9},
		mustEncode(t, newFollow(1), newLike("u", "", "")), // a good event and a malformed one
	}
	for i, body := range bodies {
		if _, err := js.Publish(ctx, Subject, body); err != nil {
			t.Fatalf("body %d: %v", i, err)
		}
	}

	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(7, 8))
	envs := readWholeLog(t, l)
	if len(envs) != 6 {
		t.Fatalf("envelopes: got %d, want 6", len(envs))
	}

	var got []string
	for _, env := range envs {
		for _, r := range env.Rejects {
			if len(r.Data) > events.MaxRejectData || r.Seq != env.Seq() {
				t.Errorf("reject in envelope %d: got %d bytes and sequence %d, want at most %d bytes and the same sequence",
					env.Seq(), len(r.Data), r.Seq, events.MaxRejectData)
			}
		}

		got = append(got, fmt.Sprintf("%d events %d rejects %d bytes", len(env.Events), len(env.Rejects), env.Bytes))
	}

	want := fmt.Sprintf("0 events 1 rejects 5000 bytes; 0 events 0 rejects 0 bytes; 0 events 1 rejects %d bytes; "+
		"0 events 1 rejects 2 bytes; 1 events 1 rejects %d bytes; 1 events 0 rejects %d bytes",
		events.MaxEnvelopeBytes+10, len(bodies[4]), envs[5].Bytes)
	if strings.Join(got, "; ") != want {
		t.Errorf("envelopes: got\n%s, want\n%s", strings.Join(got, "; "), want)
	}

	if envs[5].Events[0].User != "7" {
		t.Errorf("good event after the malformed ones: got user %q, want 7", envs[5].Events[0].User)
	}

	// The server itself rejects messages that are too large.
	if _, err := js.Publish(ctx, Subject, make([]byte, maxMsgSize+1)); err == nil {
		t.Error("message larger than any envelope: got no error, want one")
	}
}

// TestReaderStopsAtHoleUntilAccepted deletes messages in the middle of the stream and at its end.
// The reader stops in front of each hole until an operator accepts the hole.
func TestReaderStopsAtHoleUntilAccepted(t *testing.T) {
	t.Parallel()
	l, p := openFilledLog(t, 10, 1)
	ctx := testContext(t)
	stream, err := l.fetchStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{3, 4, 10} {
		if err := stream.DeleteMsg(ctx, seq); err != nil {
			t.Fatal(err)
		}
	}

	h, _ := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())
	checkHole := func(first, last uint64) {
		t.Helper()
		_, err := s.Next(ctx, 1<<20)
		if hole, ok := errors.AsType[*HoleError](err); !ok || *hole != (HoleError{first, last}) || !errors.Is(err, events.ErrHole) {
			t.Fatalf("reader: got error %v, want the hole from %d to %d", err, first, last)
		}
	}

	readEnvelopes(t, s, 2)
	checkHole(3, 4)
	checkHole(3, 4)

	if err := l.AcceptHole(ctx, SeqRange{3, 5}); !errors.Is(err, ErrNotMissing) {
		t.Errorf("accept a range that contains 5, which is there: got error %v, want %v", err, ErrNotMissing)
	}
	if err := l.AcceptHole(ctx, SeqRange{3, 4}); err != nil {
		t.Fatal(err)
	}

	accepted := readAcrossHole(t, s, 9)
	if len(accepted) != 7 || len(accepted[0].Rejects) != 1 || len(accepted[0].Events) != 0 {
		t.Errorf("from the accepted hole on: got %d envelopes, first %+v, want 7, the first with one reject and no events",
			len(accepted), accepted[0])
	}

	checkHole(10, 10)
	mustPublish(t, p, newFollows(10, 11))
	checkHole(10, 10)
	if err := l.AcceptHole(ctx, SeqRange{10, 10}); err != nil {
		t.Fatal(err)
	}
	if envs := readAcrossHole(t, s, 11); len(envs) != 2 {
		t.Errorf("envelopes from the second hole on: got %d, want 2", len(envs))
	}
	if holes, err := l.Holes(ctx); len(holes) > 0 || err != nil {
		t.Errorf("missing ranges: got %v and error %v, want none", holes, err)
	}
}

// readAcrossHole reads up to a sequence, across a hole that was just accepted. It ignores errors of
// the hole, because the reader may have found the hole before that.
func readAcrossHole(t *testing.T, s *Subscription, to uint64) (envs []*events.Envelope) {
	t.Helper()
	for len(envs) == 0 || envs[len(envs)-1].Seq() < to {
		more, err := s.Next(testContext(t), 1<<20)
		if err != nil && !errors.Is(err, events.ErrHole) {
			t.Fatal(err)
		}
		envs = append(envs, more...)
	}

	return envs
}

// TestReadingSurvivesLostConnections repeatedly cuts all connections while events are published and
// read.
func TestReadingSurvivesLostConnections(t *testing.T) {
	checkLeaks(t)
	rounds := 30
	if testing.Short() {
		rounds = 5
	}

	ns := startTestServer(t, server.Options{})
	px := newProxy(t, ns)
	l := mustOpenLog(t, Config{URL: px.url(), Logger: slog.New(slog.DiscardHandler)})
	p := newPublisher(t, l, PublisherOptions{})
	h, _ := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())

	var envs []*events.Envelope
	for n := range rounds {
		mustPublish(t, p, newFollows(n, n+1))
		px.cutAll()
		envs = append(envs, readEnvelopes(t, s, uint64(n+1))...)
	}

	if len(envs) != rounds {
		t.Errorf("envelopes: got %d, want %d", len(envs), rounds)
	}
	if got := len(countFollowers(envs)); got != rounds {
		t.Errorf("different events: got %d, want %d", got, rounds)
	}
}

// copyDirectory replaces a directory by a copy of another one.
func copyDirectory(t testing.TB, to, from string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestReaderFailsWhenLogIsReplaced stops a server and starts it with another log. Readers fail with
// an error that says so, and do not wait for the old log.
func TestReaderFailsWhenLogIsReplaced(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for name, test := range map[string]struct {
		extra int  // envelopes that are appended to the older copy before the server starts with it
		fresh bool // the server starts with a new log instead of an older copy
		want  error
	}{
		"shorter":   {0, false, events.ErrLogShorter}, // a mutant names this case
		"rewritten": {30, false, events.ErrRewritten},
		"other":     {1, true, events.ErrOtherLog},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			dir, old := t.TempDir(), t.TempDir()
			start := func(dir string) *server.Server {
				return startTestServer(t, server.Options{StoreDir: dir})
			}
			fill := func(ns *server.Server, from, to int) {
				l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: quiet})
				p := newPublisher(t, l, PublisherOptions{})
				for n := from; n < to; n++ {
					mustPublish(t, p, newFollows(n, n+1))
				}
				closeLog(t, l)
			}

			// Make a log with 10 envelopes, and a copy of its directory.
			ns := start(dir)
			fill(ns, 0, 10)
			stopServer(ns)
			copyDirectory(t, old, dir)

			// A server with the older copy, or a new log, gets its extra envelopes.
			if test.fresh {
				copyDirectory(t, old, t.TempDir())
			}
			ns = start(old)
			fill(ns, 100, 100+test.extra)
			stopServer(ns)

			// Meanwhile the first log grows to 20 envelopes, and a reader reads all of them.
			ns = start(dir)
			fill(ns, 10, 20)
			px := newProxy(t, ns)
			l := mustOpenLog(t, Config{URL: px.url(), Logger: quiet})
			h, result := runHub(t, l, HubOptions{})
			s := mustSubscribe(t, h, l.Start())
			readEnvelopes(t, s, 20)

			// The server comes back at the same address with the other log. The proxy must not lead
			// to the port of a stopped server, because a server of another test can have it by
			// then.
			px.setServer(start(old))
			stopServer(ns)

			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			if _, err := s.Next(ctx, 1); !errors.Is(err, test.want) {
				t.Fatalf("Next: got error %v, want %v", err, test.want)
			}
			if err := <-result; !errors.Is(err, test.want) {
				t.Errorf("Run: got error %v, want %v", err, test.want)
			}
		})
	}
}

// TestBadCursorDoesNotStopOtherSubscribers subscribes with a cursor that the log does not have.
// That subscriber fails, and the others read on.
func TestBadCursorDoesNotStopOtherSubscribers(t *testing.T) {
	l, p := openFilledLog(t, 10, 1)
	all := listCursors(t, l)
	for name, corrupt := range map[string]func(*events.Cursor){
		"sequence after the head": func(c *events.Cursor) { c.Seq += 100 },
		"another checksum":        func(c *events.Cursor) { c.Checksum++ },
		"another time":            func(c *events.Cursor) { c.LastTime++ },
	} {
		for _, badFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, bad subscriber first %v", name, badFirst), func(t *testing.T) {
				h, result := runHub(t, l, HubOptions{})
				cursor := all[10]
				corrupt(&cursor)
				var bad, good *Subscription
				if badFirst {
					bad = mustSubscribe(t, h, cursor)
					good = mustSubscribe(t, h, all[5])
				} else {
					good = mustSubscribe(t, h, all[5])
					bad = mustSubscribe(t, h, cursor)
				}

				_, err := bad.Next(testContext(t), 1)
				if !errors.Is(err, events.ErrRewritten) && !errors.Is(err, events.ErrLogShorter) {
					t.Errorf("Next of the bad subscriber: got error %v, want %v or %v", err, events.ErrRewritten, events.ErrLogShorter)
				}
				if envs := readEnvelopes(t, good, 10); len(envs) != 5 {
					t.Errorf("envelopes of the good subscriber: got %d, want 5", len(envs))
				}

				h.Close()
				if err := <-result; err != nil {
					t.Errorf("Run: got error %v, want none", err)
				}
			})
		}
	}

	mustPublish(t, p, newFollows(0, 1))
	foreign := l.Start()
	foreign.Log[0]++
	if _, err := NewHub(l, HubOptions{}).Subscribe(foreign); !errors.Is(err, events.ErrOtherLog) {
		t.Errorf("cursor of another log: got error %v, want %v", err, events.ErrOtherLog)
	}
}

// TestErrorOfOldPositionDoesNotReachNewSubscriber moves the ring to another subscriber when the
// reader of the ring has failed at the position before, and the hub has not handled the error yet.
func TestErrorOfOldPositionDoesNotReachNewSubscriber(t *testing.T) {
	l, _ := openFilledLog(t, 10, 1)
	all := listCursors(t, l)
	h := NewHub(l, HubOptions{})
	defer h.Close()
	cursor := all[10]
	cursor.Checksum++
	bad := mustSubscribe(t, h, cursor)

	// These are the steps of Run, up to the handling of the error.
	readCtx, stopReading := context.WithCancel(testContext(t))
	defer stopReading()
	r := h.openRingReader(stopReading)
	err := h.fillRing(readCtx, r)
	r.close()
	if !isTerminal(err) {
		t.Fatalf("fillRing: got error %v, want a terminal one", err)
	}

	bad.Close()
	good := mustSubscribe(t, h, all[5])
	if h.handleTerminalError(readCtx, err) {
		t.Error("the hub has failed")
	}
	ended := make(chan error, 1)
	go func() { ended <- h.Run(testContext(t)) }()
	if envs := readEnvelopes(t, good, 10); len(envs) != 5 {
		t.Errorf("envelopes of the new subscriber: got %d, want 5", len(envs))
	}

	h.Close()
	if err := <-ended; err != nil {
		t.Errorf("Run: got error %v, want none", err)
	}
}

// TestManySubscribersEachReadTheWholeLog has subscribers that come, go, lag and overtake each other.
// Each gets every envelope after its cursor, in order.
func TestManySubscribersEachReadTheWholeLog(t *testing.T) {
	checkLeaks(t)
	envelopes := 1500
	if testing.Short() {
		envelopes = 300
	}

	l, p := openFilledLog(t, 200, 5)
	all := listCursors(t, l)
	want := readWholeLog(t, l)
	h, _ := runHub(t, l, HubOptions{RingBytes: 30 * memoryCost(want[0]), AheadBytes: 5 * memoryCost(want[0])})

	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 200; n < envelopes; n++ {
			mustPublish(t, p, newFollows(n, n+5))
		}
	})

	// Each goroutine subscribes three times at a random cursor and reads in small steps.
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for range 3 {
				from := all[rng.IntN(len(all))]
				s, err := h.Subscribe(from)
				if err != nil {
					t.Error(err)
					return
				}
				for last := from.Seq; last < uint64(envelopes); {
					envs, err := s.Next(testContext(t), 1+rng.IntN(2000))
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range envs {
						if e.Seq() != last+1 || len(e.Events) != 5 {
							t.Errorf("after %d: got %d with %d events, want the next sequence with 5 events", last, e.Seq(), len(e.Events))
							return
						}
						last++
					}

					if rng.IntN(20) == 0 {
						runtime.Gosched()
					}
				}

				s.Close()
			}
		})
	}

	wg.Wait()

	// The subscribers have left no consumer on the server.
	stream, err := l.fetchStream(testContext(t))
	if err != nil {
		t.Fatal(err)
	}

	h.Close()
	ctx := testContext(t)
	for {
		info, err := stream.Info(ctx)
		if err != nil {
			t.Error(err)
			break
		}
		if info.State.Consumers == 0 {
			break
		}
	}
}

// countingContext counts the contexts that were derived from it and were not canceled yet.
type countingContext struct {
	context.Context

	derived *atomic.Int64
}

// AfterFunc is how package context links a derived context to a context of another package.
func (c countingContext) AfterFunc(func()) (stop func() bool) {
	c.derived.Add(1)
	return sync.OnceValue(func() bool {
		c.derived.Add(-1)
		return true
	})
}

// Value hides the embedded context, to which package context would link a derived one directly.
func (countingContext) Value(any) any { return nil }

// TestFailedReadOfRingLeavesNoContext checks that a read of the ring that fails, but does not end
// the hub, releases its context. Otherwise each failure would leave one until the hub ends.
func TestFailedReadOfRingLeavesNoContext(t *testing.T) {
	l, _ := openFilledLog(t, 3, 1)
	h := NewHub(l, HubOptions{})
	defer h.Close()
	from := readWholeLog(t, l)[1].Cursor
	from.LastTime++ // the log has another envelope there
	s := mustSubscribe(t, h, from)
	ctx := countingContext{testContext(t), new(atomic.Int64)}
	if failed, err := h.readRing(ctx); failed || err == nil {
		t.Errorf("read at a wrong cursor: got error %v that ends the hub: %t, want one that does not", err, failed)
	}
	if _, err := s.Next(testContext(t), 1); err == nil {
		t.Error("the subscriber with the wrong cursor: got no error, want one")
	}
	if got := ctx.derived.Load(); got != 0 {
		t.Errorf("contexts that are left after the read: got %d, want 0", got)
	}
}

// TestParseDelivery checks that parseDelivery reads all forms of reply subjects that servers send,
// and rejects everything else.
func TestParseDelivery(t *testing.T) {
	want := delivery{seq: 12, ordinal: 7, timestamp: 1_700_000_000_123_456}
	for _, reply := range []string{
		"$JS.ACK.SKEIN.abc.1.12.7.1700000000123456789.3",
		"$JS.ACK._.hash.SKEIN.abc.1.12.7.1700000000123456789.3",
		"$JS.ACK.domain.hash.SKEIN.abc.1.12.7.1700000000123456789.3.token",
	} {
		if got, ok := parseDelivery(reply); !ok || got != want {
			t.Errorf("parseDelivery(%q): got %+v (%v), want %+v", reply, got, ok, want)
		}
	}

	for _, reply := range []string{
		"", "$JS.ACK.", "$JS.ACK.SKEIN.abc.1.12.7.17000", "$JS.ACK.SKEIN.abc.1.x.7.1.3",
		"$JS.ACK.SKEIN.abc.1.-2.7.1.3", "a.b.c.d.e.f.g.h.i.j",
	} {
		if _, ok := parseDelivery(reply); ok {
			t.Errorf("parseDelivery(%q): got ok, want it rejected", reply)
		}
	}
}
