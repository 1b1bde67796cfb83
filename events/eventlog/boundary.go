package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// boundary is where the archive ends and the stream begins, as one look at both has found them. The table of states stands in the
// documentation of the package.
type boundary struct {
	meta *logMeta
	// archived: there is an archive. It ends at end, as the present epoch writes it: the start of the log when it is empty.
	archived bool
	end      events.Cursor
	// begins is the lowest sequence of the present epoch from which the stream has no gaps; trimmed to first, it ends at last.
	begins, first, last uint64
}

// part is where a reader continues.
type part uint8

const (
	// inStream: the stream has the cursor, and all that its decoder warms up from.
	inStream part = iota
	// inArchive: after the cursor there is more in the archive.
	inArchive
	// atBoundary: the stream is read after the end of the archive, and what is up to the cursor is passed over.
	atBoundary
	// atGap is atBoundary where the stream lacks some of what the decoder warms up from: the decoder learns it from the archive.
	atGap
)

// origin is where reading continues after a cursor.
type origin struct {
	part part
	// cur is the cursor as the log has it now.
	cur events.Cursor
	// The stream is read by a decoder made of this cursor.
	from events.Cursor
	// seed: the decoder must be told the event ids of before the epoch.
	seed bool
}

// locate returns the part in which a reader continues after a cursor of the present epoch. It fails with [events.ErrLogShorter],
// [events.ErrRewritten], or [events.ErrTrimmed] where neither part has what the reader needs.
func (b *boundary) locate(c events.Cursor) (origin, error) {
	if c.Seq > b.last {
		return origin{}, fmt.Errorf("%w: it ends at sequence %d, the cursor is at %d: the log lost events or is an older "+
			"copy; restore the right log, or rebuild the store from this one", events.ErrLogShorter, b.last, c.Seq)
	}
	if o, ok := b.stream(c); ok {
		return o, nil
	}
	if c.Seq < b.end.Seq {
		return origin{part: inArchive, cur: c}, nil
	}
	if c.Seq == b.end.Seq && c.LastTime != b.end.LastTime {
		return origin{}, fmt.Errorf("%w: the last time given at sequence %d is %d, not %d: restore the right archive, or "+
			"rebuild the store", events.ErrRewritten, c.Seq, b.end.LastTime, c.LastTime)
	}
	o, ok := b.stream(b.end)
	o.part = atBoundary
	if !ok && b.archived && b.end.WarmSeq > 0 && b.begins <= b.end.Seq+1 {
		o, ok = origin{part: atGap, cur: b.end, from: b.end}, true
	}
	switch {
	case ok && c.Seq == b.end.Seq:
		return o, nil
	case ok && (c.Archival() || o.part == atGap):
		o.cur = c
		return o, nil
	case c.Seq == b.end.Seq || !b.archived || c.Archival():
		return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs what is before, and the archive "+
			"ends at %d: bring the archive back, or restore the log", events.ErrTrimmed, b.first, c.Seq, b.end.Seq)
	}
	return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs %d, and the archive ends at %d: rebuild "+
		"the store, from the archive and the log", events.ErrTrimmed, b.first, c.Seq, events.NewDecoder(c).WarmFrom(), b.end.Seq)
}

// stream reports whether the stream alone can serve a reader at a cursor of the present epoch.
func (b *boundary) stream(c events.Cursor) (o origin, ok bool) {
	o = origin{part: inStream, cur: c, from: c}
	warm := events.NewDecoder(c).WarmFrom()
	switch {
	case c.Seq+1 == b.meta.first: // the start of the epoch
		o.from, warm = b.meta.epochStart(), b.meta.first
		ok = b.begins == b.meta.first
	case c.Seq == 0 || c.Archival():
	default:
		ok = warm >= b.begins
	}
	o.seed = warm == b.meta.first && len(b.meta.predecessors) > 0
	if o.seed && !b.archived {
		ok = false // what was seen before the epoch is known to the archive only
	}
	return o, ok
}

// locate finds out where a reader continues after a cursor, and that the log holds what the cursor was taken from.
func (l *Log) locate(ctx context.Context, c events.Cursor) (origin, error) {
	for confirmed := false; ; {
		meta := l.meta()
		o, err := l.look(ctx, c)
		again := l.meta() != meta || errors.Is(err, errHole) // a new epoch has begun, or another gap is known
		switch {
		case again && ctx.Err() != nil:
			return origin{}, ctx.Err()
		case again:
			continue
		case !confirmed && l.unsure(err):
			if confirmed = true; wait.For(ctx, confirmAfter) != nil {
				return origin{}, ctx.Err()
			}
			continue
		}
		return o, err
	}
}

// unsure reports whether an error may pass: a cluster that has just elected a leader may not tell the whole truth at once; nor may
// an archive that another process writes.
func (l *Log) unsure(err error) bool {
	return l.server == nil && (errors.Is(err, events.ErrLogShorter) || errors.Is(err, events.ErrNoLog)) ||
		l.past != nil && errors.Is(err, events.ErrTrimmed)
}

// look locates a cursor once. [errHole]: a gap of the stream was met and noted.
func (l *Log) look(ctx context.Context, c events.Cursor) (origin, error) {
	c, err := l.Adopt(c)
	if err != nil {
		return origin{}, err
	}
	// The end of the archive is asked for first: while the stream is looked at the archive may only grow.
	end, err := l.pastEnd()
	if err != nil {
		return origin{}, err
	}
	stream, err := l.stream(ctx)
	if err != nil {
		return origin{}, err
	}
	state := stream.CachedInfo().State
	b := boundary{
		meta: l.meta(), archived: l.past != nil, end: end, begins: l.begins(state), first: state.FirstSeq, last: state.LastSeq,
	}
	o, err := b.locate(c)
	if errors.Is(err, events.ErrTrimmed) {
		if err := l.checkApart(ctx, &b); err != nil {
			return origin{}, err
		}
	}
	if err != nil {
		return origin{}, err
	}
	return o, l.confirm(ctx, stream, &b, o)
}

// confirm checks that the stream holds what the cursor was taken from.
func (l *Log) confirm(ctx context.Context, stream jetstream.Stream, b *boundary, o origin) error {
	switch o.part {
	case inArchive:
		return nil
	case inStream:
		return l.confirmAt(ctx, stream, o.cur)
	case atBoundary, atGap:
	}
	if o.part == atBoundary || b.begins <= b.end.Seq { // else the stream lacks the end itself
		if err := l.confirmAt(ctx, stream, b.end); err != nil {
			return fmt.Errorf("events: the end of the archive: %w", err)
		}
	}
	if o.cur.Seq == b.end.Seq || o.cur.Archival() { // the reader compares the time of one that it passes
		return nil
	}
	return l.checkMessage(ctx, stream, o.cur)
}

// confirmAt checks that the stream, or the epoch if it begins there, agrees with a cursor.
func (l *Log) confirmAt(ctx context.Context, stream jetstream.Stream, c events.Cursor) error {
	if c.Seq+1 != l.meta().first {
		return l.checkMessage(ctx, stream, c)
	}
	if c.LastTime != l.meta().lastTime {
		return fmt.Errorf("%w: the last time given before epoch %d is %d, not %d: restore the right log, or rebuild "+
			"the store", events.ErrRewritten, l.meta().epoch, l.meta().lastTime, c.LastTime)
	}
	return nil
}

// checkApart notes what is lost between the end of the archive and the beginning of the stream: nothing is trimmed that is not
// archived. Without an archive, the process that has it may have trimmed the stream.
func (l *Log) checkApart(ctx context.Context, b *boundary) error {
	first := max(b.end.Seq+1, b.meta.first)
	if !b.archived || first >= b.begins {
		return nil
	}
	now, err := l.reloadedEnd(ctx, first)
	if err != nil {
		return err
	}
	if now >= first {
		return errHole // it has grown: look again
	}
	return l.noteMissing(SeqRange{first, b.begins - 1})
}

// pastEnd returns the end of the archive as the present epoch writes it; the start of the log when nothing is archived.
func (l *Log) pastEnd() (events.Cursor, error) {
	if l.past == nil {
		return l.Start(), nil
	}
	end := l.past.End()
	if end.Seq == 0 {
		return l.Start(), nil
	}
	end, err := l.Adopt(end)
	if err != nil {
		return end, fmt.Errorf("events: the end of the archive: %w", err)
	}
	return end, nil
}

// begins returns where the stream begins that has no holes beside the archive, and is of the present epoch.
func (l *Log) begins(state jetstream.StreamState) uint64 {
	first := state.FirstSeq
	if lost, ok := l.meta().accepted(first - 1); ok { // it was never trimmed
		first = lost.From
	}
	return max(first, l.meta().first, l.holed.Load()+1)
}

// decoder makes the decoder for reading the stream.
func (l *Log) decoder(ctx context.Context, o origin) (*events.Decoder, error) {
	if o.part == atGap {
		return l.relearn(ctx, o.from)
	}
	d := events.NewDecoder(o.from)
	if !o.seed {
		return d, nil
	}
	repeats, err := l.past.Repeats(ctx, l.meta().epoch)
	if errors.Is(err, events.ErrPastDamaged) {
		// What they decided is archived, as far as the archive goes.
		if noted, failed := l.noteHole(l.meta().first); noted || failed != nil {
			return nil, errors.Join(errLost, errHole, failed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("events: read the event ids seen before the epoch: %w", err)
	}
	d.Seed(repeats)
	return d, nil
}
