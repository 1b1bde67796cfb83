package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/skein-feed/skein/events"
)

const (
	// attemptTimeout is the longest wait for one acknowledgement. An fsync takes milliseconds, but
	// a server whose disk has failed never answers.
	attemptTimeout = 5 * time.Second
	// firstAttempt is the wait for the first acknowledgement. Each later wait is twice as long, up
	// to attemptTimeout. The first wait is short because a leader that stops at the wrong moment
	// never answers, and its successor is elected within a second.
	firstAttempt = time.Second
	// firstPause is the pause before the second attempt while the connection is up. Each later
	// pause is twice as long, up to lastPause.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

// run publishes until the publisher is closed and the queue is empty, or until ctx ends.
//
// Only one envelope is in flight at a time, which keeps the calls in order through every retry.
// This costs no throughput: the log stores one envelope after the other, and the time goes into its
// fsync.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.stopped)
	for {
		calls := p.takeCalls(ctx)
		if calls == nil {
			return
		}

		// The budget is released only after the append, so QueueBytes also limits what is in
		// flight.
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

// takeCalls waits until the queue has calls, and removes as many of them as fit into one envelope.
// It returns nil when the queue is empty and either the publisher is closed or ctx has ended.
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

// countFitting returns how many whole calls from the start of the queue fit into one envelope.
func countFitting(queue []*call) int {
	var size events.EnvelopeSize
	for i, c := range queue {
		if !size.Add(&c.encoded) {
			return i
		}
	}
	return len(queue)
}

// removeFirst removes the first n calls from the queue and marks them as taken. The caller holds
// p.mu.
func (p *Publisher) removeFirst(n int) {
	for _, c := range p.queue[:n] {
		c.dequeued = true
	}
	// Delete keeps the memory of the slice and clears its unused end, which releases the removed
	// calls.
	p.queue = slices.Delete(p.queue, 0, n)
}

// failStaleCalls fails the calls that have been queued for at least attemptTimeout. run calls it
// after an envelope has failed: if every later envelope were retried in full too, a call in a long
// queue would wait for a multiple of retryFor.
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

// publishEnvelope joins the calls into one envelope, appends it to the log, and sets the result of
// each call. It returns the error that the calls got.
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
		p.log.raiseLastKnownSeq(info.Seq)
	}
	for _, c := range calls {
		c.seq = info.Seq
		c.err = info.Err
	}
	if appended := p.opt.Listener.Appended; appended != nil {
		appended(info)
	}
	return info.Err
}

// appendWithRetries sends one envelope until the log has stored or rejected it, or until retryFor
// has passed, and writes the result to info. Every attempt has the same message id, so the log
// stores the envelope at most once. retryFor is less than half of the stream's dedupe window,
// because the stream would store a message again after it has forgotten the id.
func (p *Publisher) appendWithRetries(ctx context.Context, data []byte, calls []*call, info *AppendInfo) {
	ctx, cancel := context.WithTimeout(ctx, p.retryFor)
	defer cancel()

	msg := &nats.Msg{Subject: Subject, Data: data, Header: nats.Header{
		jetstream.MsgIDHeader:          {nuid.Next()},
		jetstream.ExpectedStreamHeader: {StreamName},
	}}
	addTraces(msg.Header, calls)

	// mayHaveCommitted is true once an attempt may have been stored although its acknowledgement
	// did not arrive.
	mayHaveCommitted := false
	var lastErr error
	timeout := min(firstAttempt, p.attemptTimeout)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := ctx.Err(); err != nil {
			// The error of the last attempt says more than the deadline does. A cancellation
			// replaces that error, because it means that the publisher is being closed.
			if lastErr == nil || errors.Is(err, context.Canceled) {
				lastErr = err
			}
			info.Err = publishError(lastErr, mayHaveCommitted)
			return
		}

		ack, sent, err := p.sendOnce(ctx, msg, timeout)
		if sent {
			info.Attempts++
			timeout = min(2*timeout, p.attemptTimeout)
		}
		if err == nil {
			info.Seq = ack.Sequence
			info.Repeated = ack.Duplicate
			return
		}

		mayHaveCommitted = mayHaveCommitted || sent && !rejectedBy(err)
		if isTerminal(err) || rejectedBy(err) && !isRetryable(err) {
			info.Err = publishError(err, mayHaveCommitted)
			return
		}

		lastErr = err
		p.waitBeforeRetry(ctx, pause)
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			// No stream listens on the subject. A process that crashed while it began an epoch may
			// have left the stream paused.
			p.log.tryUnpauseAbandoned(ctx)
		}
	}
}

// sendOnce sends the envelope once and waits up to timeout for the acknowledgement. Before it
// sends, it checks that the connection leads to the same log. sent reports whether the server may
// have received the envelope.
func (p *Publisher) sendOnce(
	ctx context.Context, msg *nats.Msg, timeout time.Duration,
) (ack *jetstream.PubAck, sent bool, err error) {
	state, err := p.log.waitUntilVerified(ctx)
	if err != nil {
		return nil, false, err
	}
	err = p.log.conn.request(ctx, state, timeout, func(ctx context.Context) (err error) {
		ack, err = p.log.conn.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
		return err
	}, Subject)

	// With these errors the envelope did not reach the stream.
	for _, notSent := range []error{
		nats.ErrReconnectBufExceeded, nats.ErrConnectionClosed, nats.ErrMaxPayload, nats.ErrConnectionDraining,
		jetstream.ErrNoStreamResponse,
	} {
		if errors.Is(err, notSent) {
			return nil, false, err
		}
	}
	return ack, true, err
}

// waitBeforeRetry waits for the pause, or less if the connection changes or ctx ends. It returns at
// once while the connection is down.
func (p *Publisher) waitBeforeRetry(ctx context.Context, pause time.Duration) {
	state := p.log.conn.state()
	if !state.up {
		return // sendOnce waits for the connection
	}

	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-state.ctx.Done():
	case <-ctx.Done():
	}
}

// rejectedBy reports whether err is an answer of the server that says that it did not store the
// envelope.
func rejectedBy(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, events.ErrForbidden)
}

// isRetryable reports whether the server may accept the envelope that it rejected with err when it
// is sent again.
func isRetryable(err error) bool {
	switch api := apiError(err); api.ErrorCode {
	case errCodeDuplicateInWork:
		return true // an earlier attempt is being replicated
	case errCodeStoreFailed, errCodeResources, errCodeAccountFull, errCodeStorageFull:
		return false
	default:
		// The stream has no leader at the moment, or the server has too many requests.
		return api.Code == 503 || api.Code == 429 || api.ErrorCode == errCodeNotLeader
	}
}

// publishError turns the error of the last attempt into the error that the callers get. If
// mayHaveCommitted is set, the callers get [events.ErrOutcomeUnknown] even if the server rejected
// the last attempt, because an earlier attempt may still be on its way.
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
