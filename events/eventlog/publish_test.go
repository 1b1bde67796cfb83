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

// TestAcknowledgedMeansOnDisk publishes a thousand events from few and from many publishers. Each return of
// Publish must come after an acknowledgement of the server, which fsyncs before each.
func TestAcknowledgedMeansOnDisk(t *testing.T) {
	checkLeaks(t)
	const events = 1000
	for _, publishers := range []int{1, 64, 1000} {
		t.Run(fmt.Sprint(publishers), func(t *testing.T) {
			l := mustOpenLog(t, Config{})
			var acked atomic.Uint64 // the highest sequence acknowledged
			envelopes, largest := 0, 0
			p := newPublisher(t, l, PublisherOptions{Listener: PublisherListener{Appended: func(info AppendInfo) {
				envelopes++
				largest = max(largest, info.Events)
				acked.Store(info.Seq)
			}}})
			var wg sync.WaitGroup
			for g := range publishers {
				wg.Go(func() {
					for n := g; n < events; n += publishers {
						res, err := p.Publish(testContext(t), []*skeinv1.Event{newFollow(n)}, PublishOptions{})
						if err != nil {
							t.Error(err)
						}
						if got := acked.Load(); got < res.Position.Seq {
							t.Errorf("Publish returned %d when the log had acknowledged %d", res.Position.Seq, got)
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
				t.Errorf("the log ends at %d (%v), want %d", head.Last, err, envelopes)
			}
			if publishers == 1 && envelopes != events || publishers == events && envelopes > events/4 {
				t.Errorf("%d publishers made %d envelopes", publishers, envelopes)
			}
			t.Logf("%d publishers: %d events, %d envelopes and acknowledgements, at most %d events in one",
				publishers, events, envelopes, largest)
			if seen := countFollowers(readWholeLog(t, l)); len(seen) != events {
				t.Errorf("the log holds %d events", len(seen))
			}
		})
	}
}

// heldPublisher returns a publisher that stops after its first envelope until it is released, and says what it
// appended.
func newBlockedPublisher(t testing.TB, l *Log, opt PublisherOptions) (p *Publisher, release func(), appended *[]AppendInfo) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	appended = new([]AppendInfo)
	opt.Listener.Appended = func(info AppendInfo) {
		*appended = append(*appended, info)
		if len(*appended) == 1 {
			close(held)
			<-free
		}
	}
	pub := newPublisher(t, l, opt)
	go func() { _, _ = pub.Publish(context.Background(), newFollows(-1, 0), PublishOptions{}) }()
	<-held
	return pub, sync.OnceFunc(func() { close(free) }), appended
}

// queued waits until so many calls wait.
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
	t.Fatal("the calls are not in the queue")
}

// publishAsync publishes each list in a goroutine of its own, in that order.
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
	// 3 + 100 + 700 fit, 500 more would not; the one after that may not overtake.
	var got []string
	for _, info := range *appended {
		got = append(got, fmt.Sprintf("%d: %d calls, %d events", info.Seq, info.Calls, info.Events))
	}
	want := []string{"1: 1 calls, 1 events", "2: 3 calls, 803 events", "3: 2 calls, 501 events"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, want := results[2].EventIDs[699], "2-802"; got != want {
		t.Errorf("the last event of the third call is %s, want %s", got, want)
	}
	if got, want := results[3].EventIDs[0], "3-0"; got != want {
		t.Errorf("the first event of the fourth call is %s, want %s: the fifth overtook it", got, want)
	}
	if got := results[3].Position; got != l.Position(3) || len(results[3].EventIDs) != 500 {
		t.Errorf("the fourth call is %+v", results[3])
	}
	envs := readWholeLog(t, l)
	if got := envs[1].Events[103].User; got != "0" {
		t.Errorf("slot 103 of the second envelope is of user %s: the order of the calls is lost", got)
	}
}

// Events keep their ids; those without one are named after their position in the log.
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
		t.Error(diff)
	}
	if res.Position != l.Position(1) {
		t.Errorf("the result is %+v", res)
	}
}

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
		{"none", nil, events.ErrEnvelopeEmpty},
		{"1001", newFollows(0, 1001), events.ErrEnvelopeTooLarge},
		{"a megabyte", large, events.ErrEnvelopeTooLarge},
		{"1000", newFollows(0, 1000), nil},
	} {
		if _, err := p.Publish(testContext(t), test.evs, PublishOptions{}); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	// The largest call that fits is one that the decoder reads.
	for n := len(large); ; n-- {
		if _, err := events.EncodeEnvelope(large[:n]); err == nil {
			mustPublish(t, p, large[:n])
			_, err := p.Publish(testContext(t), large[:n+1], PublishOptions{})
			if !errors.Is(err, events.ErrEnvelopeTooLarge) {
				t.Errorf("one event more: %v", err)
			}
			break
		}
	}
	for _, env := range readWholeLog(t, l) {
		if len(env.Rejects) > 0 {
			t.Errorf("rejected: %v", env.Rejects[0].Rejection)
		}
	}
}

// TestCanceledCallInQueueIsNotPublished: a call whose context ends in the queue is not published.
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
		t.Errorf("the call withdrawn: %v", err)
	}
	if _, err := p.Publish(ctx, newFollows(2, 3), PublishOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a call with an ended context: %v", err)
	}
	release()
	mustPublish(t, p, newFollows(3, 4))
	seen := countFollowers(readWholeLog(t, l))
	if seen["1"]+seen["2"] != 0 || seen["3"] != 1 {
		t.Errorf("the log holds %v", seen)
	}
}

// TestCanceledCallInFlightHasUnknownOutcome: when the context ends while the envelope is under way, the outcome is unknown.
func TestCanceledCallInFlightHasUnknownOutcome(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	px := newProxy(t, ns)
	taken, pass := make(chan struct{}), make(chan struct{})
	var once sync.Once
	px.watchChunks(nil, func(chunk []byte) bool {
		if bytes.Contains(chunk, []byte(`{"stream":"SKEIN"`)) {
			once.Do(func() { close(taken); <-pass })
		}
		return false
	})
	l := mustOpenLog(t, Config{URL: px.url()})
	p := newPublisher(t, l, PublisherOptions{})
	ctx, cancel := context.WithCancel(testContext(t))
	go func() { <-taken; cancel() }()
	_, err := p.Publish(ctx, newFollows(1, 2), PublishOptions{})
	if !errors.Is(err, events.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("the call in flight: %v", err)
	}
	close(pass)
	mustPublish(t, p, newFollows(2, 3))
	if seen := countFollowers(readWholeLog(t, l)); seen["1"] != 1 {
		t.Errorf("the log holds %v", seen)
	}
}

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
		for n := calls; n == calls; runtime.Gosched() {
			p.mu.Lock()
			n = len(p.queue)
			p.mu.Unlock()
			select {
			case <-done:
				n = -1
			default:
			}
		}
		select {
		case <-done:
			if !overloaded {
				t.Fatal("a call came through")
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			held := 0
			for _, c := range p.queue {
				held += c.encoded.Bytes() + callOverhead
			}
			if held > p.opt.QueueBytes {
				t.Errorf("the queue holds %d bytes of %d", held, p.opt.QueueBytes)
			}
			if calls < 10 {
				t.Errorf("only %d calls fit", calls)
			}
			return
		default:
			calls++
		}
	}
}

// TestFullQueueDelaysCalls: without FailWhenFull a call waits for room as long as its context allows.
func TestFullQueueDelaysCalls(t *testing.T) {
	l := mustOpenLog(t, Config{})
	p, release, _ := newBlockedPublisher(t, l, PublisherOptions{})
	if err := p.queueBudget.Acquire(testContext(t), int64(p.opt.QueueBytes-2000)); err != nil { // the first call has 1 KiB still
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	_, err := p.Publish(ctx, newFollows(0, 100), PublishOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, events.ErrOutcomeUnknown) {
		t.Errorf("a call without room: %v", err)
	}
	p.queueBudget.Release(int64(p.opt.QueueBytes - 2000))
	release()
	mustPublish(t, p, newFollows(0, 100))
}

func TestCloseWaitsForAcceptedCalls(t *testing.T) {
	checkLeaks(t)
	l := mustOpenLog(t, Config{})
	p, release, _ := newBlockedPublisher(t, l, PublisherOptions{})
	results, wait := publishAsync(testContext(t), t, p, newFollows(1, 2), newFollows(2, 3))
	closed := make(chan error)
	go func() { closed <- p.Close(context.Background()) }()
	ctx := testContext(t)
	for {
		p.mu.Lock()
		done := p.closed
		p.mu.Unlock()
		if done || ctx.Err() != nil {
			break
		}
		runtime.Gosched()
	}
	if _, err := p.Publish(ctx, newFollows(3, 4), PublishOptions{}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
	release()
	wait()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if len(results[0].EventIDs) != 1 || len(results[1].EventIDs) != 1 {
		t.Errorf("the accepted calls: %+v", results)
	}
	if err := p.Close(ctx); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := p.Publish(ctx, newFollows(3, 4), PublishOptions{}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("a call after the end: %v", err)
	}
}

func TestFullLogRejectsEventsAndKeepsOldOnes(t *testing.T) {
	dir := t.TempDir()
	l := mustOpenLog(t, Config{Dir: dir, MaxBytes: 100_000})
	p := newPublisher(t, l, PublisherOptions{})
	ctx := testContext(t)
	accepted := 0
	for ; ; accepted += 100 {
		if accepted > 50_000 {
			t.Fatal("the log is never full")
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
		t.Errorf("the full log: %+v, %v", head, err)
	}
	if seen := countFollowers(readWholeLog(t, l)); len(seen) != accepted || accepted < 1000 {
		t.Errorf("the full log holds %d events, accepted were %d", len(seen), accepted)
	}
	// The bound is raised while it is open, by a tool.
	c := streamConfig(l.ID(), 1, 150_000)
	if _, err := l.conn.js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	mustPublish(t, p, newFollows(accepted, accepted+100))
	accepted += 100
	// And with the configuration of the next start; 0 leaves it.
	closeLog(t, l)
	l = mustOpenLog(t, Config{Dir: dir, MaxBytes: 1 << 20})
	mustPublish(t, newPublisher(t, l, PublisherOptions{}), newFollows(accepted, accepted+1000))
	closeLog(t, l)
	l = mustOpenLog(t, Config{Dir: dir})
	if head, err := l.Head(ctx); err != nil || head.MaxBytes != 1<<20 {
		t.Errorf("after all: %+v, %v", head, err)
	}
	if seen := countFollowers(readWholeLog(t, l)); len(seen) != accepted+1000 {
		t.Errorf("the log holds %d events of %d", len(seen), accepted+1000)
	}
}

// TestUnansweredPublishHasUnknownOutcome: a server that takes everything and answers nothing, as one whose disk failed.
func TestUnansweredPublishHasUnknownOutcome(t *testing.T) {
	checkLeaks(t)
	ns := startTestServer(t, server.Options{})
	px := newProxy(t, ns)
	silent := make(chan struct{})
	var mute atomic.Bool
	px.watchChunks(nil, func([]byte) bool {
		if mute.Load() {
			<-silent
		}
		return false
	})
	l := mustOpenLog(t, Config{URL: px.url(), Logger: slog.New(slog.DiscardHandler)})
	p := newPublisher(t, l, PublisherOptions{})
	mustPublish(t, p, newFollows(0, 1))
	patient, long := p.attemptTimeout, p.retryFor
	p.attemptTimeout, p.retryFor = 20*time.Millisecond, 100*time.Millisecond
	mute.Store(true)
	outcome := make(chan error)
	go func() {
		_, err := p.Publish(context.Background(), newFollows(1, 2), PublishOptions{})
		outcome <- err
	}()
	for ctx := testContext(t); ctx.Err() == nil; runtime.Gosched() {
		p.mu.Lock()
		n := len(p.queue)
		p.mu.Unlock()
		if head, err := readHeadDirectly(ctx, ns); n == 0 && err == nil && head == 2 {
			break
		}
	}
	_, waiting := p.Publish(context.Background(), newFollows(2, 3), PublishOptions{})
	if err := <-outcome; !errors.Is(err, events.ErrOutcomeUnknown) {
		t.Errorf("the envelope that was sent: %v", err)
	}
	if !errors.Is(waiting, events.ErrLogUnavailable) && !errors.Is(waiting, events.ErrOutcomeUnknown) {
		t.Errorf("the call that waited: %v", waiting)
	}
	p.attemptTimeout, p.retryFor = patient, long
	close(silent)
	mute.Store(false)
	for n := 3; ; n++ { // until the connection has recovered
		if _, err := p.Publish(testContext(t), newFollows(n, n+1), PublishOptions{}); err == nil {
			break
		}
	}
	if seen := countFollowers(readWholeLog(t, l)); seen["0"] != 1 || seen["1"] != 1 {
		t.Errorf("the log holds %v", seen)
	}
}

// readAside asks a server how far the log goes, past any proxy.
func readHeadDirectly(ctx context.Context, ns *server.Server) (last uint64, err error) {
	l, err := Open(ctx, Config{URL: ns.ClientURL()})
	if err != nil {
		return 0, err
	}
	defer l.Close(ctx)
	head, err := l.Head(ctx)
	return head.Last, err
}

// TestPublishWithoutServerHasKnownOutcome: what surely was not taken is not of unknown outcome.
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
		t.Errorf("without a server: %v", err)
	}
	if _, err := l.Health(testContext(t)); !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("without a server it is healthy: %v", err)
	}
	// Closing does not wait for the server.
	ctx, cancel := context.WithCancel(testContext(t))
	p.retryFor = time.Hour
	go func() { _, _ = p.Publish(context.Background(), newFollows(0, 1), PublishOptions{}) }()
	for ctx.Err() == nil && p.queueBudget.TryAcquire(int64(p.opt.QueueBytes)) {
		p.queueBudget.Release(int64(p.opt.QueueBytes))
	}
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("closed with an ended context: %v", err)
	}
}

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
		t.Errorf("an envelope that the server refuses: %v", err)
	}
	if err := l.conn.js.DeleteStream(testContext(t), StreamName); err != nil {
		t.Fatal(err)
	}
	p.retryFor = 50 * time.Millisecond
	err := events.ErrOutcomeUnknown // which it is if the server, on a busy machine, does not say within that time that there is no stream
	for ctx := testContext(t); errors.Is(err, events.ErrOutcomeUnknown) && ctx.Err() == nil; {
		_, err = p.Publish(ctx, newFollows(0, 1), PublishOptions{})
	}
	if !errors.Is(err, events.ErrLogUnavailable) {
		t.Errorf("without a stream: %v", err)
	}
	if _, err := l.Health(testContext(t)); !errors.Is(err, events.ErrNoLog) {
		t.Errorf("without a stream it is healthy: %v", err)
	}
}
