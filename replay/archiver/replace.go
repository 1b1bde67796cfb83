package archiver

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/eventlog"
)

// replace archives what the damaged stream has that stands where the new one is to be made, and deletes it: only then, and only
// the stream that belongs to the archive. One of an earlier epoch gives nothing; it was restored before.
func (r *Restored) replace(ctx context.Context, a *archive.Archive, cfg eventlog.Config) error {
	cfg.Existing = true
	err := r.takeDamaged(ctx, a, &cfg)
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
		err = log.Retire(ctx, func(ctx context.Context, last uint64) error { return r.takeRest(ctx, a, log, last) })
	}
	return errors.Join(err, log.Close(context.WithoutCancel(ctx)))
}

// takeRest archives what came into a damaged stream since it was read, up to its last sequence.
func (r *Restored) takeRest(ctx context.Context, a *archive.Archive, log *eventlog.Log, last uint64) error {
	seen := a.End().Seq
	if r.Salvaged == nil || last <= seen {
		return nil
	}
	more, err := salvage(ctx, a, log)
	if err != nil {
		return err
	}
	all := *r.Salvaged
	all.Envelopes, all.Events = all.Envelopes+more.Envelopes, all.Events+more.Events
	all.Lost = nil
	for _, lost := range r.Salvaged.Lost {
		if lost.From <= seen { // what is after was tried again
			all.Lost = append(all.Lost, lost)
		}
	}
	all.Lost = append(all.Lost, more.Lost...)
	all.Head, all.Repeats = more.Head, more.Repeats
	r.Salvaged = &all
	return nil
}
