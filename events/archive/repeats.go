package archive

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// Remembered is what can be read of the event ids that a reader at the end of the archive must know.
type Remembered struct {
	// End is the end of the archive.
	End events.Cursor
	// Repeats are those that can be read, by key.
	Repeats []events.Repeat
	// Damaged names the files that cannot, one error each ([ErrDamaged]).
	Damaged []error
	// From and To bound the log time at which the events occurred whose ids are in the damaged files, as far as they still count:
	// after From, up to To. Not before To: none of them counts.
	From, To events.Micros
}

// Remembered reads the event ids that are kept for a reader at the end, as far as the files can be read. Errors are those of a
// bucket that does not answer.
func (a *Archive) Remembered(ctx context.Context) (Remembered, error) {
	return a.remembered(ctx, a.current())
}

func (a *Archive) remembered(ctx context.Context, m *manifest) (r Remembered, err error) {
	r.End = m.end
	horizon := m.end.LastTime - events.Horizon - 1
	began := horizon // after it are the ids of the next file
	files := []recent{{object: m.repeats, lastTime: m.epochBegan()}}
	for _, f := range append(files, m.recent...) {
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

// epochBegan returns the last time given before the present epoch, or a later one that segments know.
func (m *manifest) epochBegan() events.Micros {
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

// ReplaceRepeats keeps event ids in place of the files that cannot be read: of those, what a reader at the end must know, which
// has to be where the archive ends ([ErrChanged] else). Files that are whole stay, so that nothing of them is forgotten. The
// file of before the epoch, if it is damaged, is given up: a reader that begins with the epoch, in the stream, then knows of no
// event ids before it.
func (a *Archive) ReplaceRepeats(ctx context.Context, end events.Cursor, repeats []events.Repeat) error {
	a.change.Lock()
	defer a.change.Unlock()
	previous := a.current()
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
	case err != nil:
		return err
	}
	if repeats = withinHorizon(append([]events.Repeat(nil), repeats...), end.LastTime); len(repeats) > 0 {
		o, err := a.putRepeats(ctx, newName("recent", end.Seq, end.Seq), repeats)
		if err != nil {
			return err
		}
		next.recent = append(next.recent, recent{object: o, lastTime: end.LastTime})
	}
	if err := a.replace(ctx, previous, next); err != nil {
		return err
	}
	a.forget(ctx, previous, next)
	return nil
}
