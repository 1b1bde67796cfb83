package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// callOverhead is the number of bytes that each queued call costs in addition to its encoded
	// events. It makes QueueBytes limit the number of calls, too.
	callOverhead      = 1 << 10
	defaultQueueBytes = 64 << 20
	// minQueueBytes must be more than the cost of the largest call. Otherwise that call would wait
	// forever.
	minQueueBytes = 4 << 20
)

// PublisherOptions are the settings of a [Publisher]. The zero value selects the defaults.
type PublisherOptions struct {
	// QueueBytes limits the size of the queue in bytes: the encoded events, and 1 KiB for each
	// call. The default is 64 MiB and the minimum is 4 MiB.
	QueueBytes int
	// FailWhenFull makes Publish fail with [events.ErrOverloaded] when the queue is full, instead
	// of waiting until there is room.
	FailWhenFull bool
	// Listener gets a call for every envelope.
	Listener PublisherListener
}

// PublisherListener holds functions that a publisher calls, one at a time, from the goroutine that
// publishes. They must not block, because the publisher sends nothing until they return. Nil
// functions are not called.
type PublisherListener struct {
	// Appended is called when an envelope has been stored or given up.
	Appended func(AppendInfo)
}

// AppendInfo describes one envelope that was sent to the log.
type AppendInfo struct {
	// Calls and Events are the numbers of calls and events in the envelope. Bytes is its encoded
	// size.
	Calls, Events, Bytes int
	// Attempts is the number of times the envelope was sent: 1 unless an attempt failed, and 0 if
	// the publisher gave up before it could send the envelope.
	Attempts int
	// Repeated is set if the log reported a duplicate: an earlier attempt had been stored although
	// its answer was lost.
	Repeated bool
	// Latency is the time from the first attempt until the log acknowledged the envelope or the
	// publisher gave up.
	Latency time.Duration
	// Seq is the sequence that the log assigned to the envelope, if Err is nil.
	Seq uint64
	// Err is the reason why the publisher gave up, or nil.
	Err error
}

// Publisher appends events to the log. It groups calls: those that arrive while an append is in
// progress go into the next envelope together, and no call is split between envelopes. Grouping
// uses no timer, so a call is sent at once when no append is in progress. The methods of a
// Publisher are safe for concurrent use.
type Publisher struct {
	log         *Log
	ownsLog     bool // the log was opened for this publisher alone
	opt         PublisherOptions
	queueBudget *semaphore.Weighted
	stop        context.CancelFunc // ends run, and cancels the envelope in flight
	stopped     chan struct{}      // closed when run has returned

	// retryFor and attemptTimeout are the constants of the same names, except in tests.
	retryFor, attemptTimeout time.Duration

	// mu guards queue and closed.
	mu     sync.Mutex
	queue  []*call
	wake   chan struct{} // capacity 1: tells run that queue or closed has changed
	closed bool
}

// call is one call of [Publisher.Publish] that is queued or in flight.
type call struct {
	encoded  events.EncodedCall
	trace    string // PublishOptions.Trace
	queuedAt time.Time

	// dequeued is true when the call has left the queue. Publisher.mu guards it.
	dequeued bool
	seq      uint64
	slot     int // the slot of the first event of the call
	err      error
	done     chan struct{} // closed when seq, slot and err are set
}

// PublishOptions are the settings of one call of [Publisher.Publish].
type PublishOptions struct {
	// Trace is a W3C traceparent. Readers of the log get it with the events, so that the trace also
	// covers their work. An empty string disables tracing of the call.
	Trace string
}

// Result says where in the log the events of a call are.
type Result struct {
	// Position is the position of the envelope that contains the events.
	Position events.Position
	// Slot is the index of the call's first event in the envelope. The other events of the call
	// follow it.
	Slot int
	// EventIDs has one entry per event of the call: the event id that the client gave, or else a
	// name made of the event's sequence and slot.
	EventIDs []string
}

// NewPublisher returns a publisher for the log. The caller must close the publisher or the log;
// closing the log closes its publishers.
func (l *Log) NewPublisher(opt PublisherOptions) (*Publisher, error) {
	if opt.QueueBytes <= 0 {
		opt.QueueBytes = defaultQueueBytes
	}
	opt.QueueBytes = max(opt.QueueBytes, minQueueBytes)

	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{
		log:         l,
		opt:         opt,
		queueBudget: semaphore.NewWeighted(int64(opt.QueueBytes)),
		stop:        stop,
		stopped:     make(chan struct{}),
		wake:        make(chan struct{}, 1),

		retryFor:       retryFor,
		attemptTimeout: attemptTimeout,
	}

	if err := l.registerCloser(p); err != nil {
		stop()
		return nil, err
	}
	go p.run(ctx)
	return p, nil
}

// Dial connects to an existing log and returns a publisher for it. Closing the publisher closes the
// connection.
func Dial(ctx context.Context, cfg Config, opt PublisherOptions) (*Publisher, error) {
	// Dial creates a missing log only if URL is empty: an embedded log belongs to this process, so
	// no other process could have created it.
	l, err := openLog(ctx, cfg, cfg.URL == "")
	if err != nil {
		return nil, err
	}
	p, err := l.NewPublisher(opt) //nolint:contextcheck // it lives until it is closed, longer than this call
	if err != nil {
		return nil, errors.Join(err, l.Close(ctx))
	}
	p.ownsLog = true
	return p, nil
}

// Publish appends the events of one call atomically, and returns when the log has stored them on
// disk. A call has 1 to 1000 events and at most 768 KiB of encoded data. Event ids are optional,
// but without them a retry may store the events twice. Two events of one call that have the same
// acting user and kind must not have the same event id.
//
// The caller must have checked the events with [events.CheckCall]. Publish does not: it appends a
// malformed event, and every reader drops it (I11).
//
// After these errors nothing was stored: [events.ErrEnvelopeEmpty], [events.ErrEnvelopeTooLarge],
// [events.ErrOverloaded], [events.ErrLogFull], [events.ErrLogUnavailable], [events.ErrRefused],
// [events.ErrClosed], and the error of ctx. After [events.ErrOutcomeUnknown], which may wrap the
// error of ctx, the events may have been stored: retry with the same event ids.
func (p *Publisher) Publish(ctx context.Context, evs []*skeinv1.Event, opt PublishOptions) (Result, error) {
	encoded, err := events.EncodeCall(evs)
	if err != nil {
		return Result{}, err
	}

	c := &call{encoded: encoded, trace: opt.Trace, done: make(chan struct{})}
	if err := p.enqueue(ctx, c); err != nil {
		return Result{}, err
	}

	select {
	case <-c.done:
	case <-ctx.Done():
		if p.withdraw(c) {
			return Result{}, ctx.Err()
		}

		// The call has left the queue, so its events may be stored. Its result may have arrived at
		// the same time as the end of ctx.
		select {
		case <-c.done:
		default:
			return Result{}, fmt.Errorf("%w: %w", events.ErrOutcomeUnknown, ctx.Err())
		}
	}

	if c.err != nil {
		return Result{}, c.err
	}
	return Result{Position: p.log.Position(c.seq), Slot: c.slot, EventIDs: eventIDs(evs, c)}, nil
}

// eventIDs returns the id of each event, or its positionName if it has none.
func eventIDs(evs []*skeinv1.Event, c *call) []string {
	ids := make([]string, len(evs))
	for i, ev := range evs {
		if ids[i] = ev.GetEventId(); ids[i] == "" {
			ids[i] = positionName(c.seq, c.slot+i)
		}
	}
	return ids
}

// positionName returns a name for the event at a slot of an envelope: SEQUENCE-SLOT.
func positionName(seq uint64, slot int) string {
	b := strconv.AppendUint(make([]byte, 0, 24), seq, 10)
	return string(strconv.AppendInt(append(b, '-'), int64(slot), 10))
}

// cost returns the number of bytes that the call takes from the publisher's queueBudget.
func (c *call) cost() int64 { return int64(c.encoded.Bytes() + callOverhead) }

// enqueue appends the call to the queue. If the queue is full, it waits or fails with
// [events.ErrOverloaded], depending on FailWhenFull.
func (p *Publisher) enqueue(ctx context.Context, c *call) error {
	// Acquire may wait, so it comes before the lock.
	if p.opt.FailWhenFull {
		if !p.queueBudget.TryAcquire(c.cost()) {
			return fmt.Errorf("%w: %d bytes wait to be published", events.ErrOverloaded, p.opt.QueueBytes)
		}
	} else if err := p.queueBudget.Acquire(ctx, c.cost()); err != nil {
		return err
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.queueBudget.Release(c.cost())
		return events.ErrClosed
	}
	c.queuedAt = time.Now()
	p.queue = append(p.queue, c)
	p.wakeRun()
	return nil
}

// wakeRun tells run to look at the queue again.
func (p *Publisher) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// withdraw removes the call from the queue. It returns false if the call has already left the
// queue, because then its events may be stored.
func (p *Publisher) withdraw(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.dequeued {
		return false
	}
	p.queue = slices.DeleteFunc(p.queue, func(queued *call) bool { return queued == c })
	c.dequeued = true
	p.queueBudget.Release(c.cost())
	return true
}

// Close rejects new calls and waits until every queued call has its result. If ctx ends first,
// Close cancels the remaining calls, which then fail, and returns an error. Close also closes the
// log of a publisher that [Dial] has returned.
func (p *Publisher) Close(ctx context.Context) error {
	err := p.closeFromLog(ctx)
	if p.ownsLog {
		return errors.Join(err, p.log.Close(ctx))
	}
	return err
}

// acceptsEvents is part of closer.
func (p *Publisher) acceptsEvents() bool { return true }

// closeFromLog is part of closer. It is also the first part of Close.
func (p *Publisher) closeFromLog(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.wakeRun()
	p.mu.Unlock()
	defer p.log.unregisterCloser(p)
	defer p.stop()

	// run ends by itself when the queue is empty.
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
		p.stop()
		<-p.stopped
		return fmt.Errorf("eventlog: close the publisher: %w", ctx.Err())
	}
}
