package archiver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
)

// RestoreOptions say from what a log is restored, and where.
type RestoreOptions struct {
	// Bucket holds the archive. Required.
	Bucket bucket.Bucket
	// Stream is where the new stream is made. There must be none.
	Stream events.Config
	// Damaged is what is left of the old stream, to be read as far as that goes; nil: nothing is.
	Damaged *events.Config
	// Stores are how far stores had come, by name: what they have and the log has not is lost.
	Stores map[string]events.Cursor
}

// Restored tells how a log was restored, and what of it is missing.
type Restored struct {
	Log   events.LogID
	Epoch uint32
	// Archived is the end of the archive before, Head what the log now has.
	Archived, Head events.Cursor
	// Salvaged is what was taken from the damaged stream; nil: there was none, or it could not be opened, for Unreadable.
	Salvaged   *events.SalvageReport
	Unreadable error
	// Ahead are stores that had come further than the log now goes. They will be refused, and must be built again.
	Ahead map[string]events.Cursor
}

// ErrNoArchive: the bucket holds no archive from which a log could be restored.
var ErrNoArchive = errors.New("archiver: there is no archive to restore the log from")

// Restore makes a new stream, in a new epoch, behind what is archived. What a damaged stream still has is archived first. It
// may be run again after it was broken off: every run begins an epoch of its own, so no two streams ever share one.
func Restore(ctx context.Context, o RestoreOptions) (r Restored, err error) {
	id, ok, err := archive.LogOf(ctx, o.Bucket)
	if err != nil {
		return r, err
	}
	if !ok {
		return r, fmt.Errorf("%w: %s", ErrNoArchive, o.Bucket)
	}
	a, err := archive.Open(ctx, o.Bucket, id)
	if err != nil {
		return r, err
	}
	r.Log, r.Archived = id, a.End()
	if r.Archived.Seq == 0 {
		return r, fmt.Errorf("%w: %s holds nothing yet", ErrNoArchive, o.Bucket)
	}
	if o.Damaged != nil {
		report, err := salvage(ctx, a, *o.Damaged)
		switch {
		case errors.Is(err, errUnreadable):
			r.Unreadable = err
		case err != nil:
			return r, err
		default:
			r.Salvaged = &report
		}
	}
	if err := a.BeginEpoch(ctx, a.Epoch()+1, a.End()); err != nil {
		return r, err
	}
	r.Epoch, r.Head = a.Epoch(), a.End()
	err = events.Restore(ctx, o.Stream, events.Restored{
		ID: id, Epoch: r.Epoch, Predecessors: a.Predecessors(), Head: r.Head,
	})
	if err != nil {
		return r, err
	}
	r.Ahead = map[string]events.Cursor{}
	for name, c := range o.Stores {
		if c.Log == id && c.Seq > r.Head.Seq {
			r.Ahead[name] = c
		}
	}
	return r, nil
}

// errUnreadable: of a damaged stream nothing can be had.
var errUnreadable = errors.New("archiver: the damaged stream cannot be opened")

// salvage archives what a damaged stream has after the end of the archive.
func salvage(ctx context.Context, a *archive.Archive, cfg events.Config) (report events.SalvageReport, err error) {
	cfg.Existing = true
	log, err := events.Open(ctx, cfg)
	if err != nil {
		return report, errors.Join(errUnreadable, err)
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()
	if log.ID() != a.End().Log {
		return report, fmt.Errorf("%w: the damaged stream is of log %x", events.ErrOtherLog, log.ID())
	}
	log.SetPast(a)
	w := a.Writer()
	report, err = log.Salvage(ctx, a.End(), func(envs []*events.Envelope) error {
		for _, env := range envs {
			err := w.Add(env)
			if errors.Is(err, archive.ErrFull) {
				if _, err := w.Seal(ctx); err != nil {
					return err
				}
				w = a.Writer()
				err = w.Add(env)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return report, fmt.Errorf("salvage: %w", err)
	}
	if w.Len() > 0 {
		_, err = w.Seal(ctx)
	}
	return report, err
}

// String tells people what was restored and what is missing.
func (r Restored) String() string {
	var b strings.Builder
	at := func(c events.Cursor) string {
		return fmt.Sprintf("sequence %d (%s)", c.Seq, c.LastTime.Time().Format(time.RFC3339))
	}
	fmt.Fprintf(&b, "log %x goes on in epoch %d after %s\n", r.Log, r.Epoch, at(r.Head))
	fmt.Fprintf(&b, "archived before: up to %s\n", at(r.Archived))
	switch {
	case r.Salvaged != nil:
		fmt.Fprintf(&b, "taken from the damaged stream: %v\n", *r.Salvaged)
	case r.Unreadable != nil:
		fmt.Fprintf(&b, "taken from the damaged stream: nothing: %v\n", r.Unreadable)
	}
	for name, c := range r.Ahead {
		fmt.Fprintf(&b, "%s had come to %s: envelopes %d to %d are lost, and the store must be built again\n", name, at(c),
			r.Head.Seq+1, c.Seq)
	}
	if len(r.Ahead) == 0 {
		b.WriteString("no store had come further\n")
	}
	return b.String()
}
