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

// archived reports whether a bucket has a part of a log. Then the stream must exist already ([events.Config.Existing]).
func hasArchivedLog(ctx context.Context, b bucket.Bucket) (bool, error) {
	if b == nil {
		return false, nil
	}
	_, ok, err := archive.LogOf(ctx, b)
	return ok, err
}

// CheckArchiveEnd checks that the log continues where its archive ends. A log that does not, such as a restored old copy, would give new
// events sequences that the archive has already. It waits while the log does not answer, since a service that starts without having
// checked would take such events.
func CheckArchiveEnd(ctx context.Context, log *eventlog.Log, a *archive.Archive, logger *slog.Logger) error {
	end := a.End()
	if end.Seq == 0 {
		return nil
	}
	for asked := 0; ; asked++ {
		err := log.CheckCursor(ctx, end)
		for _, forked := range []error{events.ErrNoLog, events.ErrLogShorter, events.ErrRewritten, events.ErrOtherEpoch} {
			if errors.Is(err, forked) {
				return fmt.Errorf("the log does not continue where its archive ends, at sequence %d: %w", end.Seq, err)
			}
		}
		if !errors.Is(err, events.ErrLogUnavailable) {
			return nil // the archiver reports other errors
		}
		if asked == 0 {
			logger.Warn("the start waits until the log says whether it continues where its archive ends", "error", err)
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// explainLostLog adds advice to the error of a log that is missing, or does not continue its archive.
func explainLostLog(err error, b bucket.Bucket) error {
	for _, lost := range []error{events.ErrNoLog, events.ErrLogShorter, events.ErrRewritten, events.ErrOtherEpoch} {
		if b != nil && errors.Is(err, lost) {
			return fmt.Errorf("%w\nThe log is archived in %s: `skein replay archive restore` makes it again from there, and says what "+
				"is missing", err, b)
		}
	}
	return err
}
