package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
)

// filledLog returns a log with envelopes of some events each.
func openFilledLog(t testing.TB, envelopes, events int) (*Log, *Publisher) {
	t.Helper()
	l := mustOpenLog(t, Config{})
	p := newPublisher(t, l, PublisherOptions{})
	for n := range envelopes {
		mustPublish(t, p, newFollows(n*events, (n+1)*events))
	}
	return l, p
}

// same reports whether two subscribers got the very same envelopes: decoded once.
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

func TestHubDecodesOnce(t *testing.T) {
	checkLeaks(t)
	l, p := openFilledLog(t, 20, 3)
	h, _ := runHub(t, l, HubOptions{})
	a, b := mustSubscribe(t, h, l.Start()), mustSubscribe(t, h, l.Start())
	if !areIdentical(readEnvelopes(t, a, 20), readEnvelopes(t, b, 20)) {
		t.Error("two subscribers near each other got different envelopes")
	}
	for n := range 5 {
		mustPublish(t, p, newFollows(n, n+1))
		if !areIdentical(readEnvelopes(t, a, uint64(21+n)), readEnvelopes(t, b, uint64(21+n))) {
			t.Error("at the head two subscribers got different envelopes")
		}
	}
	// One that comes with a cursor from the ring continues in the ring.
	all := listCursors(t, l)
	c, d := mustSubscribe(t, h, all[10]), mustSubscribe(t, h, all[10])
	if envs := readEnvelopes(t, c, 25); !areIdentical(envs, readEnvelopes(t, d, 25)) || envs[0].Seq() != 11 || c.ownReader != nil {
		t.Error("a subscriber within the ring reads for itself")
	}
	if got := h.Head(); got != 25 {
		t.Errorf("the head is %d", got)
	}
}

// awaitRing waits until the ring ends at a sequence, and returns where it begins: a subscriber that was thrown out of
// the ring may reach the end of the log before it.
func waitUntilRingReaches(t testing.TB, h *Hub, end uint64) (base uint64) {
	t.Helper()
	ctx := testContext(t)
	for {
		h.mu.Lock()
		base, at, grown := h.ring.base.Seq, h.ring.end().Seq, h.changed
		h.mu.Unlock()
		if at >= end {
			return base
		}
		select {
		case <-grown:
		case <-ctx.Done():
			t.Fatalf("the ring ends at %d, want %d", at, end)
		}
	}
}

// TestLateSubscriberReturnsToTheRing: one that has fallen out of the ring reads for itself, gets the same, and comes back.
func TestLateSubscriberReturnsToTheRing(t *testing.T) {
	checkLeaks(t)
	const envelopes = 200
	l, p := openFilledLog(t, envelopes, 10)
	bound := 20 * memoryCost(readWholeLog(t, l)[0])
	h, _ := runHub(t, l, HubOptions{RingBytes: bound})
	fast := mustSubscribe(t, h, l.Start())
	first := readEnvelopes(t, fast, envelopes)
	base := waitUntilRingReaches(t, h, envelopes)
	if base < envelopes-25 || base > envelopes-15 {
		t.Errorf("a ring for 20 envelopes begins at %d of %d", base, envelopes)
	}
	late := mustSubscribe(t, h, l.Start())
	second := readEnvelopes(t, late, envelopes)
	for i := range second {
		if !equalEnvelopes(first[i], second[i]) {
			t.Fatalf("envelope %d differs: %+v, %+v", i+1, first[i], second[i])
		}
	}
	if second[0] == first[0] {
		t.Error("the first envelope was still shared")
	}
	for n := range 50 { // it is back when it has met the ring
		mustPublish(t, p, newFollows(n, n+1))
		if areIdentical(readEnvelopes(t, fast, uint64(envelopes+1+n)), readEnvelopes(t, late, uint64(envelopes+1+n))) {
			return
		}
	}
	t.Error("the late subscriber still reads for itself")
}

// TestHubReadsOnlyAsFarAsNeeded: nothing is decoded without a subscriber, and the ring stays within its bounds whatever the
// subscribers do.
func TestHubReadsOnlyAsFarAsNeeded(t *testing.T) {
	const envelopes = 300
	l, _ := openFilledLog(t, envelopes, 100)
	one := memoryCost(readWholeLog(t, l)[0])
	opt := HubOptions{RingBytes: 100 * one, AheadBytes: 10 * one}
	h, _ := runHub(t, l, opt)
	size := func() (bytes int, end uint64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.ring.bytesAfter(h.ring.base.Seq), h.ring.end().Seq
	}
	if _, end := size(); end != 0 {
		t.Error("the hub reads without subscribers")
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
			t.Fatalf("the ring holds %d bytes of %d", bytes, opt.RingBytes)
		}
		// One read may bring a megabyte of messages, here all the rest; it is asked for only within reach.
		if perRead := uint64(readBytes/2000 + 1); end > read+10+perRead {
			t.Fatalf("at %d the hub has read to %d", read, end)
		}
	}
}

// envsBytes is the size in the log of some envelopes of 100 follows.
func bytesOfEnvelopes(n int) int { return n * 2000 }

func TestNextRespectsMaxBytes(t *testing.T) {
	l, _ := openFilledLog(t, 30, 50)
	h, _ := runHub(t, l, HubOptions{})
	a := mustSubscribe(t, h, l.Start())
	envs := readEnvelopes(t, a, 30)
	b := mustSubscribe(t, h, l.Start())
	for _, want := range []int{1, 1, 3} {
		limit := envs[2].Bytes + envs[3].Bytes + envs[4].Bytes
		if want == 1 {
			limit = 1 // a single one may be larger
		}
		got, err := b.Next(testContext(t), limit)
		if err != nil || len(got) != want {
			t.Errorf("Next(%d) returned %d envelopes, %v", limit, len(got), err)
		}
	}
}

func TestWaitingReadersEndWithContextAndClose(t *testing.T) {
	checkLeaks(t)
	l, p := openFilledLog(t, 1, 1)
	h, result := runHub(t, l, HubOptions{})
	s := mustSubscribe(t, h, l.Start())
	readEnvelopes(t, s, 1)
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Next(ctx, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with nothing to read: %v", err)
	}
	mustPublish(t, p, newFollows(1, 2))
	readEnvelopes(t, s, 2)

	other := mustSubscribe(t, h, l.Start())
	readEnvelopes(t, other, 2)
	ended := make(chan error)
	go func() {
		_, err := other.Next(context.Background(), 1)
		ended <- err
	}()
	other.Close()
	if err := <-ended; !errors.Is(err, events.ErrClosed) {
		t.Errorf("the subscription closed: %v", err)
	}
	if _, err := other.Next(testContext(t), 1); !errors.Is(err, events.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
	go func() {
		_, err := s.Next(context.Background(), 1)
		ended <- err
	}()
	h.Close()
	if err := <-ended; !errors.Is(err, events.ErrClosed) {
		t.Errorf("the hub closed: %v", err)
	}
	if err := <-result; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := h.Subscribe(l.Start()); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Subscribe to a closed hub: %v", err)
	}
	if err := h.Run(testContext(t)); err == nil {
		t.Error("the hub runs twice")
	}

	again := NewHub(l, HubOptions{})
	canceled, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := again.Run(canceled); err != nil {
		t.Errorf("Run with an ended context: %v", err)
	}
	NewHub(l, HubOptions{}).Close() // without Run
}

// TestLogCloseEndsReaders: the log closes what still uses its connection.
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
		t.Errorf("Next: %v", err)
	}
	if err := <-result; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// TestMalformedEnvelopesAreSkippedAndCounted: what others append is counted, kept for inspection and skipped (I11).
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
	garbage[0] = 0xff // no field begins so
	long := bytes.Repeat(mustEncode(t, newFollow(1)), 50_000)
	bodies := [][]byte{garbage, nil, long[:events.MaxEnvelopeBytes+10], {8, 9}, mustEncode(t, newFollow(1), newLike("u", "", ""))}
	for i, body := range bodies {
		if _, err := js.Publish(ctx, Subject, body); err != nil {
			t.Fatalf("body %d: %v", i, err)
		}
	}
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(7, 8))
	envs := readWholeLog(t, l)
	if len(envs) != 6 {
		t.Fatalf("read %d envelopes", len(envs))
	}
	var got []string
	for _, env := range envs {
		for _, r := range env.Rejects {
			if len(r.Data) > events.MaxRejectData || r.Seq != env.Seq() {
				t.Errorf("the reject of %d holds %d bytes, sequence %d", env.Seq(), len(r.Data), r.Seq)
			}
		}
		got = append(got, fmt.Sprintf("%d events %d rejects %d bytes", len(env.Events), len(env.Rejects), env.Bytes))
	}
	want := fmt.Sprintf("0 events 1 rejects 5000 bytes; 0 events 0 rejects 0 bytes; 0 events 1 rejects %d bytes; "+
		"0 events 1 rejects 2 bytes; 1 events 1 rejects %d bytes; 1 events 0 rejects %d bytes",
		events.MaxEnvelopeBytes+10, len(bodies[4]), envs[5].Bytes)
	if strings.Join(got, "; ") != want {
		t.Errorf("read\n%s, want\n%s", strings.Join(got, "; "), want)
	}
	if envs[5].Events[0].User != "7" {
		t.Error("the good event after them is lost")
	}
	// What the server itself refuses never comes this far.
	if _, err := js.Publish(ctx, Subject, make([]byte, maxMsgSize+1)); err == nil {
		t.Error("the log took a message beyond any bound")
	}
}

// TestReaderStopsAtHoleUntilAccepted: nothing is read across what the log lacks, at its end too, until that is accepted.
func TestReaderStopsAtHoleUntilAccepted(t *testing.T) {
	t.Parallel()
	l, p := openFilledLog(t, 10, 1)
	ctx := testContext(t)
	stream, err := l.stream(ctx)
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
	wantHole := func(first, last uint64) {
		t.Helper()
		_, err := s.Next(ctx, 1<<20)
		if hole, ok := errors.AsType[*HoleError](err); !ok || *hole != (HoleError{first, last}) || !errors.Is(err, events.ErrHole) {
			t.Fatalf("in front of %d to %d: %v", first, last, err)
		}
	}
	readEnvelopes(t, s, 2)
	wantHole(3, 4)
	wantHole(3, 4)
	if err := l.AcceptHole(ctx, SeqRange{3, 5}); !errors.Is(err, ErrNotMissing) {
		t.Errorf("5 is there: %v", err)
	}
	if err := l.AcceptHole(ctx, SeqRange{3, 4}); err != nil {
		t.Fatal(err)
	}
	accepted := readAcrossHole(t, s, 9)
	if len(accepted) != 7 || len(accepted[0].Rejects) != 1 || len(accepted[0].Events) != 0 {
		t.Errorf("read %d envelopes of 7: %+v", len(accepted), accepted[0])
	}
	wantHole(10, 10)
	mustPublish(t, p, newFollows(10, 11))
	wantHole(10, 10)
	if err := l.AcceptHole(ctx, SeqRange{10, 10}); err != nil {
		t.Fatal(err)
	}
	if envs := readAcrossHole(t, s, 11); len(envs) != 2 {
		t.Errorf("read %d envelopes after the hole", len(envs))
	}
	if holes, err := l.Holes(ctx); len(holes) > 0 || err != nil {
		t.Errorf("missing are %v: %v", holes, err)
	}
}

// readOver reads up to a sequence. That there was a hole may have been found before it was accepted.
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

// TestReadingSurvivesLostConnections cuts all connections while publishing and reading continue.
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
	if len(envs) != rounds || len(countFollowers(envs)) != rounds {
		t.Errorf("read %d envelopes with %d events of %d", len(envs), len(countFollowers(envs)), rounds)
	}
}

// copyTree copies a data directory.
func copyDirectory(t testing.TB, to, from string) {
	t.Helper()
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestReaderFailsWhenLogIsReplaced: when the server comes back with another log, that is said at once, not waited for.
func TestReaderFailsWhenLogIsReplaced(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for name, test := range map[string]struct {
		extra int  // envelopes appended to the older copy before it comes back
		fresh bool // a new log comes instead of an older copy
		want  error
	}{
		"shorter":   {0, false, events.ErrLogShorter},
		"rewritten": {30, false, events.ErrRewritten},
		"other":     {1, true, events.ErrOtherLog},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			dir, old := t.TempDir(), t.TempDir()
			start := func(dir string, port int) *server.Server {
				return startTestServer(t, server.Options{StoreDir: dir, Port: port})
			}
			fill := func(ns *server.Server, from, to int) {
				l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: quiet})
				p := newPublisher(t, l, PublisherOptions{})
				for n := from; n < to; n++ {
					mustPublish(t, p, newFollows(n, n+1))
				}
				closeLog(t, l)
			}
			ns := start(dir, 0)
			port := ns.Addr().(*net.TCPAddr).Port
			fill(ns, 0, 10)
			stopServer(ns)
			copyDirectory(t, old, dir)
			if test.fresh {
				copyDirectory(t, old, t.TempDir())
			}
			ns = start(old, 0)
			fill(ns, 100, 100+test.extra)
			stopServer(ns)
			ns = start(dir, port)
			fill(ns, 10, 20)
			l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: quiet})
			h, result := runHub(t, l, HubOptions{})
			s := mustSubscribe(t, h, l.Start())
			readEnvelopes(t, s, 20)
			stopServer(ns)
			start(old, port)
			ctx, cancel := context.WithCancel(testContext(t))
			defer cancel()
			if _, err := s.Next(ctx, 1); !errors.Is(err, test.want) {
				t.Fatalf("Next: %v", err)
			}
			if err := <-result; !errors.Is(err, test.want) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// TestBadCursorDoesNotStopOtherSubscribers: a store whose cursor is not of this log does not stop the others.
func TestBadCursorDoesNotStopOtherSubscribers(t *testing.T) {
	l, p := openFilledLog(t, 10, 1)
	all := listCursors(t, l)
	for name, bad := range map[string]func(*events.Cursor){
		"ahead":    func(c *events.Cursor) { c.Seq += 100 },
		"checksum": func(c *events.Cursor) { c.Checksum++ },
		"time":     func(c *events.Cursor) { c.LastTime++ },
	} {
		for _, first := range []bool{true, false} {
			h, result := runHub(t, l, HubOptions{})
			c := all[10]
			bad(&c)
			var s, good *Subscription
			if first {
				s, good = mustSubscribe(t, h, c), mustSubscribe(t, h, all[5])
			} else {
				good, s = mustSubscribe(t, h, all[5]), mustSubscribe(t, h, c)
			}
			if _, err := s.Next(testContext(t), 1); !errors.Is(err, events.ErrRewritten) && !errors.Is(err, events.ErrLogShorter) {
				t.Errorf("%s: %v", name, err)
			}
			if envs := readEnvelopes(t, good, 10); len(envs) != 5 {
				t.Errorf("%s: the good subscriber read %d envelopes", name, len(envs))
			}
			h.Close()
			if err := <-result; err != nil {
				t.Errorf("%s: Run: %v", name, err)
			}
		}
	}
	mustPublish(t, p, newFollows(0, 1))
	foreign := l.Start()
	foreign.Log[0]++
	if _, err := NewHub(l, HubOptions{}).Subscribe(foreign); !errors.Is(err, events.ErrOtherLog) {
		t.Errorf("a cursor of another log: %v", err)
	}
}

// TestManySubscribersEachReadTheWholeLog lets subscribers come, go, lag and overtake, and checks that each gets the log.
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
							t.Errorf("%d events at %d after %d", len(e.Events), e.Seq(), last)
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
	// No consumer is left behind on the server by those that went.
	stream, err := l.stream(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	for ctx := testContext(t); ; {
		info, err := stream.Info(ctx)
		if err != nil || info.State.Consumers == 0 {
			if err != nil {
				t.Error(err)
			}
			break
		}
	}
}

func TestParseDelivery(t *testing.T) {
	want := delivery{seq: 12, ordinal: 7, timestamp: 1_700_000_000_123_456}
	for _, reply := range []string{
		"$JS.ACK.SKEIN.abc.1.12.7.1700000000123456789.3",
		"$JS.ACK._.hash.SKEIN.abc.1.12.7.1700000000123456789.3",
		"$JS.ACK.domain.hash.SKEIN.abc.1.12.7.1700000000123456789.3.token",
	} {
		if got, ok := parseDelivery(reply); !ok || got != want {
			t.Errorf("%s is %+v, %v", reply, got, ok)
		}
	}
	for _, reply := range []string{
		"", "$JS.ACK.", "$JS.ACK.SKEIN.abc.1.12.7.17000", "$JS.ACK.SKEIN.abc.1.x.7.1.3",
		"$JS.ACK.SKEIN.abc.1.-2.7.1.3", "a.b.c.d.e.f.g.h.i.j",
	} {
		if _, ok := parseDelivery(reply); ok {
			t.Errorf("%q is accepted", reply)
		}
	}
}
