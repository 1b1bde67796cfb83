package archiver

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

// StreamCheck says what is known of a stream and its archive.
type StreamCheck struct {
	// Wrong says why the log cannot continue with the stream; nil means that it can.
	Wrong error
	// Epoch is the epoch of the stream, and Last the highest sequence that it knows of. Both are 0
	// if the stream cannot be opened or does not belong to the archive.
	Epoch uint32
	Last  uint64
	// Lost are the sequences after the end of the archive that cannot be read.
	Lost []eventlog.SeqRange
}

// CheckStream reads what a stream has after the end of its archive, and reports whether the log can
// continue with the two. If the stream is embedded, no other process may have it open; otherwise
// CheckStream returns [events.ErrLocked].
//
// Wrong is an [ErrSuperseded] if the archive has continued without the stream, an
// [ErrArchiveBehind] if the stream has continued without the archive, an [events.ErrOtherLog] if
// they do not belong together, and an [events.ErrNoLog] if there is no stream.
func CheckStream(ctx context.Context, b bucket.Bucket, cfg eventlog.Config) (x StreamCheck, err error) {
	a, err := openArchive(ctx, b)
	if err != nil {
		return x, err
	}
	log, err := openDamaged(ctx, a, cfg)
	switch {
	case errors.Is(err, events.ErrLocked), ctx.Err() != nil:
		return x, errors.Join(err, ctx.Err())
	case err != nil:
		x.Wrong = err
		return x, nil
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()

	head, err := log.Head(ctx)
	if err != nil {
		return x, err
	}
	x.Epoch = log.Epoch()
	x.Last = head.Last

	// Read everything after the archive, but use nothing of it.
	report, err := log.Salvage(ctx, a.End(), nil, func([]*events.Envelope) error { return nil })
	if ctx.Err() != nil {
		return x, ctx.Err()
	}
	x.Lost = report.Lost

	switch {
	case err != nil:
		x.Wrong = err
	case len(x.Lost) > 0:
		x.Wrong = fmt.Errorf("archiver: the stream cannot be read at sequences %s", Ranges(x.Lost))
	default:
		x.Wrong = log.CheckCursor(ctx, a.End())
	}
	return x, nil
}
