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
	// Problem says why the log cannot continue with the stream; nil means that it can.
	Problem error
	// Epoch is the epoch of the stream, and Last the highest sequence that it knows of. Both are 0
	// if the stream cannot be opened or does not belong to the archive.
	Epoch uint32
	Last  uint64
	// Lost are the sequences after the end of the archive that cannot be read.
	Lost []eventlog.SeqRange
}

// CheckStream reads what a stream has after the end of its archive, and reports whether the log can
// continue with the two. If the stream is embedded, no other process may have it open; otherwise
// CheckStream returns [events.ErrLocked]. If the log does not answer while it is read, CheckStream
// returns [events.ErrLogUnavailable].
//
// Problem is an [ErrSuperseded] if the archive has continued without the stream, an
// [ErrArchiveBehind] if the stream has continued without the archive, an [events.ErrOtherLog] if
// they do not belong together, and an [events.ErrNoLog] if there is no stream.
func CheckStream(ctx context.Context, b bucket.Bucket, cfg eventlog.Config) (check StreamCheck, err error) {
	a, err := openArchive(ctx, b)
	if err != nil {
		return check, err
	}
	log, err := openDamaged(ctx, a, cfg)
	switch {
	case errors.Is(err, events.ErrLocked), ctx.Err() != nil:
		// This says nothing about the stream itself.
		return check, errors.Join(err, ctx.Err())
	case err != nil:
		check.Problem = err
		return check, nil
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()

	head, err := log.Head(ctx)
	if err != nil {
		return check, err
	}
	check.Epoch = log.Epoch()
	check.Last = head.Last

	// Read everything after the archive, but use nothing of it.
	report, err := log.Salvage(ctx, a.End(), nil, func([]*events.Envelope) error { return nil })
	check.Lost = report.Lost
	if err == nil && len(check.Lost) > 0 {
		err = fmt.Errorf("archiver: the stream cannot be read at sequences %s", FormatRanges(check.Lost))
	}
	if err == nil {
		err = log.CheckCursor(ctx, a.End())
	}
	if ctx.Err() != nil || errors.Is(err, events.ErrLogUnavailable) {
		return check, errors.Join(err, ctx.Err()) // says nothing about the stream either
	}
	check.Problem = err
	return check, nil
}
