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

// RestoreOptions say from what a log is restored, and as which stream.
type RestoreOptions struct {
	// Bucket holds the archive. Required.
	Bucket bucket.Bucket
	// Stream is where the new stream is made. Unless Replace is set, there must be no stream.
	Stream eventlog.Config
	// Replace means that there is a damaged stream. What can be read of it is archived, and then
	// the stream is deleted, with all that cannot be read.
	Replace bool
	// FreeSpace moves away what is at the place of the new stream. It is called when the archive is
	// known to be undamaged, before anything is changed. nil means that nothing is in the way.
	FreeSpace func() error
	// Damaged is what is left of the old stream after FreeSpace. As much as possible is read of it.
	// nil means that nothing is left.
	Damaged *eventlog.Config
	// Stores are the positions of stores, by name. Restore reports what will happen to them.
	Stores map[string]events.Cursor
	// Checked is called with the number of bytes of the archive that were checked; it may be nil.
	Checked func(done, total uint64)
}

// Restored describes how a log was restored, and what is missing of it.
type Restored struct {
	Log   events.LogID
	Epoch uint32
	// Archived is where the archive ended before, and Head is where the log ends now.
	Archived, Head events.Cursor
	// Salvaged is what was read from the damaged stream; nil means nothing. Unreadable says why, if
	// there was a stream.
	Salvaged   *eventlog.SalvageReport
	Unreadable error
	// Repeats says what became of damaged files of event ids in the archive; nil means that none
	// were damaged.
	Repeats *RecoveredIDs
	// Stores says what happens to the stores, sorted by name.
	Stores []StoreOutcome
}

// StoreOutcome says what happens to a store after its log was restored.
type StoreOutcome struct {
	Name   string
	Cursor events.Cursor
	// RebuildReason says why the store cannot continue and must be rebuilt; nil means that it
	// continues. [events.ErrOtherEpoch] means that it is at a position that the restored log does
	// not have.
	RebuildReason error
	// LostSequences are sequences that the store has folded and that the log has lost.
	LostSequences []eventlog.SeqRange
}

// Errors of this package.
var (
	// ErrNoArchive means that the bucket contains no archive from which a log could be restored.
	ErrNoArchive = errors.New("archiver: there is no archive to restore the log from")
	// ErrSuperseded means that a stream is of an epoch that the archive has ended: the log was
	// restored before, and what the stream still had was archived then.
	ErrSuperseded = errors.New("archiver: the stream is of an earlier epoch than its archive")
	// ErrArchiveBehind means that a stream is of a later epoch than the archive, and does not
	// directly continue it. The archive must be an old copy.
	ErrArchiveBehind = errors.New("archiver: the archive is of an earlier epoch than the stream: bring the right archive back")
)

// openArchive opens the archive in a bucket, whichever log it is of. It returns [ErrNoArchive] if
// there is none, or if it is empty.
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

// Restore makes a new stream, in a new epoch, after the end of the archive. First it archives the
// envelopes that a damaged stream still has. If it is interrupted, it can be called again: every
// call begins an epoch of its own, so two streams never have the same epoch.
//
// Restore changes nothing and returns [events.ErrLogExists] if there is a stream already, unless it
// is to be replaced. It also changes nothing if a segment of the archive is damaged, and returns
// [archive.ErrDamaged]: no store could be built from the new log.
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

	if o.FreeSpace != nil {
		if err := o.FreeSpace(); err != nil {
			return r, err
		}
	}

	// Archive what the old stream has before the archive begins a new epoch: the archive takes
	// nothing from a stream of an earlier epoch than its own.
	if o.Replace {
		err = r.replaceStream(ctx, a, o.Stream)
	} else {
		err = checkNoStream(ctx, o.Stream)
		if err == nil {
			err = r.archiveDamaged(ctx, a, o.Damaged)
		}
	}
	if err != nil {
		return r, err
	}

	// The archive begins the epoch before the stream is made. A crash between the two only leaves
	// out the number of an epoch, and never makes two streams of one epoch. The next number is left
	// out: a stream that is lost may have had it, because an erasure begins its epoch in the stream
	// before the archive begins it.
	if err := a.BeginEpoch(ctx, a.Epoch()+2, a.End()); err != nil {
		return r, err
	}
	r.Epoch = a.Epoch()
	r.Head = a.End()
	err = eventlog.Restore(ctx, o.Stream, eventlog.RestoredState{
		ID: r.Log, Epoch: r.Epoch, Predecessors: a.Predecessors(), Head: r.Head,
	})
	if err != nil {
		return r, err
	}

	for name, c := range o.Stores {
		r.Stores = append(r.Stores, r.storeOutcome(ctx, a, name, c))
	}
	slices.SortFunc(r.Stores, func(a, b StoreOutcome) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

// checkNoStream returns [events.ErrLogExists] if there is a stream.
func checkNoStream(ctx context.Context, cfg eventlog.Config) error {
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

// errUnreadable means that nothing can be read of a damaged stream.
var errUnreadable = errors.New("archiver: the damaged stream cannot be opened")

// openDamaged opens a stream, of which parts may be damaged. The stream must continue where the
// archive ends: it must be of the same log, and of the same epoch or of one that an erasure has
// begun there.
func openDamaged(ctx context.Context, a *archive.Archive, cfg eventlog.Config) (_ *eventlog.Log, err error) {
	cfg.Existing = true
	log, err := eventlog.Open(ctx, cfg)
	switch {
	case errors.Is(err, events.ErrLocked):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}

	end := a.End()
	switch {
	case log.ID() != end.Log:
		err = fmt.Errorf("%w: the stream is of log %x, the archive of %x", events.ErrOtherLog, log.ID(), end.Log)
	case log.Epoch() < a.Epoch():
		err = fmt.Errorf("%w: the stream is of epoch %d, and the archive is in epoch %d after sequence %d",
			ErrSuperseded, log.Epoch(), a.Epoch(), end.Seq)
	case log.Epoch() > a.Epoch() && !hasErasureBegunEpoch(log, a):
		err = fmt.Errorf("%w: the archive is of epoch %d, the stream of epoch %d", ErrArchiveBehind, a.Epoch(), log.Epoch())
	default:
		log.SetArchive(a)
		return log, nil
	}
	return nil, errors.Join(err, log.Close(context.WithoutCancel(ctx)))
}

// hasErasureBegunEpoch reports whether the stream is in the epoch that an erasure has begun where
// the archive ends. [eventlog.Log.NextEpoch] begins it in the stream, and the archiver then begins
// it in the archive. If the process crashes in between, the archive is one epoch behind. A restored
// log is different: it begins its epoch in the archive first.
func hasErasureBegunEpoch(log *eventlog.Log, a *archive.Archive) bool {
	end := a.End()
	start := log.EpochStart()
	return start.Epoch == a.Epoch()+1 && log.LastErasure().Epoch == a.Epoch() && start.Seq == end.Seq && start.LastTime == end.LastTime
}

// archiveDamaged archives what a damaged stream has after the end of the archive, and replaces
// damaged files of event ids in the archive.
func (r *Restored) archiveDamaged(ctx context.Context, a *archive.Archive, damaged *eventlog.Config) (err error) {
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

	// The event ids come first, because sealing segments and beginning an epoch need them.
	r.Repeats, err = replaceDamagedRepeats(ctx, a, log)
	if err == nil && log != nil && log.Epoch() > a.Epoch() {
		err = a.BeginEpoch(ctx, log.Epoch(), a.End())
	}
	if err == nil && log != nil {
		var report eventlog.SalvageReport
		report, err = archiveRemaining(ctx, a, log)
		if err == nil {
			r.Salvaged = &report
		}
	}

	if !errors.Is(err, events.ErrRewritten) {
		return err
	}
	// The stream and the archive contradict each other, so nothing can be taken from the stream.
	// Its event ids do not count either.
	r.Unreadable = err
	if r.Repeats == nil {
		r.Repeats, err = replaceDamagedRepeats(ctx, a, nil)
		return err
	}
	return nil
}

// archiveRemaining archives what a damaged stream has after the end of the archive.
func archiveRemaining(ctx context.Context, a *archive.Archive, log *eventlog.Log) (report eventlog.SalvageReport, err error) {
	known, err := a.ReadRepeats(ctx)
	if err != nil {
		return report, err
	}

	w := a.Writer()
	report, err = log.Salvage(ctx, a.End(), known.Repeats, func(envs []*events.Envelope) error {
		for _, env := range envs {
			err := w.Add(env)
			// A full writer is sealed, and the same envelope is added to a new one.
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

// storeOutcome returns what happens to a store. It makes the same requests to the archive as a
// reader that continues the store.
func (r *Restored) storeOutcome(ctx context.Context, a *archive.Archive, name string, c events.Cursor) StoreOutcome {
	outcome := StoreOutcome{Name: name, Cursor: c}
	if r.Salvaged != nil {
		for _, lost := range r.Salvaged.Lost {
			if lost.From <= c.Seq {
				outcome.LostSequences = append(outcome.LostSequences, eventlog.SeqRange{From: lost.From, To: min(lost.To, c.Seq)})
			}
		}
	}

	// Find out up to which sequence the log has the epoch of the store.
	lastOfEpoch := uint64(0)
	for _, p := range a.Predecessors() {
		if p.Epoch == c.Epoch {
			lastOfEpoch = p.Last
		}
	}

	switch {
	case c.Log == events.LogID{}, c.Seq == 0:
		// The store has folded nothing.
	case c.Log != r.Log:
		outcome.RebuildReason = fmt.Errorf("%w: it is of log %x", events.ErrOtherLog, c.Log)
	case c.Seq > lastOfEpoch:
		outcome.RebuildReason = fmt.Errorf("%w: of epoch %d the log now has what is up to sequence %d", events.ErrOtherEpoch, c.Epoch, lastOfEpoch)
		// A store of the epoch that was restored has folded what was published after the end of the
		// restored log.
		from := r.Head.Seq + 1
		if c.Seq >= from && c.Epoch == r.Archived.Epoch {
			outcome.LostSequences = appendRange(outcome.LostSequences, eventlog.SeqRange{From: from, To: c.Seq})
		}
	case c.Seq < r.Head.Seq:
		// The reader checks that the archive has the cursor's time at this sequence.
		reader, err := a.Read(ctx, events.Cursor{Log: c.Log, Epoch: r.Epoch, Seq: c.Seq, LastTime: c.LastTime}, events.AllKinds)
		if err == nil {
			reader.Close()
		}
		outcome.RebuildReason = err
	case c.LastTime != r.Head.LastTime:
		outcome.RebuildReason = fmt.Errorf("%w: at sequence %d the archive has another time", events.ErrRewritten, c.Seq)
	}
	return outcome
}

// appendRange appends a range to a sorted list of ranges. If the last range in the list touches or
// overlaps it, the two become one.
func appendRange(list []eventlog.SeqRange, more eventlog.SeqRange) []eventlog.SeqRange {
	if n := len(list); n > 0 && list[n-1].To+1 >= more.From {
		list[n-1].To = max(list[n-1].To, more.To)
		return list
	}
	return append(list, more)
}
