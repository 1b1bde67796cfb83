package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/wait"
)

// boundary is a snapshot of where the archive ends and the stream begins. Its method locate
// implements the table of states in the package documentation.
type boundary struct {
	meta *logMeta
	// hasArchive is true if the log has an archive.
	hasArchive bool
	// end is the cursor at the end of the archive, in the form of the present epoch, so that it can
	// be compared with cursors of the stream. For an empty archive it is the start of the log.
	end events.Cursor
	// streamStart is the lowest sequence of the present epoch from which the stream has no known
	// gap that the archive covers; see [Log.streamStart]. It may be higher than first, because what
	// is before a gap is read from the archive.
	streamStart uint64
	// first and last are the sequences of the first and the last message of the stream.
	first, last uint64
}

// part is the part of the log in which a reader continues.
type part uint8

const (
	// inStream means that the stream has the envelope at the cursor and everything that the decoder
	// needs for its warm-up.
	inStream part = iota
	// inArchive means that the archive has envelopes after the cursor.
	inArchive
	// atBoundary means that the stream is read from the end of the archive on. Envelopes up to the
	// cursor are read but not returned.
	atBoundary
	// atGap means the same as atBoundary, but there is a gap in the part of the stream that the
	// warm-up needs. The decoder gets that part from the archive.
	atGap
)

// origin says where reading continues after a cursor.
type origin struct {
	part part
	// cursor is the cursor after which reading continues, in the form of the present epoch.
	cursor events.Cursor
	// decoderStart is the cursor at which the decoder of the stream starts. It differs from cursor
	// if the reader must skip envelopes.
	decoderStart events.Cursor
	// needsEpochRepeats is true if the warm-up reaches back to the start of the epoch. Then the
	// decoder needs the event ids that were seen before the epoch, which only the archive has (I6).
	needsEpochRepeats bool
}

// locate returns where a reader continues after a cursor of the present epoch. It fails with
// [events.ErrLogShorter], [events.ErrRewritten], or [events.ErrTrimmed] if neither the stream nor
// the archive has what the reader needs.
func (b *boundary) locate(c events.Cursor) (origin, error) {
	if c.Seq > b.last {
		return origin{}, fmt.Errorf("%w: it ends at sequence %d, the cursor is at %d: the log lost events or is an older "+
			"copy; restore the right log, or rebuild the store from this one", events.ErrLogShorter, b.last, c.Seq)
	}

	if o, ok := b.originInStream(c); ok {
		return o, nil
	}
	if c.Seq < b.end.Seq {
		return origin{part: inArchive, cursor: c}, nil
	}
	if c.Seq == b.end.Seq && c.LastTime != b.end.LastTime {
		return origin{}, fmt.Errorf("%w: the last time given at sequence %d is %d, not %d: restore the right archive, or "+
			"rebuild the store", events.ErrRewritten, c.Seq, b.end.LastTime, c.LastTime)
	}

	// The cursor is at the end of the archive or after it. The reader starts at the end of the
	// archive.
	o, ok := b.originInStream(b.end)
	o.part = atBoundary
	// If the stream lacks a part of the warm-up, the archive can replace it, as long as the stream
	// continues without a gap after the archive.
	canWarmUpFromArchive := b.hasArchive && b.end.WarmSeq > 0 && b.streamStart <= b.end.Seq+1
	if !ok && canWarmUpFromArchive {
		o = origin{part: atGap, cursor: b.end, decoderStart: b.end}
		ok = true
	}

	switch {
	case ok && c.Seq == b.end.Seq:
		return o, nil
	case ok && (c.IsArchival() || o.part == atGap):
		o.cursor = c
		return o, nil
	case c.Seq == b.end.Seq || !b.hasArchive || c.IsArchival():
		return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs what is before, and the archive "+
			"ends at %d: bring the archive back, or restore the log", events.ErrTrimmed, b.first, c.Seq, b.end.Seq)
	}
	return origin{}, fmt.Errorf("%w: it begins at sequence %d, a reader at %d needs %d, and the archive ends at %d: rebuild "+
		"the store, from the archive and the log", events.ErrTrimmed, b.first, c.Seq, events.NewDecoder(c).WarmUpFrom(), b.end.Seq)
}

// originInStream returns the origin of a reader that reads only the stream. ok reports whether the
// stream has all that the reader needs.
func (b *boundary) originInStream(c events.Cursor) (o origin, ok bool) {
	o = origin{part: inStream, cursor: c, decoderStart: c}
	warmUpStart := events.NewDecoder(c).WarmUpFrom()
	switch {
	case c.Seq+1 == b.meta.first: // the start of the epoch
		o.decoderStart = b.meta.epochStart()
		warmUpStart = b.meta.first
		ok = b.streamStart == b.meta.first
	case c.Seq == 0 || c.IsArchival():
		// The cursor does not say where the warm-up begins.
	default:
		ok = warmUpStart >= b.streamStart
	}

	o.needsEpochRepeats = warmUpStart == b.meta.first && len(b.meta.predecessors) > 0
	if o.needsEpochRepeats && !b.hasArchive {
		ok = false // only the archive has the event ids of before the epoch
	}
	return o, ok
}

// locate finds where a reader continues after a cursor, and checks that the log still has the
// envelope at the cursor. It retries errors that may pass; see [Log.confirmationTime].
func (l *Log) locate(ctx context.Context, c events.Cursor) (origin, error) {
	var failing errorTimer
	for {
		meta := l.meta()
		o, err := l.locateOnce(ctx, c)

		// If a new epoch has begun, or a gap was found that the archive covers, the answer may
		// differ now.
		if l.meta() != meta || errors.Is(err, errCoveredHole) {
			if ctx.Err() != nil {
				return origin{}, ctx.Err()
			}
			continue
		}
		if !failing.isYoungerThan(l.confirmationTime(err)) {
			return o, err
		}
		if wait.For(ctx, confirmDelay) != nil {
			return origin{}, ctx.Err()
		}
	}
}

// locateOnce makes one attempt to locate a cursor. It fails with [errCoveredHole] if it has found,
// and recorded, a gap of the stream that the archive covers. The caller then tries again.
func (l *Log) locateOnce(ctx context.Context, c events.Cursor) (origin, error) {
	c, err := l.AdoptCursor(c)
	if err != nil {
		return origin{}, err
	}

	// The order matters. The archive only grows, and the stream is trimmed only up to where the
	// archive ends. In the other order, an envelope that is archived and trimmed between the two
	// requests would seem to be in neither.
	end, err := l.archiveEnd()
	if err != nil {
		return origin{}, err
	}
	stream, err := l.fetchStream(ctx)
	if err != nil {
		return origin{}, err
	}

	state := stream.CachedInfo().State
	b := boundary{
		meta:        l.meta(),
		hasArchive:  l.archive != nil,
		end:         end,
		streamStart: l.streamStart(state),
		first:       state.FirstSeq,
		last:        state.LastSeq,
	}
	o, err := b.locate(c)
	if errors.Is(err, events.ErrTrimmed) {
		if err := l.checkLossBeforeStream(ctx, &b); err != nil {
			return origin{}, err
		}
	}
	if err != nil {
		return origin{}, err
	}
	return o, l.checkOrigin(ctx, stream, &b, o)
}

// checkOrigin checks that the stream still holds the messages from which the cursors of the origin
// were taken.
func (l *Log) checkOrigin(ctx context.Context, stream jetstream.Stream, b *boundary, o origin) error {
	switch o.part {
	case inArchive:
		return nil // the reader of the archive checks the cursor
	case inStream:
		return l.checkStreamCursor(ctx, stream, o.cursor)
	case atBoundary, atGap:
	}

	// At a gap, the stream may lack the message at the end of the archive itself.
	if o.part == atBoundary || b.streamStart <= b.end.Seq {
		if err := l.checkStreamCursor(ctx, stream, b.end); err != nil {
			return fmt.Errorf("eventlog: the end of the archive: %w", err)
		}
	}
	// A cursor of the archive has no checksum. If such a cursor is after the end of the archive,
	// reader.skipKnown later compares its time.
	if o.cursor.Seq == b.end.Seq || o.cursor.IsArchival() {
		return nil
	}
	return l.checkMessage(ctx, stream, o.cursor)
}

// checkStreamCursor compares a cursor with the message at its sequence. At the start of an epoch
// the stream has no such message, so checkStreamCursor compares the cursor with the last time that
// is recorded for the epochs before.
func (l *Log) checkStreamCursor(ctx context.Context, stream jetstream.Stream, c events.Cursor) error {
	if c.Seq+1 != l.meta().first {
		return l.checkMessage(ctx, stream, c)
	}
	if c.LastTime != l.meta().lastTime {
		return fmt.Errorf("%w: the last time given before epoch %d is %d, not %d: restore the right log, or rebuild "+
			"the store", events.ErrRewritten, l.meta().epoch, l.meta().lastTime, c.LastTime)
	}
	return nil
}

// checkLossBeforeStream records as missing what is between the end of the archive and the start of
// the stream, and returns the [events.ErrHole] for it. Only archived envelopes are ever trimmed, so
// anything between the two is lost. It returns nil if nothing is between them. In a process without
// archive it also returns nil, because another process that has the archive may have trimmed the
// stream.
func (l *Log) checkLossBeforeStream(ctx context.Context, b *boundary) error {
	first := max(b.end.Seq+1, b.meta.first)
	if !b.hasArchive || first >= b.streamStart {
		return nil
	}
	end, err := l.archiveEndSeq(ctx, first)
	if err != nil {
		return err
	}
	if end >= first {
		// The archive has grown meanwhile, so the caller must locate the cursor again.
		return errCoveredHole
	}
	return l.recordMissing(SeqRange{first, b.streamStart - 1})
}

// archiveEnd returns the cursor at the end of the archive, in the form of the present epoch. If
// nothing is archived, it returns the start of the log.
func (l *Log) archiveEnd() (events.Cursor, error) {
	if l.archive == nil {
		return l.Start(), nil
	}
	end := l.archive.End()
	if end.Seq == 0 {
		return l.Start(), nil
	}
	end, err := l.AdoptCursor(end)
	if err != nil {
		return end, fmt.Errorf("eventlog: the end of the archive: %w", err)
	}
	return end, nil
}

// streamStart returns the first sequence from which the stream may be read. The sequence belongs to
// the present epoch, and all known gaps that the archive covers are before it. An accepted hole at
// the beginning of the stream counts as part of the stream.
func (l *Log) streamStart(state jetstream.StreamState) uint64 {
	first := state.FirstSeq
	if hole, ok := l.meta().acceptedHole(first - 1); ok { // the hole was lost, not trimmed
		first = hole.From
	}
	return max(first, l.meta().first, l.coveredHoleEnd.Load()+1)
}

// newDecoder returns the decoder for reading the stream from an origin.
func (l *Log) newDecoder(ctx context.Context, o origin) (*events.Decoder, error) {
	if o.part == atGap {
		return l.newDecoderFromArchive(ctx, o.decoderStart)
	}
	d := events.NewDecoder(o.decoderStart)
	if !o.needsEpochRepeats {
		return d, nil
	}

	repeats, err := l.archive.Repeats(ctx, l.meta().epoch)
	if errors.Is(err, events.ErrArchiveDamaged) {
		// The event ids from before the epoch cannot be read. Archived envelopes do not need them,
		// because the repeats among these were found before they were archived. So the start of the
		// stream is treated as a gap, which makes the reader continue in the archive.
		if covered, recordErr := l.recordCoveredHole(l.meta().first); covered || recordErr != nil {
			return nil, errors.Join(errInterrupted, errCoveredHole, recordErr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the event ids seen before the epoch: %w", err)
	}
	d.SeedRepeats(repeats)
	return d, nil
}
