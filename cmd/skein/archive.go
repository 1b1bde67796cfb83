package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/events/wait"
)

const (
	// archiveDir is where the archive of the log is below the data directory, unless another place is named.
	archiveDir = "archive"
	// archiveOff is the target that is none.
	archiveOff = "off"
)

// archiveFlags say where the archive of the log is.
type archiveFlags struct {
	Archive string `help:"Archive of the log: directory (DATA/archive), s3://BUCKET/PREFIX, or off (with --nats)." placeholder:"TARGET"`
}

// open returns the bucket of the archive of a data directory; nil: there is to be none. The log is external with --nats.
func (f *archiveFlags) open(ctx context.Context, dir string, external bool) (bucket.Bucket, error) {
	target := f.Archive
	switch {
	case target == archiveOff, target == "" && external:
		return nil, nil
	case target == "":
		target = filepath.Join(dir, archiveDir)
	}
	b, err := bucket.Open(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	return b, nil
}

// past has the log of a data directory read its archive, and returns it; nil: there is none.
func (f *archiveFlags) past(ctx context.Context, dir string, log *eventlog.Log) (*archive.Archive, error) {
	if f.Archive == "" {
		if _, err := os.Stat(filepath.Join(dir, archiveDir)); errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // to open it would make it
		}
	}
	b, err := f.open(ctx, dir, false)
	if b == nil || err != nil {
		return nil, err
	}
	past, err := archive.Open(ctx, b, log.ID())
	if err != nil {
		return nil, fmt.Errorf("--archive: %w", err)
	}
	log.SetPast(past)
	return past, nil
}

// archived reports whether a bucket holds some of a log: then there must be a stream, for [events.Config.Existing].
func archived(ctx context.Context, b bucket.Bucket) (bool, error) {
	if b == nil {
		return false, nil
	}
	_, ok, err := archive.LogOf(ctx, b)
	return ok, err
}

// fits checks that the log goes on where its archive ends. What is published into one that does not, as a copy of earlier, would
// stand at sequences that the archive has already. It waits while the log does not answer, since a service that starts without
// having checked would take such events.
func fits(ctx context.Context, log *eventlog.Log, a *archive.Archive, logger *slog.Logger) error {
	end := a.End()
	if end.Seq == 0 {
		return nil
	}
	for asked := 0; ; asked++ {
		err := log.CheckCursor(ctx, end)
		for _, forked := range []error{events.ErrNoLog, events.ErrLogShorter, events.ErrRewritten, events.ErrOtherEpoch} {
			if errors.Is(err, forked) {
				return fmt.Errorf("the log does not go on where its archive ends, at sequence %d: %w", end.Seq, err)
			}
		}
		if !errors.Is(err, events.ErrLogUnavailable) {
			return nil // whatever else there is, the archiver reports
		}
		if asked == 0 {
			logger.Warn("the start waits until the log says whether it goes on where its archive ends", "error", err)
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// lostLog says what to do when the log is not there, or not what its archive goes on with.
func lostLog(err error, b bucket.Bucket) error {
	for _, lost := range []error{events.ErrNoLog, events.ErrLogShorter, events.ErrRewritten, events.ErrOtherEpoch} {
		if b != nil && errors.Is(err, lost) {
			return fmt.Errorf("%w\nThe log is archived in %s: `skein replay archive restore` makes it again from there, and says what "+
				"is missing", err, b)
		}
	}
	return err
}
