package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/skein-feed/skein/events"
)

// mismatchError returns an [events.ErrStreamMismatch] that lists the differences.
func mismatchError(diffs []string) error {
	return fmt.Errorf("%w: stream %s: %s", events.ErrStreamMismatch, StreamName, strings.Join(diffs, "; "))
}

// wrapUnavailable wraps an error of the connection or the server as [events.ErrLogUnavailable]. It
// returns nil and the errors of a context unchanged.
func wrapUnavailable(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w: %w", events.ErrLogUnavailable, err)
}

// isTerminal reports whether an error means that the log is not the one that the reader expects, so
// that waiting cannot help. All other errors are retried.
func isTerminal(err error) bool {
	for _, target := range []error{
		events.ErrOtherLog, events.ErrOtherEpoch, events.ErrLogShorter, events.ErrRewritten, events.ErrTrimmed, events.ErrNoLog,
		events.ErrSequenceOrder, events.ErrClosed, events.ErrArchiveDamaged,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
