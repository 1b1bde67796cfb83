package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/skein-feed/skein/events"
)

const (
	// attemptTimeout bounds the wait for one acknowledgement. An fsync takes milliseconds; a server whose disk failed
	// never answers.
	attemptTimeout = 5 * time.Second
	// firstAttempt bounds the first wait; each later one is twice as long, up to attemptTimeout. It is short because a leader that
	// stops at the wrong moment never answers either, and its successor is elected within a second.
	firstAttempt = time.Second
	// firstPause and lastPause between attempts while the connection is up.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// run publishes until the publisher is closed and the queue is empty. There is one envelope in flight at a time:
// that keeps the order of calls through every retry, and costs nothing, because the log takes one after the other
// and its fsync is what takes the time.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.stopped)
	for {
		calls := p.takeCalls(ctx)
		if calls == nil {
			return
		}
		err := p.publishEnvelope(ctx, calls)
		for _, c := range calls {
			p.queueBudget.Release(c.cost())
			close(c.done)
		}
		if errors.Is(err, events.ErrOutcomeUnknown) || errors.Is(err, events.ErrLogUnavailable) {
			p.failStaleCalls()
		}
	}
}

// takeCalls waits for calls and removes as many from the queue as fit into one envelope. It returns nil when the publisher is closed and
// the queue is empty.
func (p *Publisher) takeCalls(ctx context.Context) []*call {
	for {
		p.mu.Lock()
		if n := countFitting(p.queue); n > 0 {
			calls := make([]*call, n)
			copy(calls, p.queue)
			p.removeFirst(n)
			p.mu.Unlock()
			return calls
		}
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return nil
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// countFitting returns how many calls from the start of a queue go into one envelope, whole.
func countFitting(queue []*call) int {
	var size events.EnvelopeSize
	for i, c := range queue {
		if !size.Add(&c.encoded) {
			return i
		}
	}
	return len(queue)
}

// removeFirst removes the first n calls from the queue and marks them as taken.
func (p *Publisher) removeFirst(n int) {
	for _, c := range p.queue[:n] {
		c.taken = true
	}
	rest := copy(p.queue, p.queue[n:])
	clear(p.queue[rest:])
	p.queue = p.queue[:rest]
}

// failStaleCalls fails the calls that have waited for at least one attempt's timeout while an envelope failed. Retrying them envelope by
// envelope would let a long queue wait for a multiple of retryFor.
func (p *Publisher) failStaleCalls() {
	p.mu.Lock()
	n := 0
	for n < len(p.queue) && time.Since(p.queue[n].queuedAt) >= p.attemptTimeout {
		n++
	}
	stale := append([]*call(nil), p.queue[:n]...)
	p.removeFirst(n)
	p.mu.Unlock()
	for _, c := range stale {
		c.err = fmt.Errorf("%w: it did not answer for %v", events.ErrLogUnavailable, p.attemptTimeout)
		p.queueBudget.Release(c.cost())
		close(c.done)
	}
}

// publishEnvelope makes one envelope of the calls, appends it and reports the outcome to each call.
func (p *Publisher) publishEnvelope(ctx context.Context, calls []*call) error {
	info := AppendInfo{Calls: len(calls)}
	encoded := make([]*events.EncodedCall, len(calls))
	for i, c := range calls {
		c.slot = info.Events
		info.Events += c.encoded.Events
		encoded[i] = &c.encoded
	}
	data := events.JoinCalls(encoded...)
	info.Bytes = len(data)
	start := time.Now()
	p.appendWithRetries(ctx, data, calls, &info)
	info.Latency = time.Since(start)
	if info.Err == nil {
		p.log.noteLast(info.Seq)
	}
	for _, c := range calls {
		c.seq, c.err = info.Seq, info.Err
	}
	if told := p.opt.Listener.Appended; told != nil {
		told(info)
	}
	return info.Err
}

// appendWithRetries sends one envelope until its outcome is known, always with the same message id, so that the log stores it once. It gives
// up after less than half the stream's dedupe window: a message id that the stream has forgotten would be stored twice.
func (p *Publisher) appendWithRetries(ctx context.Context, data []byte, calls []*call, info *AppendInfo) {
	ctx, cancel := context.WithTimeout(ctx, p.retryFor)
	defer cancel()
	msg := &nats.Msg{Subject: Subject, Data: data, Header: nats.Header{
		jetstream.MsgIDHeader:          {nuid.Next()},
		jetstream.ExpectedStreamHeader: {StreamName},
	}}
	addTraces(msg.Header, calls)
	mayHaveCommitted := false
	var last error
	timeout := min(firstAttempt, p.attemptTimeout)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := ctx.Err(); err != nil {
			if last == nil || errors.Is(err, context.Canceled) {
				last = err
			}
			info.Err = publishError(last, mayHaveCommitted)
			return
		}
		ack, sent, err := p.sendOnce(ctx, msg, timeout)
		if sent {
			info.Attempts++
			timeout = min(2*timeout, p.attemptTimeout)
		}
		if err == nil {
			info.Seq, info.Repeated = ack.Sequence, ack.Duplicate
			return
		}
		mayHaveCommitted = mayHaveCommitted || sent && !rejectedBy(err)
		if isTerminal(err) || rejectedBy(err) && !isRetryable(err) {
			info.Err = publishError(err, mayHaveCommitted)
			return
		}
		last = err
		p.waitBeforeRetry(ctx, pause)
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			p.log.resumeNow(ctx)
		}
	}
}

// sendOnce sends an envelope once, on a connection on which the log was checked, and waits for the answer. sent
// reports whether the server may have got it.
func (p *Publisher) sendOnce(ctx context.Context, msg *nats.Msg, timeout time.Duration) (ack *jetstream.PubAck, sent bool, err error) {
	state, err := p.log.verify(ctx)
	if err != nil {
		return nil, false, err
	}
	err = p.log.link.during(ctx, state, timeout, func(ctx context.Context) (err error) {
		ack, err = p.log.link.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
		return err
	}, Subject)
	for _, before := range []error{
		nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrMaxPayload, nats.ErrConnectionDraining,
		jetstream.ErrNoStreamResponse,
	} {
		if errors.Is(err, before) {
			return nil, false, err
		}
	}
	return ack, true, err
}

// waitBeforeRetry waits before the next attempt: a pause, or until the connection is up again.
func (p *Publisher) waitBeforeRetry(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	state := p.log.link.state()
	if !state.up {
		// attempt waits for the connection, which may be long in coming.
		return
	}
	select {
	case <-timer.C:
	case <-state.ctx.Done():
	case <-ctx.Done():
	}
}

// rejectedBy reports whether the server said that it did not take the envelope.
func rejectedBy(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, events.ErrForbidden)
}

// isRetryable tells a refusal that another attempt may overcome.
func isRetryable(err error) bool {
	switch api := apiError(err); api.ErrorCode {
	case errCodeDuplicateInWork:
		return true // an earlier attempt is being replicated
	case errCodeStoreFailed, errCodeResources, errCodeAccountFull, errCodeStorageFull:
		return false
	default:
		// No leader at the moment, too much at once, and the like.
		return api.Code == 503 || api.Code == 429 || api.ErrorCode == errCodeNotLeader
	}
}

// publishError words the end of an envelope for its callers. Once an attempt may have been stored although its answer was lost, a later
// refusal proves nothing: the attempt may still be on its way.
func publishError(err error, mayHaveCommitted bool) error {
	api := apiError(err)
	switch {
	case mayHaveCommitted:
		return fmt.Errorf("%w: %w", events.ErrOutcomeUnknown, err)
	case errors.Is(err, events.ErrClosed), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, context.Canceled):
		return events.ErrClosed
	case isTerminal(err):
		return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
	case api.ErrorCode == errCodeStoreFailed, api.ErrorCode == errCodeAccountFull,
		api.ErrorCode == errCodeStorageFull, api.ErrorCode == errCodeResources:
		return fmt.Errorf("%w: archive and trim it, or raise its bound: %w", events.ErrLogFull, err)
	case rejectedBy(err) && !isRetryable(err):
		return fmt.Errorf("%w: %w", events.ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}
