package client

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/wait"
)

const (
	// retryFor is for how long a call is tried again, or a stream continued.
	retryFor     = 30 * time.Second
	firstDelay   = 50 * time.Millisecond
	longestDelay = 2 * time.Second
)

// tries bounds the tries of one call.
type tries struct {
	retryFor time.Duration
	end      time.Time
	n        int
}

// newTries returns tries for a time: 0 means the default, less means once.
func newTries(d time.Duration) *tries {
	if d == 0 {
		d = retryFor
	}
	t := &tries{retryFor: d}
	t.reset()
	return t
}

// reset begins anew, after progress.
func (t *tries) reset() { t.n, t.end = 0, time.Now().Add(t.retryFor) }

// again waits until the call may be made again. It returns the error of the call if that makes no sense or the time is up, and why the
// context ended if it did.
func (t *tries) again(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	after, ok := retryable(err)
	if !ok {
		return err
	}
	backoff := min(firstDelay<<min(t.n, 16), longestDelay)
	t.n++
	delay := max(after, backoff/2+rand.N(backoff/2))
	if time.Now().Add(delay).After(t.end) {
		return err
	}
	if wait.For(ctx, delay) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// retryable reports after how long the same call may succeed. The service says so in its errors. Of what came from elsewhere the code
// says it: no connection, no answer in time, or an answer that was interrupted, which Connect calls internal in the middle of a message.
func retryable(err error) (after time.Duration, ok bool) {
	if Reason(err) != "" {
		return RetryDelay(err)
	}
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown:
		return 0, true
	case connect.CodeInternal:
		return 0, !connect.IsWireError(err)
	}
	return 0, false
}
