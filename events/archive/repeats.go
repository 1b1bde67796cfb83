package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// StoredRepeats contains the event ids that a reader at the end of the archive must know, as far as
// they can be read.
type StoredRepeats struct {
	// End is the end of the archive.
	End events.Cursor
	// Repeats are the event ids that can be read, by key.
	Repeats []events.Repeat
	// Damaged has one [ErrDamaged] for each file that cannot be read.
	Damaged []error
	// From and To bound the log times of the events whose ids are in damaged files and still within
	// the horizon: after From, up to and including To. If From is not before To, no id within the
	// horizon is lost.
	From, To events.Micros
}

// ReadRepeats reads the event ids that are stored for a reader at the end of the archive. Damaged
// files are listed in the result; an error means that the bucket could not be read.
func (a *Archive) ReadRepeats(ctx context.Context) (StoredRepeats, error) {
	return a.readRemembered(ctx, a.currentManifest())
}

// readRemembered implements [Archive.ReadRepeats] for a manifest.
func (a *Archive) readRemembered(ctx context.Context, m *manifest) (r StoredRepeats, err error) {
	r.End = m.end
	horizon := m.end.LastTime - events.Horizon - 1
	began := horizon // the ids of the next file occurred after this time

	files := []recentRepeats{{object: m.repeats, lastTime: m.epochStartTime()}}
	for _, f := range append(files, m.recent...) {
		if f.isLost() {
			continue // the file that ReplaceRepeats has stored then has what was still known
		}
		more, err := a.readRepeats(ctx, f.object)
		switch {
		case errors.Is(err, ErrDamaged):
			if len(r.Damaged) == 0 {
				r.From = began
			}
			r.Damaged = append(r.Damaged, err)
			r.To = max(r.To, f.lastTime)
		case err != nil:
			return r, err
		}
		r.Repeats = append(r.Repeats, more...)
		if f.object != m.repeats {
			began = max(horizon, f.lastTime)
		}
	}
	r.Repeats = withinHorizon(r.Repeats, m.end.LastTime)
	return r, nil
}

// epochStartTime returns the last log time before the present epoch, or a somewhat later time,
// because a segment records only the time at its end. It returns 0 if there is no previous epoch.
func (m *manifest) epochStartTime() events.Micros {
	if len(m.predecessors) == 0 {
		return 0
	}
	last := m.predecessors[len(m.predecessors)-1].Last
	for i := range m.segments {
		if m.segments[i].last >= last {
			return m.segments[i].lastTime
		}
	}
	return m.end.LastTime
}

// ReplaceRepeats stores event ids in place of the files that cannot be read. They are those that a
// reader at end must know. It fails with [ErrChanged] if end is not the end of the archive.
// Readable files stay. If the file of the event ids of before the epoch is damaged, they are lost.
// [Archive.Repeats] then fails with [ErrDamaged] for the epoch, so a reader that starts at its
// beginning reads the archive instead of the stream, and finds which events are repeats there. If
// nothing of the epoch is archived, the archive cannot help: the reader takes repeats of earlier
// events for new ones.
func (a *Archive) ReplaceRepeats(ctx context.Context, end events.Cursor, repeats []events.Repeat) error {
	a.changeMu.Lock()
	defer a.changeMu.Unlock()
	previous := a.currentManifest()
	if previous.end != end {
		return fmt.Errorf("%w: it ends at sequence %d, the event ids are those at %d", ErrChanged, previous.end.Seq, end.Seq)
	}

	next := previous.clone()
	next.recent = nil
	for _, r := range previous.recent {
		switch _, err := a.readRepeats(ctx, r.object); {
		case err == nil:
			next.recent = append(next.recent, r)
		case !errors.Is(err, ErrDamaged):
			return err
		}
	}

	switch _, err := a.readRepeats(ctx, previous.repeats); {
	case errors.Is(err, ErrDamaged):
		next.repeats = object{}
		if n := len(previous.predecessors); n > 0 && previous.predecessors[n-1].Last < end.Seq {
			next.repeats.name = previous.repeats.name // see isLost
		}
	case err != nil:
		return err
	}

	repeats = withinHorizon(append([]events.Repeat(nil), repeats...), end.LastTime) // a copy, because the slice is the caller's
	if len(repeats) > 0 {
		o, err := a.putRepeats(ctx, newObjectName("recent", end.Seq, end.Seq), repeats)
		if err != nil {
			return err
		}
		next.recent = append(next.recent, recentRepeats{object: o, lastTime: end.LastTime})
	}
	if err := a.replaceManifest(ctx, previous, next); err != nil {
		return err
	}
	a.deleteUnnamedRepeats(ctx, previous, next)
	return nil
}
