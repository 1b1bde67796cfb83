package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/wait"
)

// askLogPeriod is the pause between two questions to a log that does not answer.
const askLogPeriod = time.Second

// hasArchivedLog reports whether a bucket holds an archive of a log. If it does, the stream of the
// log must exist ([eventlog.Config.Existing]).
func hasArchivedLog(ctx context.Context, b bucket.Bucket) (bool, error) {
	if b == nil {
		return false, nil
	}
	_, ok, err := archive.LogOf(ctx, b)
	return ok, err
}

// CheckArchiveEnd checks that the log continues where its archive ends. A log that does not, such
// as an old copy that was restored, would give new events sequences that the archive already has.
// CheckArchiveEnd waits while the log does not answer: a service that started without the check
// could accept such events.
func CheckArchiveEnd(ctx context.Context, log *eventlog.Log, a *archive.Archive, logger *slog.Logger) error {
	end := a.End()
	if end.Seq == 0 {
		return nil
	}
	for attempt := 0; ; attempt++ {
		err := log.CheckCursor(ctx, end)
		if isLogLost(err) {
			return fmt.Errorf("the log does not continue where its archive ends, at sequence %d: %w", end.Seq, err)
		}
		if !errors.Is(err, events.ErrLogUnavailable) {
			return nil // success, or an error that the archiver meets and reports too
		}

		if attempt == 0 {
			logger.Warn("the service does not start until the log answers whether it continues its archive", "error", err)
		}
		if err := wait.For(ctx, askLogPeriod); err != nil {
			return err
		}
	}
}

// isLogLost reports whether err says that the log is missing, is shorter than what was read of it
// before, or has a different past.
func isLogLost(err error) bool {
	return errors.Is(err, events.ErrNoLog) || errors.Is(err, events.ErrLogShorter) || errors.Is(err, events.ErrRewritten) ||
		errors.Is(err, events.ErrOtherEpoch)
}

// explainLostLog adds to the error of a lost log how to restore the log from its archive in b.
// Other errors are returned as they are.
func explainLostLog(err error, b bucket.Bucket) error {
	if b == nil || !isLogLost(err) {
		return err
	}
	return fmt.Errorf("%w\nThe log is archived in %s. Restore it with `skein replay archive restore`, which also reports which events "+
		"are missing", err, b)
}
