package archiver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

// RestoreOptions say from what a log is restored, and where.
type RestoreOptions struct {
	// Bucket holds the archive. Required.
	Bucket bucket.Bucket
	// Stream is where the new stream is made. There must be none, unless it is to be replaced.
	Stream eventlog.Config
	// Replace: what a damaged stream there still has is archived, and then it is deleted, with all that cannot be read of it.
	Replace bool
	// MakeRoom moves away what stands where the new stream is made. It is called once the archive is known to be whole, and before
	// anything is changed; nil means that nothing is in the way.
	MakeRoom func() error
	// Damaged is what is left of the old stream after MakeRoom, to be read as far as that goes; nil means nothing is.
	Damaged *eventlog.Config
	// Stores are how far stores had come, by name: what they have and the log has not is lost.
	Stores map[string]events.Cursor
	// Checked, if not nil, is called with the bytes of the archive that were checked.
	Checked func(done, total uint64)
}

// Restored reports how a log was restored, and what of it is missing.
type Restored struct {
	Log   events.LogID
	Epoch uint32
	// Archived is the end of the archive before, Head what the log now has.
	Archived, Head events.Cursor
	// Salvaged is what was taken from the damaged stream; nil means nothing, for the reason Unreadable, if there was one.
	Salvaged   *eventlog.SalvageReport
	Unreadable error
	// Repeats tell of event ids whose files in the archive were damaged; nil means none were.
	Repeats *Recalled
	// Stores tell what becomes of the stores, by name.
	Stores []StoreOutcome
}

// StoreOutcome says what happens to a store after its log was restored.
type StoreOutcome struct {
	Name   string
	Cursor events.Cursor
	// Refused says why the store cannot continue, and must be built again; nil means it continues. [events.ErrOtherEpoch]: it had come
	// further than the log now goes.
	Refused error
	// Holds are sequences that the store has folded and the log has lost.
	Holds []eventlog.SeqRange
}

// Errors of restoring.
var (
	// ErrNoArchive: the bucket holds no archive from which a log could be restored.
	ErrNoArchive = errors.New("archiver: there is no archive to restore the log from")
	// ErrSuperseded: a stream is of an epoch that the archive has closed: it was restored before, and what the stream still
	// had was taken then.
	ErrSuperseded = errors.New("archiver: the stream is of an earlier epoch than its archive")
	// ErrArchiveBehind: a stream is of a later epoch than the archive, which is an old copy.
	ErrArchiveBehind = errors.New("archiver: the archive is of an earlier epoch than the stream: bring the right archive back")
)

// openArchive opens the archive in a bucket, of whichever log it is.
func openArchive(ctx context.Context, b bucket.Bucket) (*archive.Archive, error) {
	id, ok, err := archive.LogOf(ctx, b)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNoArchive, b)
	}
	a, err := archive.Open(ctx, b, id)
	if err != nil {
		return nil, err
	}
	if a.End().Seq == 0 {
		return nil, fmt.Errorf("%w: %s holds nothing yet", ErrNoArchive, b)
	}
	return a, nil
}

// Restore makes a new stream, in a new epoch, after the end of the archive. Envelopes that a damaged stream still has are archived first.
// It may be run again after it was interrupted: every run begins an epoch of its own, so no two streams ever share one. Where there is a
// stream nothing is changed, unless it is to be replaced: [events.ErrLogExists]. Nothing is changed either if a segment of the archive is
// damaged, since no store could be built from the new log: [archive.ErrDamaged].
func Restore(ctx context.Context, o RestoreOptions) (r Restored, err error) {
	a, err := openArchive(ctx, o.Bucket)
	if err != nil {
		return r, err
	}
	r.Archived = a.End()
	r.Log = r.Archived.Log
	if err := a.CheckReadable(ctx, o.Checked); err != nil {
		return r, fmt.Errorf("nothing is restored from %s: %w", o.Bucket, err)
	}
	if o.MakeRoom != nil {
		if err := o.MakeRoom(); err != nil {
			return r, err
		}
	}
	if o.Replace {
		err = r.replace(ctx, a, o.Stream)
		// Before anything is changed: once the archive is in a new epoch, a stream of the previous one is of no use.
	} else if err = refuseStream(ctx, o.Stream); err == nil {
		err = r.takeDamaged(ctx, a, o.Damaged)
	}
	if err != nil {
		return r, err
	}
	if err := a.BeginEpoch(ctx, a.Epoch()+1, a.End()); err != nil {
		return r, err
	}
	r.Epoch, r.Head = a.Epoch(), a.End()
	err = eventlog.Restore(ctx, o.Stream, eventlog.Restored{
		ID: r.Log, Epoch: r.Epoch, Predecessors: a.Predecessors(), Head: r.Head,
	})
	if err != nil {
		return r, err
	}
	for name, c := range o.Stores {
		r.Stores = append(r.Stores, r.outcome(ctx, a, name, c))
	}
	slices.SortFunc(r.Stores, func(a, b StoreOutcome) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// refuseStream fails if there is a stream where one is to be made.
func refuseStream(ctx context.Context, cfg eventlog.Config) error {
	cfg.Existing = true
	log, err := eventlog.Open(ctx, cfg)
	if errors.Is(err, events.ErrNoLog) {
		return nil
	}
	if err != nil {
		return err
	}
	err = fmt.Errorf("%w: log %x in epoch %d: move it away, or restore elsewhere", events.ErrLogExists, log.ID(), log.Epoch())
	return errors.Join(err, log.Close(context.WithoutCancel(ctx)))
}

// errUnreadable: of a damaged stream nothing can be had.
var errUnreadable = errors.New("archiver: the damaged stream cannot be opened")

// openDamaged opens what is left of a stream that continues where the archive ends.
func openDamaged(ctx context.Context, a *archive.Archive, cfg eventlog.Config) (_ *eventlog.Log, err error) {
	cfg.Existing = true
	log, err := eventlog.Open(ctx, cfg)
	switch {
	case errors.Is(err, events.ErrLocked):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	switch end := a.End(); {
	case log.ID() != end.Log:
		err = fmt.Errorf("%w: the stream is of log %x, the archive of %x", events.ErrOtherLog, log.ID(), end.Log)
	case log.Epoch() < a.Epoch():
		err = fmt.Errorf("%w: it is of epoch %d, and the archive in %d, after sequence %d", ErrSuperseded, log.Epoch(), a.Epoch(),
			end.Seq)
	case log.Epoch() > a.Epoch():
		err = fmt.Errorf("%w: of epoch %d and %d", ErrArchiveBehind, a.Epoch(), log.Epoch())
	default:
		log.SetArchive(a)
		return log, nil
	}
	return nil, errors.Join(err, log.Close(context.WithoutCancel(ctx)))
}

// takeDamaged archives what a damaged stream has after the end of the archive, and heals the files of event ids.
func (r *Restored) takeDamaged(ctx context.Context, a *archive.Archive, damaged *eventlog.Config) (err error) {
	var log *eventlog.Log
	if damaged != nil {
		log, err = openDamaged(ctx, a, *damaged)
		switch {
		case errors.Is(err, errUnreadable), errors.Is(err, ErrSuperseded):
			r.Unreadable = err
		case err != nil:
			return err
		default:
			defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()
		}
	}
	// Whatever is sealed or begun in the archive needs the event ids.
	r.Repeats, err = recall(ctx, a, log)
	if err == nil && log != nil {
		var report eventlog.SalvageReport
		if report, err = salvage(ctx, a, log); err == nil {
			r.Salvaged = &report
		}
	}
	if !errors.Is(err, events.ErrRewritten) {
		return err
	}
	r.Unreadable = err
	if r.Repeats == nil {
		r.Repeats, err = recall(ctx, a, nil)
		return err
	}
	return nil
}

// salvage archives what a damaged stream has after the end of the archive.
func salvage(ctx context.Context, a *archive.Archive, log *eventlog.Log) (report eventlog.SalvageReport, err error) {
	known, err := a.Remembered(ctx)
	if err != nil {
		return report, err
	}
	w := a.Writer()
	report, err = log.Salvage(ctx, a.End(), known.Repeats, func(envs []*events.Envelope) error {
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

// outcome returns what happens to a store. It makes the same requests of the archive as a reader would.
func (r *Restored) outcome(ctx context.Context, a *archive.Archive, name string, c events.Cursor) StoreOutcome {
	f := StoreOutcome{Name: name, Cursor: c}
	if r.Salvaged != nil {
		for _, lost := range r.Salvaged.Lost {
			if lost.From <= c.Seq {
				f.Holds = append(f.Holds, eventlog.SeqRange{From: lost.From, To: min(lost.To, c.Seq)})
			}
		}
	}
	has := uint64(0)
	for _, p := range a.Predecessors() {
		if p.Epoch == c.Epoch {
			has = p.Last
		}
	}
	switch {
	case c.Log == events.LogID{}, c.Seq == 0: // it has folded nothing
	case c.Log != r.Log:
		f.Refused = fmt.Errorf("%w: it is of log %x", events.ErrOtherLog, c.Log)
	case c.Seq > has:
		f.Refused = fmt.Errorf("%w: of epoch %d the log now has what is up to sequence %d", events.ErrOtherEpoch, c.Epoch, has)
		if from := r.Head.Seq + 1; c.Seq >= from && c.Epoch == r.Archived.Epoch {
			f.Holds = merge(f.Holds, eventlog.SeqRange{From: from, To: c.Seq})
		}
	case c.Seq < r.Head.Seq:
		past, err := a.Read(ctx, events.Cursor{Log: c.Log, Epoch: r.Epoch, Seq: c.Seq, LastTime: c.LastTime}, events.AllKinds)
		if err == nil {
			past.Close()
		}
		f.Refused = err
	case c.LastTime != r.Head.LastTime:
		f.Refused = fmt.Errorf("%w: at sequence %d the archive has another time", events.ErrRewritten, c.Seq)
	}
	return f
}

// merge adds a range to ranges in order, of which the last may reach into it.
func merge(list []eventlog.SeqRange, more eventlog.SeqRange) []eventlog.SeqRange {
	if n := len(list); n > 0 && list[n-1].To+1 >= more.From {
		list[n-1].To = max(list[n-1].To, more.To)
		return list
	}
	return append(list, more)
}
