package eventlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/skein-feed/skein/events"
)

// findStart finds where to continue after the cursor, and prepares the reader of the archive or the
// decoder of the stream.
func (r *reader) findStart(ctx context.Context) error {
	if ok, err := r.canContinue(ctx); ok || err != nil {
		return err
	}

	// A new source begins at the cursor, which lies before the holes whose envelopes readAvailable has
	// not returned yet. So it crosses these holes again.
	r.lostEnvelopes = nil

	o, err := r.log.locate(ctx, r.cur)
	if err != nil {
		return err
	}
	if o.part == inArchive {
		return r.beginArchive(ctx, o.cursor)
	}
	if r.dec, err = r.log.newDecoder(ctx, o); err != nil {
		return err
	}

	r.decodedSeq = r.dec.WarmUpFrom() - 1
	// cur may differ from the cursor asked for: at a gap it is the end of the archive. If the
	// stream is read from before cur, the envelopes up to cur are skipped.
	r.cur = o.cursor
	r.skipping = o.cursor.Seq > o.decoderStart.Seq
	return nil
}

// canContinue reports whether an interrupted reader may continue with its decoder. It may if the
// stream still has the last message that the reader has read, and the next one. Otherwise a new
// decoder must warm up.
func (r *reader) canContinue(ctx context.Context) (bool, error) {
	isFirstOfEpoch := r.cur.Seq+1 == r.log.meta().first // the stream has no message to compare with
	if r.dec == nil || r.skipping || r.cur.IsArchival() || isFirstOfEpoch {
		return false, nil
	}
	stream, err := r.log.fetchStream(ctx)
	if err != nil {
		return false, err
	}
	state := stream.CachedInfo().State
	if r.log.streamStart(state) > r.decodedSeq+1 || state.FirstSeq > r.cur.Seq || r.cur.Seq > state.LastSeq {
		return false, nil // locate finds the reason
	}
	if err := r.log.checkMessage(ctx, stream, r.cur); !errors.Is(err, errCoveredHole) {
		return true, err
	}
	return false, nil
}

// beginArchive starts reading the archive after a cursor.
func (r *reader) beginArchive(ctx context.Context, from events.Cursor) error {
	// The reader of the archive prefetches for later calls, so it must outlive the context of this
	// call.
	archiveCtx, cancelArchive := context.WithCancel(context.WithoutCancel(ctx))
	stopWatching := context.AfterFunc(ctx, cancelArchive)
	archiveReader, err := r.log.archive.Read(archiveCtx, from, r.kinds)
	if !stopWatching() && err == nil { // ctx has ended, and with it archiveCtx
		archiveReader.Close()
		err = ctx.Err()
	}
	if err != nil {
		cancelArchive()
		return fmt.Errorf("eventlog: read the archive after sequence %d: %w", from.Seq, err)
	}

	r.cur = from
	r.dec = nil
	r.archive = archiveReader
	r.archiveCtx = archiveCtx
	r.cancelArchive = cancelArchive
	r.archiveAdvanced = false
	return nil
}

// readArchive returns the next envelopes of the archive. At the end of the archive it returns none,
// and the next call continues in the stream.
func (r *reader) readArchive(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	stopWatching := context.AfterFunc(ctx, r.cancelArchive)
	envs, err := r.archive.Next(r.archiveCtx, maxBytes) //nolint:contextcheck // what is opened for it lives on for the next call
	if !stopWatching() && err == nil && len(envs) == 0 {
		err = ctx.Err()
	}
	if err != nil {
		r.close()
	}
	if errors.Is(err, io.EOF) {
		if !r.archiveAdvanced && r.cur.Seq < r.log.archive.End().Seq {
			return nil, fmt.Errorf("%w: it ends at sequence %d, but says that there is nothing after %d", events.ErrArchiveDamaged,
				r.log.archive.End().Seq, r.cur.Seq)
		}
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("eventlog: read the archive after sequence %d: %w", r.cur.Seq, err)
	}
	envs, err = r.adoptCursors(envs)
	if err != nil {
		r.close()
	}
	return envs, err
}

// adoptCursors checks that the envelopes of the archive are in order, gives them cursors of the
// present epoch, and moves the reader's cursor after them.
func (r *reader) adoptCursors(envs []*events.Envelope) ([]*events.Envelope, error) {
	for i, env := range envs {
		c, err := r.log.AdoptCursor(env.Cursor)
		if err != nil {
			return nil, fmt.Errorf("%w: envelope %d: %w", events.ErrArchiveDamaged, env.Seq(), err)
		}
		if c.Seq <= r.cur.Seq || c.LastTime < r.cur.LastTime {
			return nil, fmt.Errorf("%w: sequence %d and time %d after %d and %d", events.ErrArchiveDamaged, c.Seq, c.LastTime,
				r.cur.Seq, r.cur.LastTime)
		}
		if c != env.Cursor { // the envelope was archived in an earlier epoch
			adopted := *env
			adopted.Cursor = c
			envs[i] = &adopted
		}
		r.cur = c
		r.archiveAdvanced = true
	}
	return envs, nil
}

// skipKnown reports whether the envelope is at or before the reader's cursor, so that it must not
// be returned. At the cursor it compares the envelope with the cursor, and fails with
// [events.ErrRewritten] if they differ.
func (r *reader) skipKnown(env *events.Envelope) (bool, error) {
	switch {
	case !r.skipping:
		return false, nil
	case env.Seq() < r.cur.Seq:
		return true, nil
	case env.Seq() > r.cur.Seq || !env.Cursor.AgreesWith(r.cur) && !r.dec.HasDecodedLost():
		return false, fmt.Errorf("%w: sequence %d differs: rebuild the store", events.ErrRewritten, r.cur.Seq)
	}

	r.skipping = false
	r.cur = env.Cursor
	return true, nil
}
