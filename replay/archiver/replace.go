package archiver

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/eventlog"
)

// replaceStream archives what the damaged stream has, and then deletes the stream, at the place
// where the new one is to be made. It deletes only a stream that belongs to the archive. From a
// stream of an earlier epoch it archives nothing, because that stream was restored before.
func (r *Restored) replaceStream(ctx context.Context, a *archive.Archive, cfg eventlog.Config) error {
	cfg.Existing = true
	err := r.archiveDamaged(ctx, a, &cfg)
	switch {
	case err != nil:
		return err
	case errors.Is(r.Unreadable, events.ErrNoLog):
		r.Unreadable = nil
		return nil
	case r.Unreadable != nil && !errors.Is(r.Unreadable, ErrSuperseded):
		return fmt.Errorf("the stream is left as it is: %w", r.Unreadable)
	}

	log, err := eventlog.Open(ctx, cfg)
	if err != nil {
		return err
	}
	log.SetArchive(a)
	if log.ID() != a.End().Log {
		err = fmt.Errorf("%w: the stream is of log %x", events.ErrOtherLog, log.ID())
	} else {
		// A service that still runs may have published since the stream was read. DeleteStream
		// makes publishers wait, so that what remains can be archived before the stream is gone.
		err = log.DeleteStream(ctx, func(ctx context.Context, last uint64) error { return r.archiveSinceReading(ctx, a, log, last) })
	}
	return errors.Join(err, log.Close(context.WithoutCancel(ctx)))
}

// archiveSinceReading archives the envelopes that a damaged stream has received since it was read,
// up to its last sequence.
func (r *Restored) archiveSinceReading(ctx context.Context, a *archive.Archive, log *eventlog.Log, last uint64) error {
	archivedUpTo := a.End().Seq
	if r.Salvaged == nil || last <= archivedUpTo {
		return nil
	}
	more, err := archiveRemaining(ctx, a, log)
	if err != nil {
		return err
	}

	// Combine the reports of the two readings.
	all := *r.Salvaged
	all.Envelopes += more.Envelopes
	all.Events += more.Events
	all.Lost = nil
	for _, lost := range r.Salvaged.Lost {
		if lost.From <= archivedUpTo { // sequences after that were read again
			all.Lost = append(all.Lost, lost)
		}
	}
	all.Lost = append(all.Lost, more.Lost...)
	all.Head = more.Head
	all.Repeats = more.Repeats
	r.Salvaged = &all
	return nil
}
