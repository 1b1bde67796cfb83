package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// DeleteStream deletes the stream of a log, with everything that it holds, so that the log can be
// restored from its archive ([Restore]). Publishers wait meanwhile. archive must copy everything up
// to the given sequence, the last one, to the archive. If archive fails, the log stays as it was. A
// crash leaves a paused log, and the next process that opens it or publishes to it resumes it.
func (l *Log) DeleteStream(ctx context.Context, archive func(ctx context.Context, last uint64) error) (err error) {
	if !l.reconfigureMu.TryLock() {
		return fmt.Errorf("%w: another one is being begun", ErrEpochNotBegun)
	}
	defer l.reconfigureMu.Unlock()

	pauseCtx, cancel, pause, err := l.pauseForWork(ctx)
	if err != nil {
		return fmt.Errorf("eventlog: pause the stream: %w", err)
	}
	defer cancel()

	last, err := l.settledHead(pauseCtx)
	if err == nil {
		err = archive(pauseCtx, last)
	}
	if err != nil {
		resumeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxPause)
		defer cancel()
		return errors.Join(err, l.unpauseStream(resumeCtx, pause))
	}

	err = l.requestWithRetries(pauseCtx, func(ctx context.Context) error {
		return l.conn.js.DeleteStream(ctx, StreamName)
	}, streamDeleteSubject)
	if errors.Is(err, jetstream.ErrStreamNotFound) { // the answer to an earlier attempt was lost
		return nil
	}
	return wrapUnavailable(err)
}
