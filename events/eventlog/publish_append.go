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
		calls := p.take(ctx)
		if calls == nil {
			return
		}
		err := p.publish(ctx, calls)
		for _, c := range calls {
			p.room.Release(c.cost())
			close(c.done)
		}
		if errors.Is(err, events.ErrOutcomeUnknown) || errors.Is(err, events.ErrLogUnavailable) {
			p.expire()
		}
	}
}

// take waits for calls and removes as many from the queue as fit into one envelope. It returns nil when the publisher is closed and
// the queue is empty.
func (p *Publisher) take(ctx context.Context) []*call {
	for {
		p.mu.Lock()
		if n := fit(p.queue); n > 0 {
			calls := make([]*call, n)
			copy(calls, p.queue)
			p.drop(n)
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

// fit returns how many calls from the start of a queue go into one envelope, whole.
func fit(queue []*call) int {
	var size events.EnvelopeSize
	for i, c := range queue {
		if !size.Add(&c.encoded) {
			return i
		}
	}
	return len(queue)
}

// drop removes the first n calls from the queue and marks them as taken.
func (p *Publisher) drop(n int) {
	for _, c := range p.queue[:n] {
		c.taken = true
	}
	rest := copy(p.queue, p.queue[n:])
	clear(p.queue[rest:])
	p.queue = p.queue[:rest]
}

// expire fails the calls that have waited for at least one attempt's timeout while an envelope failed. Retrying them envelope by
// envelope would let a long queue wait for a multiple of retryFor.
func (p *Publisher) expire() {
	p.mu.Lock()
	n := 0
	for n < len(p.queue) && time.Since(p.queue[n].since) >= p.attemptTimeout {
		n++
	}
	stale := append([]*call(nil), p.queue[:n]...)
	p.drop(n)
	p.mu.Unlock()
	for _, c := range stale {
		c.err = fmt.Errorf("%w: it did not answer for %v", events.ErrLogUnavailable, p.attemptTimeout)
		p.room.Release(c.cost())
		close(c.done)
	}
}

// publish makes one envelope of the calls, appends it and reports the outcome to each call.
func (p *Publisher) publish(ctx context.Context, calls []*call) error {
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
	p.append(ctx, data, calls, &info)
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

// append sends one envelope until its outcome is known, always with the same message id, so that the log stores it once. It gives
// up after less than half the stream's dedupe window: a message id that the stream has forgotten would be stored twice.
func (p *Publisher) append(ctx context.Context, data []byte, calls []*call, info *AppendInfo) {
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
			info.Err = outcome(last, mayHaveCommitted)
			return
		}
		ack, sent, err := p.attempt(ctx, msg, timeout)
		if sent {
			info.Attempts++
			timeout = min(2*timeout, p.attemptTimeout)
		}
		if err == nil {
			info.Seq, info.Repeated = ack.Sequence, ack.Duplicate
			return
		}
		mayHaveCommitted = mayHaveCommitted || sent && !refusal(err)
		if final(err) || refusal(err) && !passing(err) {
			info.Err = outcome(err, mayHaveCommitted)
			return
		}
		last = err
		p.rest(ctx, pause)
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			p.log.resumeNow(ctx)
		}
	}
}

// attempt sends an envelope once, on a connection on which the log was checked, and waits for the answer. sent
// reports whether the server may have got it.
func (p *Publisher) attempt(ctx context.Context, msg *nats.Msg, timeout time.Duration) (ack *jetstream.PubAck, sent bool, err error) {
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

// rest waits before the next attempt: a pause, or until the connection is up again.
func (p *Publisher) rest(ctx context.Context, pause time.Duration) {
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

// refusal reports whether the server said that it did not take the envelope.
func refusal(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) || errors.Is(err, events.ErrForbidden)
}

// passing tells a refusal that another attempt may overcome.
func passing(err error) bool {
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

// outcome words the end of an envelope for its callers. Once an attempt may have been stored although its answer was lost, a later
// refusal proves nothing: the attempt may still be on its way.
func outcome(err error, mayHaveCommitted bool) error {
	api := apiError(err)
	switch {
	case mayHaveCommitted:
		return fmt.Errorf("%w: %w", events.ErrOutcomeUnknown, err)
	case errors.Is(err, events.ErrClosed), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, context.Canceled):
		return events.ErrClosed
	case final(err):
		return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
	case api.ErrorCode == errCodeStoreFailed, api.ErrorCode == errCodeAccountFull,
		api.ErrorCode == errCodeStorageFull, api.ErrorCode == errCodeResources:
		return fmt.Errorf("%w: archive and trim it, or raise its bound: %w", events.ErrLogFull, err)
	case refusal(err) && !passing(err):
		return fmt.Errorf("%w: %w", events.ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}
