package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// callOverhead is charged for each waiting call beside its encoded events, so that the bound in bytes bounds
	// the number of calls too.
	callOverhead      = 1 << 10
	defaultQueueBytes = 64 << 20
	minQueueBytes     = 4 << 20
)

// PublisherOptions are the settings of a [Publisher]. The zero value is good.
type PublisherOptions struct {
	// QueueBytes bounds what waits for the log: encoded events and 1 KiB for each call. Default 64 MiB, at least 4.
	QueueBytes int
	// FailWhenFull makes Publish fail with [events.ErrOverloaded] when the queue is full, instead of waiting for room.
	FailWhenFull bool
	// Listener is called for every envelope.
	Listener PublisherListener
}

// PublisherListener holds functions that a publisher calls, one at a time and from its only goroutine. They must not block, because
// nothing is published meanwhile. Nil functions are not called.
type PublisherListener struct {
	// Appended is called when the outcome of an envelope is known.
	Appended func(AppendInfo)
}

// AppendInfo describes one envelope that was sent to the log.
type AppendInfo struct {
	// Calls and Events say what the envelope holds, Bytes is its encoded size.
	Calls, Events, Bytes int
	// Attempts counts how often the envelope was sent: 1 unless an attempt failed.
	Attempts int
	// Repeated is set if the log reported a duplicate: an earlier attempt had been stored although its answer was lost.
	Repeated bool
	// Latency is the time from the first attempt to the answer of the log, or to giving up.
	Latency time.Duration
	// Seq is the sequence that the log gave the envelope, if Err is nil.
	Seq uint64
	// Err says why the envelope was given up.
	Err error
}

// Publisher appends events to the log. Calls that arrive while the last append is under way go into the next
// envelope, each as a whole: the group commit. There is no timer, so on an idle system a call leaves at once.
// Its methods are safe for concurrent use.
type Publisher struct {
	log         *Log
	ownsLog     bool // the log was opened for this publisher alone
	opt         PublisherOptions
	queueBudget *semaphore.Weighted
	stop        context.CancelFunc // cancels the envelope in flight
	stopped     chan struct{}      // closed when the goroutine has ended

	retryFor, attemptTimeout time.Duration

	mu     sync.Mutex
	queue  []*call
	wake   chan struct{} // capacity 1: the queue or closed changed
	closed bool
}

// call is one Publish call that waits or is in flight.
type call struct {
	encoded  events.EncodedCall
	trace    string // of PublishOptions
	queuedAt time.Time

	taken bool // in an envelope: guarded by Publisher.mu
	seq   uint64
	slot  int // of its first event
	err   error
	done  chan struct{} // closed when seq, slot and err are set
}

// PublishOptions are the settings of one call of [Publisher.Publish].
type PublishOptions struct {
	// Trace is a W3C traceparent that is passed on to the readers of the log, so that a trace covers the folds too. Empty disables
	// it.
	Trace string
}

// Result says where the log has the events of a call.
type Result struct {
	// Position contains the events.
	Position events.Position
	// Slot is that of the first event in the envelope at the position. The others follow it.
	Slot int
	// EventIDs has an entry for each event of the call: the client's event id, or, where there is none, a name for
	// the event's position in the log.
	EventIDs []string
}

// NewPublisher returns a publisher of the log. It must be closed, before the log or by closing the log.
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

		retryFor: retryFor, attemptTimeout: attemptTimeout,
	}
	if err := l.adopt(p); err != nil {
		stop()
		return nil, err
	}
	go p.run(ctx)
	return p, nil
}

// Dial connects to an existing log, to publish only. Closing the publisher closes the connection.
func Dial(ctx context.Context, cfg Config, opt PublisherOptions) (*Publisher, error) {
	l, err := open(ctx, cfg, cfg.URL == "")
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

// Publish appends the events of a call, 1 to 1000 and at most 768 KiB encoded, as one atomic fact, and returns
// when the log has them on disk. Events without an event id are as good, but a retry may then double them. Two events of one
// call, of the same acting user and kind, must not have the same event id.
//
// The events must have passed [events.CheckCall]. One that has not is appended all the same, and dropped by every reader (I11).
//
// Errors: [events.ErrEnvelopeEmpty], [events.ErrEnvelopeTooLarge], [events.ErrOverloaded], [events.ErrLogFull],
// [events.ErrLogUnavailable], [events.ErrRefused], [events.ErrClosed], or the context's: nothing was taken.
// [events.ErrOutcomeUnknown], which may wrap the context's: retry with the same event ids.
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

// eventIDs returns the ids of the events, or names for those that have none.
func eventIDs(evs []*skeinv1.Event, c *call) []string {
	ids := make([]string, len(evs))
	for i, ev := range evs {
		if ids[i] = ev.GetEventId(); ids[i] == "" {
			ids[i] = positionName(c.seq, c.slot+i)
		}
	}
	return ids
}

// positionName names the position of an event in the log.
func positionName(seq uint64, slot int) string {
	b := strconv.AppendUint(make([]byte, 0, 24), seq, 10)
	return string(strconv.AppendInt(append(b, '-'), int64(slot), 10))
}

func (c *call) cost() int64 { return int64(c.encoded.Bytes() + callOverhead) }

// enqueue puts the call into the queue, when there is room.
func (p *Publisher) enqueue(ctx context.Context, c *call) error {
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

// wakeRun wakes the goroutine that publishes.
func (p *Publisher) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// withdraw removes a call from the queue. It returns false if the call is already in an envelope, whose outcome is then unknown to
// the caller.
func (p *Publisher) withdraw(c *call) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.taken {
		return false
	}
	for i, q := range p.queue {
		if q == c {
			p.queue = append(p.queue[:i], p.queue[i+1:]...)
			break
		}
	}
	c.taken = true
	p.queueBudget.Release(c.cost())
	return true
}

// Close stops intake and waits until the outcome of every accepted call is known. If the context ends first, the calls that still
// wait fail.
func (p *Publisher) Close(ctx context.Context) error {
	err := p.shut(ctx)
	if p.ownsLog {
		return errors.Join(err, p.log.Close(ctx))
	}
	return err
}

func (p *Publisher) intake() bool { return true }

func (p *Publisher) shut(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.wakeRun()
	p.mu.Unlock()
	defer p.log.disown(p)
	defer p.stop()
	select {
	case <-p.stopped:
		return nil
	case <-ctx.Done():
		p.stop()
		<-p.stopped
		return fmt.Errorf("eventlog: close the publisher: %w", ctx.Err())
	}
}
