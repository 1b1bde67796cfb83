package eventlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// TestAcknowledgedMeansOnDisk publishes a thousand events from few and from many goroutines.
// Publish must not return before the server has acknowledged the envelope, and the server
// acknowledges an envelope only after its fsync.
func TestAcknowledgedMeansOnDisk(t *testing.T) {
	checkLeaks(t)
	const eventCount = 1000
	for _, publishers := range []int{1, 64, 1000} {
		t.Run(fmt.Sprint(publishers), func(t *testing.T) {
			l := mustOpenLog(t, Config{})
			var acked atomic.Uint64 // the highest acknowledged sequence
			envelopes := 0
			largest := 0 // the most events in one envelope
			var p *Publisher
			p = newPublisher(t, l, PublisherOptions{Listener: PublisherListener{Appended: func(info AppendInfo) {
				envelopes++
				largest = max(largest, info.Events)
				acked.Store(info.Seq)

				// After the first envelope, many publishers all have a call in the queue. Otherwise
				// it would depend on the machine how many of them share the next one.
				for queued := 0; publishers == eventCount && envelopes == 1 && queued < eventCount-info.Events; runtime.Gosched() {
					p.mu.Lock()
					queued = len(p.queue)
					p.mu.Unlock()
				}
			}}})

			// Goroutine g publishes every event whose number is g modulo publishers, one per call.
			var wg sync.WaitGroup
			for g := range publishers {
				wg.Go(func() {
					for n := g; n < eventCount; n += publishers {
						res, err := p.Publish(testContext(t), []*skeinv1.Event{newFollow(n)}, PublishOptions{})
						if err != nil {
							t.Error(err)
						}
						if got := acked.Load(); got < res.Position.Seq {
							t.Errorf("Publish returned sequence %d: got %d as the last acknowledged one, want at least that", res.Position.Seq, got)
						}
					}
				})
			}

			wg.Wait()
			if err := p.Close(testContext(t)); err != nil {
				t.Error(err)
			}

			head, err := l.Head(testContext(t))
			if err != nil || head.Last != uint64(envelopes) {
				t.Errorf("end of the log: got %d and error %v, want %d", head.Last, err, envelopes)
			}

			// A single publisher never has two calls at a time, and many publishers share envelopes.
			if publishers == 1 && envelopes != eventCount {
				t.Errorf("envelopes of a single publisher: got %d, want %d", envelopes, eventCount)
			}
			if publishers == eventCount && envelopes > eventCount/4 {
				t.Errorf("envelopes of %d publishers: got %d, want at most %d", publishers, envelopes, eventCount/4)
			}
			t.Logf("%d publishers: %d events, %d envelopes and acknowledgements, at most %d events in one",
				publishers, eventCount, envelopes, largest)

			if seen := countFollowers(readWholeLog(t, l)); len(seen) != eventCount {
				t.Errorf("events in the log: got %d, want %d", len(seen), eventCount)
			}
		})
	}
}

// newBlockedPublisher returns a publisher that has appended one envelope and then appends nothing
// until release is called. appended lists what it has appended.
func newBlockedPublisher(t testing.TB, l *Log, opt PublisherOptions) (p *Publisher, release func(), appended *[]AppendInfo) {
	t.Helper()
	blocked, released := make(chan struct{}), make(chan struct{})
	appended = new([]AppendInfo)
	opt.Listener.Appended = func(info AppendInfo) {
		*appended = append(*appended, info)
		if len(*appended) == 1 {
			close(blocked)
			<-released
		}
	}

	pub := newPublisher(t, l, opt)
	go func() { _, _ = pub.Publish(context.Background(), newFollows(-1, 0), PublishOptions{}) }()
	<-blocked
	return pub, sync.OnceFunc(func() { close(released) }), appended
}

// waitUntilQueued waits until the queue of the publisher has so many calls.
func waitUntilQueued(t testing.TB, p *Publisher, calls int) {
	ctx := testContext(t)
	for ctx.Err() == nil {
		p.mu.Lock()
		n := len(p.queue)
		p.mu.Unlock()
		if n == calls {
			return
		}
		runtime.Gosched()
	}

	t.Fatalf("the queue never had %d calls", calls)
}

// publishAsync publishes each list in a goroutine of its own. It returns when all calls are in the
// queue, in that order. wait waits for their results.
func publishAsync(ctx context.Context, t testing.TB, p *Publisher, calls ...[]*skeinv1.Event) (results []Result, wait func()) {
	results = make([]Result, len(calls))
	var wg sync.WaitGroup
	for i, evs := range calls {
		wg.Go(func() {
			var err error
			if results[i], err = p.Publish(ctx, evs, PublishOptions{}); err != nil {
				t.Error(err)
			}
		})

		waitUntilQueued(t, p, i+1)
	}

	return results, wg.Wait
}

// TestCallsAreGroupedInOrder checks that calls that wait are joined into one envelope as long as
// they fit, in order, and that a small call does not overtake a large one that does not fit.
func TestCallsAreGroupedInOrder(t *testing.T) {
	l := mustOpenLog(t, Config{})
	p, release, appended := newBlockedPublisher(t, l, PublisherOptions{})

	big := newFollows(0, 700)
	results, wait := publishAsync(testContext(t), t, p,
		newFollows(10_000, 10_003), newFollows(20_000, 20_100), big, newFollows(30_000, 30_500), newFollows(40_000, 40_001))
	release()
	wait()
	if err := p.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}

	// The calls with 3, 100 and 700 events fit into one envelope, and the next one, with 500, does
	// not. The last one must not overtake it.
	var got []string
	for _, info := range *appended {
		got = append(got, fmt.Sprintf("%d: %d calls, %d events", info.Seq, info.Calls, info.Events))
	}
	want := []string{"1: 1 calls, 1 events", "2: 3 calls, 803 events", "3: 2 calls, 501 events"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("envelopes (-want +got):\n%s", diff)
	}

	if got, want := results[2].EventIDs[699], "2-802"; got != want {
		t.Errorf("last event of the third call: got %s, want %s", got, want)
	}
	if got, want := results[3].EventIDs[0], "3-0"; got != want {
		t.Errorf("first event of the fourth call: got %s, want %s: the fifth call must not overtake it", got, want)
	}
	if got := results[3].Position; got != l.Position(3) || len(results[3].EventIDs) != 500 {
		t.Errorf("fourth call: got position %+v and %d ids, want %+v and 500", got, len(results[3].EventIDs), l.Position(3))
	}

	envs := readWholeLog(t, l)
	if got := envs[1].Events[103].User; got != "0" {
		t.Errorf("slot 103 of the second envelope: got user %s, want 0, the first of the third call", got)
	}
}

// TestPublishNamesEventsWithoutID checks that Publish returns the event id of each event, and that
// an event without an id gets a name from its position in the log.
func TestPublishNamesEventsWithoutID(t *testing.T) {
	l := mustOpenLog(t, Config{})
	p := newPublisher(t, l, PublisherOptions{})
	named := newFollow(1)
	named.EventId = "mine"
	res, err := p.Publish(testContext(t), []*skeinv1.Event{named, newFollow(2), newFollow(3)}, PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"mine", "1-1", "1-2"}, res.EventIDs); diff != "" {
		t.Errorf("event ids (-want +got):\n%s", diff)
	}
	if res.Position != l.Position(1) {
		t.Errorf("position: got %+v, want %+v", res.Position, l.Position(1))
	}
}

// TestPublishEnforcesSizeLimits checks that Publish rejects calls with no events, more than 1000
// events or too many bytes, and that readers decode the largest calls that it accepts.
func TestPublishEnforcesSizeLimits(t *testing.T) {
	l := mustOpenLog(t, Config{})
	p := newPublisher(t, l, PublisherOptions{})

	attributes := make([]byte, events.MaxAttributesBytes)
	var large []*skeinv1.Event
	for n := range 1000 {
		id := strings.Repeat("x", 120) + fmt.Sprint(n)
		large = append(large, &skeinv1.Event{EventId: id[60:], Kind: &skeinv1.Event_PinCreated{PinCreated: &skeinv1.PinCreated{
			Pin: newPin(id, id), BoardId: id, ItemId: id, RepinOf: newPin(id, id), Attributes: attributes,
		}}})
	}

	for _, test := range []struct {
		name string
		evs  []*skeinv1.Event
		want error
	}{
		{"no events", nil, events.ErrEnvelopeEmpty},
		{"1001 events", newFollows(0, 1001), events.ErrEnvelopeTooLarge},
		{"a megabyte", large, events.ErrEnvelopeTooLarge},
		{"1000 events", newFollows(0, 1000), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := p.Publish(testContext(t), test.evs, PublishOptions{}); !errors.Is(err, test.want) {
				t.Errorf("Publish: got error %v, want %v", err, test.want)
			}
		})
	}

	// Find the largest call that fits, and check that one more event is too much.
	fitting := len(large)
	for {
		if _, err := events.EncodeEnvelope(large[:fitting]); err == nil {
			break
		}
		fitting--
	}
	mustPublish(t, p, large[:fitting])
	_, err := p.Publish(testContext(t), large[:fitting+1], PublishOptions{})
	if !errors.Is(err, events.ErrEnvelopeTooLarge) {
		t.Errorf("call with one event more than fits: got error %v, want %v", err, events.ErrEnvelopeTooLarge)
	}

	for _, env := range readWholeLog(t, l) {
		if len(env.Rejects) > 0 {
			t.Errorf("envelope %d: got reject %v, want none", env.Seq(), env.Rejects[0].Rejection)
		}
	}
}

// TestCanceledCallInQueueIsNotPublished ends the context of a call that is still in the queue. The
// call fails with the error of the context, and its events are never published.
func TestCanceledCallInQueueIsNotPublished(t *testing.T) {
	checkLeaks(t)
	l := mustOpenLog(t, Config{})
	p, release, _ := newBlockedPublisher(t, l, PublisherOptions{})

	ctx, cancel := context.WithCancel(testContext(t))
	result := make(chan error)
	go func() {
		_, err := p.Publish(ctx, newFollows(1, 2), PublishOptions{})
		result <- err
	}()

	waitUntilQueued(t, p, 1)
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) || errors.Is(err, events.ErrOutcomeUnknown) {
		t.Errorf("call canceled in the queue: got error %v, want %v and not %v", err, context.Canceled, events.ErrOutcomeUnknown)
	}

	if _, err := p.Publish(ctx, newFollows(2, 3), PublishOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("call with an ended context: got error %v, want %v", err, context.Canceled)
	}

	release()
	mustPublish(t, p, newFollows(3, 4))
	seen := countFollowers(readWholeLog(t, l))
	if seen["1"] != 0 || seen["2"] != 0 {
		t.Errorf("events of the canceled calls: got %d and %d in the log, want none", seen["1"], seen["2"])
	}
	if seen["3"] != 1 {
		t.Errorf("event of the last call: got it %d times in the log, want once", seen["3"])
	}
}

// TestCanceledCallInFlightHasUnknownOutcome ends the context of a call after its envelope was sent
// and before the acknowledgement arrives. The outcome is then unknown, and the event is in the log.
func TestCanceledCallInFlightHasUnknownOutcome(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	px := newProxy(t, ns)

	// The proxy holds back the first acknowledgement until passOn is closed.
	acked, passOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	px.watchChunks(nil, func(chunk []byte) bool {
		if bytes.Contains(chunk, []byte(`{"stream":"SKEIN"`)) {
			once.Do(func() { close(acked); <-passOn })
		}
		return false
	})

	l := mustOpenLog(t, Config{URL: px.url()})
	p := newPublisher(t, l, PublisherOptions{})
	ctx, cancel := context.WithCancel(testContext(t))
	go func() { <-acked; cancel() }()
	_, err := p.Publish(ctx, newFollows(1, 2), PublishOptions{})
	if !errors.Is(err, events.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("call canceled in flight: got error %v, want %v and %v", err, events.ErrOutcomeUnknown, context.Canceled)
	}

	close(passOn)
	mustPublish(t, p, newFollows(2, 3))
	if seen := countFollowers(readWholeLog(t, l)); seen["1"] != 1 {
		t.Errorf("events in the log: got %v, want that of 1 once", seen)
	}
}

// TestFullQueueRejectsCalls checks that with FailWhenFull, a call that does not fit into QueueBytes
// fails with ErrOverloaded at once.
func TestFullQueueRejectsCalls(t *testing.T) {
	l := mustOpenLog(t, Config{})
	p, release, _ := newBlockedPublisher(t, l, PublisherOptions{FailWhenFull: true, QueueBytes: 1})

	var wg sync.WaitGroup
	defer wg.Wait()
	defer release()

	calls := 0
	for {
		var overloaded bool
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			_, err := p.Publish(testContext(t), newFollows(1000*calls, 1000*calls+1000), PublishOptions{})
			if errors.Is(err, events.ErrOverloaded) {
				overloaded = true
			} else if err != nil {
				t.Error(err)
			}
		})

		// Wait until the call is either in the queue or rejected.
		for n := calls; n == calls; runtime.Gosched() {
			p.mu.Lock()
			n = len(p.queue)
			p.mu.Unlock()
			select {
			case <-done:
				n = -1 // ends the loop
			default:
			}
		}

		select {
		case <-done:
			if !overloaded {
				t.Fatal("call with a blocked publisher: got a result, want ErrOverloaded")
			}

			p.mu.Lock()
			defer p.mu.Unlock()
			queuedBytes := 0
			for _, c := range p.queue {
				queuedBytes += c.encoded.Bytes() + callOverhead
			}
			if queuedBytes > p.opt.QueueBytes {
				t.Errorf("size of the queue: got %d bytes, want at most %d", queuedBytes, p.opt.QueueBytes)
			}
			if calls < 10 {
				t.Errorf("calls in the full queue: got %d, want at least 10", calls)
			}
			return
		default:
			calls++
		}
	}
}

// TestFullQueueDelaysCalls checks that without FailWhenFull a call waits until it fits into the
// queue, or until its context ends.
func TestFullQueueDelaysCalls(t *testing.T) {
	l := mustOpenLog(t, Config{})
	p, release, _ := newBlockedPublisher(t, l, PublisherOptions{})

	// Take the budget of the queue except for 2000 bytes. The first call still uses about 1 KiB.
	if err := p.queueBudget.Acquire(testContext(t), int64(p.opt.QueueBytes-2000)); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	_, err := p.Publish(ctx, newFollows(0, 100), PublishOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, events.ErrOutcomeUnknown) {
		t.Errorf("call that never fits: got error %v, want %v and not %v", err, context.DeadlineExceeded, events.ErrOutcomeUnknown)
	}

	p.queueBudget.Release(int64(p.opt.QueueBytes - 2000))
	release()
	mustPublish(t, p, newFollows(0, 100))
}

// TestCloseWaitsForAcceptedCalls checks that Close waits for the calls in the queue and rejects new
// ones, and that it may be called again.
func TestCloseWaitsForAcceptedCalls(t *testing.T) {
	checkLeaks(t)
	l := mustOpenLog(t, Config{})
	p, release, _ := newBlockedPublisher(t, l, PublisherOptions{})
	results, wait := publishAsync(testContext(t), t, p, newFollows(1, 2), newFollows(2, 3))

	// Start to close, and wait until the publisher knows that.
	closed := make(chan error)
	go func() { closed <- p.Close(context.Background()) }()
	ctx := testContext(t)
	for {
		p.mu.Lock()
		closing := p.closed
		p.mu.Unlock()
		if closing || ctx.Err() != nil {
			break
		}
		runtime.Gosched()
	}

	if _, err := p.Publish(ctx, newFollows(3, 4), PublishOptions{}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("call during Close: got error %v, want %v", err, events.ErrClosed)
	}

	release()
	wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if len(results[0].EventIDs) != 1 || len(results[1].EventIDs) != 1 {
		t.Errorf("accepted calls: got %+v, want one event id each", results)
	}

	if err := p.Close(ctx); err != nil {
		t.Errorf("second Close: got error %v, want none", err)
	}
	if _, err := p.Publish(ctx, newFollows(3, 4), PublishOptions{}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("call after Close: got error %v, want %v", err, events.ErrClosed)
	}
}

// TestFullLogRejectsEventsAndKeepsOldOnes checks that a full log rejects events and keeps all old
// ones. It accepts events again when its limit is raised, by a tool or by the configuration of the
// next start.
func TestFullLogRejectsEventsAndKeepsOldOnes(t *testing.T) {
	dir := t.TempDir()
	l := mustOpenLog(t, Config{Dir: dir, MaxBytes: 100_000})
	p := newPublisher(t, l, PublisherOptions{})
	ctx := testContext(t)

	accepted := 0
	for ; ; accepted += 100 {
		if accepted > 50_000 {
			t.Fatalf("log of 100 kB: got %d events accepted, want it full", accepted)
		}
		_, err := p.Publish(ctx, newFollows(accepted, accepted+100), PublishOptions{})
		if errors.Is(err, events.ErrLogFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	if head, err := l.Head(ctx); err != nil || head.First != 1 || head.MaxBytes != 100_000 || head.Bytes > 100_000 {
		t.Errorf("head of the full log: got %+v and error %v, want everything from 1 in at most 100000 bytes", head, err)
	}
	if seen := countFollowers(readWholeLog(t, l)); len(seen) != accepted || accepted < 1000 {
		t.Errorf("events in the full log: got %d, want the %d accepted ones, at least 1000", len(seen), accepted)
	}

	// A tool raises the limit while the log is open.
	c := streamConfig(l.ID(), 1, 150_000)
	if _, err := l.conn.js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	mustPublish(t, p, newFollows(accepted, accepted+100))
	accepted += 100

	// The configuration of the next start raises it again. A start without MaxBytes leaves it as it
	// is.
	closeLog(t, l)
	l = mustOpenLog(t, Config{Dir: dir, MaxBytes: 1 << 20})
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(accepted, accepted+1000))
	closeLog(t, l)
	l = mustOpenLog(t, Config{Dir: dir})
	if head, err := l.Head(ctx); err != nil || head.MaxBytes != 1<<20 {
		t.Errorf("head after a start without MaxBytes: got %+v and error %v, want a limit of %d", head, err, 1<<20)
	}
	if seen := countFollowers(readWholeLog(t, l)); len(seen) != accepted+1000 {
		t.Errorf("events in the log: got %d, want %d", len(seen), accepted+1000)
	}
}

// TestUnansweredPublishHasUnknownOutcome publishes to a server that accepts everything and answers
// nothing, like one whose disk has failed.
func TestUnansweredPublishHasUnknownOutcome(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	px := newProxy(t, ns)

	// Once mute is true, the proxy holds back all answers of the server until speakAgain is closed.
	speakAgain := make(chan struct{})
	var mute atomic.Bool
	px.watchChunks(nil, func([]byte) bool {
		if mute.Load() {
			<-speakAgain
		}
		return false
	})

	l := mustOpenLog(t, Config{URL: px.url(), Logger: slog.New(slog.DiscardHandler)})
	p := newPublisher(t, l, PublisherOptions{})
	mustPublish(t, p, newFollows(0, 1))

	normalTimeout, normalRetryFor := p.attemptTimeout, p.retryFor
	p.attemptTimeout, p.retryFor = 20*time.Millisecond, 100*time.Millisecond
	mute.Store(true)
	outcome := make(chan error)
	go func() {
		_, err := p.Publish(context.Background(), newFollows(1, 2), PublishOptions{})
		outcome <- err
	}()

	// Wait until the server has stored the envelope, whose acknowledgement does not arrive.
	for ctx := testContext(t); ctx.Err() == nil; runtime.Gosched() {
		p.mu.Lock()
		n := len(p.queue)
		p.mu.Unlock()
		if head, err := readHeadDirectly(ctx, ns); n == 0 && err == nil && head == 2 {
			break
		}
	}

	_, queuedErr := p.Publish(context.Background(), newFollows(2, 3), PublishOptions{})
	if err := <-outcome; !errors.Is(err, events.ErrOutcomeUnknown) {
		t.Errorf("call whose envelope was sent: got error %v, want %v", err, events.ErrOutcomeUnknown)
	}
	if !errors.Is(queuedErr, events.ErrLogUnavailable) && !errors.Is(queuedErr, events.ErrOutcomeUnknown) {
		t.Errorf("call that waited: got error %v, want %v or %v", queuedErr, events.ErrLogUnavailable, events.ErrOutcomeUnknown)
	}

	// Let the server answer again, and publish until the connection has recovered.
	p.attemptTimeout, p.retryFor = normalTimeout, normalRetryFor
	close(speakAgain)
	mute.Store(false)
	for n := 3; ; n++ {
		if _, err := p.Publish(testContext(t), newFollows(n, n+1), PublishOptions{}); err == nil {
			break
		}
	}

	if seen := countFollowers(readWholeLog(t, l)); seen["0"] != 1 || seen["1"] != 1 {
		t.Errorf("events in the log: got %v, want those of 0 and 1 once", seen)
	}
}

// readHeadDirectly returns the last sequence of the log of a server, over a connection without
// proxy.
func readHeadDirectly(ctx context.Context, ns *server.Server) (last uint64, err error) {
	l, err := Open(ctx, Config{URL: ns.ClientURL()})
	if err != nil {
		return 0, err
	}
	defer l.Close(ctx)
	head, err := l.Head(ctx)
	return head.Last, err
}

// TestPublishWithoutServerHasKnownOutcome publishes without a server. The call fails with
// ErrLogUnavailable, which means that nothing was stored, and Close does not wait for the server.
func TestPublishWithoutServerHasKnownOutcome(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL(), Logger: slog.New(slog.DiscardHandler)})
	p := newPublisher(t, l, PublisherOptions{})
	p.retryFor = 50 * time.Millisecond
	stopServer(ns)
	for ctx := testContext(t); l.conn.state().up && ctx.Err() == nil; {
		runtime.Gosched()
	}

	_, err := p.Publish(testContext(t), newFollows(0, 1), PublishOptions{})
	if !errors.Is(err, events.ErrLogUnavailable) || errors.Is(err, events.ErrOutcomeUnknown) {
		t.Errorf("Publish without a server: got error %v, want %v and not %v", err, events.ErrLogUnavailable, events.ErrOutcomeUnknown)
	}
	if _, err := l.Health(testContext(t)); !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("Health without a server: got error %v, want %v", err, events.ErrLogUnavailable)
	}

	// Close returns when its context ends, although the publisher would retry for an hour.
	ctx, cancel := context.WithCancel(testContext(t))
	p.retryFor = time.Hour
	go func() { _, _ = p.Publish(context.Background(), newFollows(0, 1), PublishOptions{}) }()
	for ctx.Err() == nil && p.queueBudget.TryAcquire(int64(p.opt.QueueBytes)) {
		p.queueBudget.Release(int64(p.opt.QueueBytes))
	}
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close with an ended context: got error %v, want %v", err, context.Canceled)
	}
}

// TestPublishReportsPermanentRejection checks that Publish reports ErrRefused for an envelope that
// the server will never accept, and ErrLogUnavailable if the stream is gone.
func TestPublishReportsPermanentRejection(t *testing.T) {
	ns := startTestServer(t, server.Options{})
	l := mustOpenLog(t, Config{URL: ns.ClientURL()})
	p := newPublisher(t, l, PublisherOptions{})

	c := streamConfig(l.ID(), 1, -1)
	c.MaxMsgSize = 500
	if _, err := l.conn.js.UpdateStream(testContext(t), c); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Publish(testContext(t), newFollows(0, 100), PublishOptions{}); !errors.Is(err, events.ErrRefused) {
		t.Errorf("Publish of an envelope that the server rejects: got error %v, want %v", err, events.ErrRefused)
	}

	if err := l.conn.js.DeleteStream(testContext(t), StreamName); err != nil {
		t.Fatal(err)
	}
	p.retryFor = 50 * time.Millisecond

	// On a busy machine the server may not say in time that there is no stream. The outcome is then
	// unknown, and the loop tries again.
	err := events.ErrOutcomeUnknown
	for ctx := testContext(t); errors.Is(err, events.ErrOutcomeUnknown) && ctx.Err() == nil; {
		_, err = p.Publish(ctx, newFollows(0, 1), PublishOptions{})
	}
	if !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("Publish without a stream: got error %v, want %v", err, events.ErrLogUnavailable)
	}
	if _, err := l.Health(testContext(t)); !errors.Is(err, events.ErrNoLog) {
		t.Errorf("Health without a stream: got error %v, want %v", err, events.ErrNoLog)
	}
}
