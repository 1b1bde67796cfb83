package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Retire deletes the stream of a log, with all that it holds, so that the log can be restored from its archive ([Restore]). Publishers
// wait meanwhile. take must copy everything up to the given sequence, the last one; if it fails, the log stays as it was. A crash leaves
// a paused log, and the next process that opens it or publishes to it resumes it.
func (l *Log) Retire(ctx context.Context, take func(ctx context.Context, last uint64) error) (err error) {
	if !l.switching.TryLock() {
		return fmt.Errorf("%w: another one is being begun", ErrEpochNotBegun)
	}
	defer l.switching.Unlock()

	until := time.Now().Add(maxPause)
	within, cancel := context.WithDeadline(ctx, until.Add(-2*spread))
	defer cancel()
	if err := l.pause(within, until); err != nil {
		return fmt.Errorf("eventlog: pause the stream: %w", err)
	}

	last, err := l.pausedHead(within)
	if err == nil {
		err = take(within, last)
	}
	if err != nil {
		resuming, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxPause)
		defer cancel()
		return errors.Join(err, l.unpause(resuming))
	}

	err = l.ask(within, func(ctx context.Context) error { return l.link.js.DeleteStream(ctx, StreamName) }, askDelete)
	if errors.Is(err, jetstream.ErrStreamNotFound) { // the answer to an earlier attempt was lost
		return nil
	}
	return unavailable(err)
}
