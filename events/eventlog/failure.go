package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
)

// mismatch makes an ErrStreamMismatch of the differences.
func mismatch(diffs []string) error {
	return fmt.Errorf("%w: stream %s: %s", events.ErrStreamMismatch, StreamName, strings.Join(diffs, "; "))
}

// unavailable marks an error of the connection or the server, but leaves the end of a context as it is.
func unavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}

// isTerminal reports whether an error means that the log is not the one that the reader expects. Waiting cannot help then; every other
// error is retried.
func isTerminal(err error) bool {
	for _, target := range []error{
		events.ErrOtherLog, events.ErrOtherEpoch, events.ErrLogShorter, events.ErrRewritten, events.ErrTrimmed, events.ErrNoLog,
		events.ErrNotRising, events.ErrClosed,
		events.ErrArchiveDamaged,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
