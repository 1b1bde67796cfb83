package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// boundary is a snapshot of where the archive ends and the stream begins. Its method locate implements the table of states in the
// package documentation.
type boundary struct {
	meta *logMeta
	// archived is true if the log has an archive.
	archived bool
	// end is the cursor at the end of the archive, in the form of the present epoch, so that it compares with cursors of the stream.
	// For an empty archive it is the start of the log.
	end events.Cursor
	// begins is the lowest sequence of the present epoch from which the stream has no gaps. It may be higher than first, because what
	// is before a gap is read from the archive.
	begins uint64
	// first and last are the sequences of the first and the last message of the stream.
	first, last uint64
}

// part is the part of the log in which a reader continues.
type part uint8

const (
	// inStream means that the stream has the envelope at the cursor and everything that the decoder needs for its warm-up.
	inStream part = iota
	// inArchive means that the archive has envelopes after the cursor.
	inArchive
	// atBoundary means that the stream is read from the end of the archive on. Envelopes up to the cursor are read but not returned.
	atBoundary
	// atGap means the same as atBoundary, but there is a gap in the part of the stream that the warm-up needs. The decoder learns that
	// part from the archive.
	atGap
)

// origin says where reading continues after a cursor.
type origin struct {
	part part
	// cur is the cursor in the form that the log has for it now.
	cur events.Cursor
	// from is the cursor at which the decoder of the stream starts. It differs from cur if the reader must skip envelopes.
	from events.Cursor
	// seed is true if the warm-up reaches back to the start of the epoch. Then the decoder needs the event ids that were seen before the
	// epoch, which only the archive has (I6).
	seed bool
}

// locate returns where a reader continues after a cursor of the present epoch. It fails with [events.ErrLogShorter],
// [events.ErrRewritten], or [events.ErrTrimmed] if neither the stream nor the archive has what the reader needs.
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
	case ok && (c.IsArchival() || o.part == atGap):
		o.cur = c
		return o, nil
	case c.Seq == b.end.Seq || !b.archived || c.IsArchival():
		return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs what is before, and the archive "+
			"ends at %d: bring the archive back, or restore the log", events.ErrTrimmed, b.first, c.Seq, b.end.Seq)
	}
	return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs %d, and the archive ends at %d: rebuild "+
		"the store, from the archive and the log", events.ErrTrimmed, b.first, c.Seq, events.NewDecoder(c).WarmFrom(), b.end.Seq)
}

// stream returns the origin of a reader that reads only the stream. ok reports whether the stream has all that the reader needs.
func (b *boundary) stream(c events.Cursor) (o origin, ok bool) {
	o = origin{part: inStream, cur: c, from: c}
	warm := events.NewDecoder(c).WarmFrom()
	switch {
	case c.Seq+1 == b.meta.first: // the start of the epoch
		o.from, warm = b.meta.epochStart(), b.meta.first
		ok = b.begins == b.meta.first
	case c.Seq == 0 || c.IsArchival():
		// The cursor does not say where the warm-up begins.
	default:
		ok = warm >= b.begins
	}
	o.seed = warm == b.meta.first && len(b.meta.predecessors) > 0
	if o.seed && !b.archived {
		ok = false // only the archive has the event ids of before the epoch
	}
	return o, ok
}

// locate finds where a reader continues after a cursor, and checks that the log still has the envelope at the cursor.
func (l *Log) locate(ctx context.Context, c events.Cursor) (origin, error) {
	var doubted doubt
	for {
		meta := l.meta()
		o, err := l.look(ctx, c)
		again := l.meta() != meta || errors.Is(err, errCoveredHole) // a new epoch has begun, or another gap is known
		switch {
		case again && ctx.Err() != nil:
			return origin{}, ctx.Err()
		case again:
			continue
		case doubted.still(l.doubtful(err)):
			if wait.For(ctx, confirmAfter) != nil {
				return origin{}, ctx.Err()
			}
			continue
		}
		return o, err
	}
}

// doubt is of an answer that may be wrong for some time. The zero value has not met one.
type doubt struct{ since time.Time }

// still reports whether such an answer is to be asked for again: it has not lasted for so long yet.
func (d *doubt) still(limit time.Duration) bool {
	now := time.Now()
	if d.since.IsZero() {
		d.since = now
	}
	return now.Sub(d.since) < limit
}

// doubtful returns for how long an error must last to be believed: it would stop a store for good, or refuse a position that was
// acknowledged. A leader that a cluster has just elected answers before it has caught up, and another process may have trimmed the stream
// after writing archive files that this process has not read yet.
func (l *Log) doubtful(err error) time.Duration {
	switch {
	case errors.Is(err, events.ErrLogShorter), errors.Is(err, events.ErrNoLog), errors.Is(err, events.ErrPositionAhead):
		return l.catchUp()
	case l.past != nil && errors.Is(err, events.ErrTrimmed):
		return confirmAfter
	}
	return 0
}

// catchUp returns how long the servers may report less than they have.
func (l *Log) catchUp() time.Duration {
	switch {
	case l.replicated.Load():
		return catchUpReplicas
	case l.server != nil:
		return 0
	}
	return confirmAfter
}

// look locates a cursor once. It fails with [errCoveredHole] if it met a gap of the stream, which is noted by then: the caller looks
// again.
func (l *Log) look(ctx context.Context, c events.Cursor) (origin, error) {
	c, err := l.Adopt(c)
	if err != nil {
		return origin{}, err
	}
	// The order matters. The archive only grows, and the stream is trimmed only up to where the archive ends. Asked in the other
	// order, an envelope that is archived and trimmed in between would be in neither.
	end, err := l.archiveEnd()
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

// confirm checks that the stream still holds the message that the cursor was taken from.
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
			return fmt.Errorf("eventlog: the end of the archive: %w", err)
		}
	}
	if o.cur.Seq == b.end.Seq || o.cur.IsArchival() { // the reader compares the time of one that it passes
		return nil
	}
	return l.checkMessage(ctx, stream, o.cur)
}

// confirmAt checks a cursor against the message at its sequence. At the start of an epoch the stream has no such message, and the
// time recorded with the epoch is compared instead.
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
		return errCoveredHole // it has grown: look again
	}
	return l.noteMissing(SeqRange{first, b.begins - 1})
}

// archiveEnd returns the end of the archive as the present epoch writes it; the start of the log when nothing is archived.
func (l *Log) archiveEnd() (events.Cursor, error) {
	if l.past == nil {
		return l.Start(), nil
	}
	end := l.past.End()
	if end.Seq == 0 {
		return l.Start(), nil
	}
	end, err := l.Adopt(end)
	if err != nil {
		return end, fmt.Errorf("eventlog: the end of the archive: %w", err)
	}
	return end, nil
}

// begins returns the first sequence from which the stream is read: it is of the present epoch, and every gap that the archive
// covers is before it.
func (l *Log) begins(state jetstream.StreamState) uint64 {
	first := state.FirstSeq
	if lost, ok := l.meta().accepted(first - 1); ok { // it was never trimmed
		first = lost.From
	}
	return max(first, l.meta().first, l.coveredHoleEnd.Load()+1)
}

// decoder makes the decoder for reading the stream.
func (l *Log) decoder(ctx context.Context, o origin) (*events.Decoder, error) {
	if o.part == atGap {
		return l.decoderFromArchive(ctx, o.from)
	}
	d := events.NewDecoder(o.from)
	if !o.seed {
		return d, nil
	}
	repeats, err := l.past.Repeats(ctx, l.meta().epoch)
	if errors.Is(err, events.ErrArchiveDamaged) {
		// The event ids of before the epoch cannot be read. For archived envelopes they are not needed: which events were repeats
		// was decided before these were archived. So the start of the stream is noted as a gap, and the archive is read instead.
		if noted, failed := l.noteCoveredHole(l.meta().first); noted || failed != nil {
			return nil, errors.Join(errInterrupted, errCoveredHole, failed)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the event ids seen before the epoch: %w", err)
	}
	d.SeedRepeats(repeats)
	return d, nil
}
