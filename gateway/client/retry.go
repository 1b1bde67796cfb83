package client

import (
	"context"
	"math/rand/v2"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/events/wait"
)

const (
	// defaultRetryFor is how long a call is retried, or a broken stream is opened again, if the
	// options do not say.
	defaultRetryFor = 30 * time.Second
	// The delay before a retry doubles from minRetryDelay to maxRetryDelay.
	minRetryDelay = 50 * time.Millisecond
	maxRetryDelay = 2 * time.Second
)

// retrier decides whether and when one call is retried.
type retrier struct {
	retryFor time.Duration
	end      time.Time
	attempts int // that failed since the last reset
}

// newRetrier returns a retrier that retries for the given time. 0 means defaultRetryFor, and a
// negative time means that there is no retry.
func newRetrier(retryFor time.Duration) *retrier {
	if retryFor == 0 {
		retryFor = defaultRetryFor
	}
	r := &retrier{retryFor: retryFor}
	r.reset()
	return r
}

// reset starts the time and the delays anew. A stream calls it when it has received a message.
func (r *retrier) reset() {
	r.attempts = 0
	r.end = time.Now().Add(r.retryFor)
}

// wait waits until a call that failed with err should be retried. It returns err if a retry cannot
// succeed or the time is up, and the cause of the context if that has ended.
func (r *retrier) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	serviceDelay, ok := isRetryable(err)
	if !ok {
		return err
	}
	backoff := min(minRetryDelay<<min(r.attempts, 16), maxRetryDelay)
	r.attempts++
	// A random part keeps many clients from retrying at the same moment.
	delay := max(serviceDelay, backoff/2+rand.N(backoff/2))
	if time.Now().Add(delay).After(r.end) {
		return err
	}
	if wait.For(ctx, delay) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// isRetryable reports whether the same call may succeed after the returned delay.
func isRetryable(err error) (delay time.Duration, ok bool) {
	// Errors of the service say so themselves.
	if Reason(err) != "" {
		return RetryDelay(err)
	}
	// Other errors come from a proxy or from the connection. Connect reports an answer that was
	// interrupted in the middle of a message as internal.
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeUnknown:
		return 0, true
	case connect.CodeInternal:
		return 0, !connect.IsWireError(err)
	}
	return 0, false
}
