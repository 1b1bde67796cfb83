package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
)

// MaxSegmentBytes is the number of compressed bytes of one class after which a [Writer] must be
// sealed. It bounds memory: a segment is built in memory.
const MaxSegmentBytes = 64 << 20

// Writer collects envelopes that follow the end of the archive, and compresses them in memory,
// until [Writer.Seal] writes them to the bucket. It is not safe for concurrent use. A writer may be
// abandoned without sealing it.
type Writer struct {
	archive   *Archive
	from      events.Cursor // the end of the archive when the writer was made
	end       events.Cursor // after the last added envelope
	envelopes int
	classes   [numClasses]*segmentWriter
	// repeats are the event ids that a reader at the end must know, including those of dropped
	// repeats. Some may be older than the horizon.
	repeats   []events.Repeat
	prunedLen int // len(repeats) when ids older than the horizon were last removed
	closed    bool
}

// Writer returns a writer that begins at the end of the archive.
func (a *Archive) Writer() *Writer {
	from := a.End()
	w := &Writer{archive: a, from: from, end: from}
	for c := range w.classes {
		w.classes[c] = newSegmentWriter(a.log, Class(c), from.Seq+1)
	}
	return w
}

// Add adds the next envelopes, as the reader of the stream returned them. Their sequences must be
// above [Writer.End] and rise, and their cursors must be of the log and epoch of the archive.
// Otherwise Add fails with [ErrOrder], [events.ErrOtherLog] or [events.ErrOtherEpoch], and the
// writer must be abandoned. After [ErrFull] the writer must be sealed: it holds the envelopes up to
// [Writer.End], and none of the later ones.
func (w *Writer) Add(envs ...*events.Envelope) error {
	for _, env := range envs {
		if err := w.checkNext(env); err != nil {
			return err
		}
		for c, r := range splitByClass(env) {
			if r == nil {
				continue
			}
			if err := w.classes[c].addRecord(r); err != nil {
				w.closed = true
				return err
			}
		}
		w.rememberIDs(env)
		w.end = env.Cursor
		w.envelopes++
	}
	return nil
}

// rememberIDs adds the event ids of an envelope to repeats. Like the decoder, it remembers each id
// with the log time of its slot, and not with the time of a backfilled event, which is that of the
// imported fact.
func (w *Writer) rememberIDs(env *events.Envelope) {
	w.repeats = append(w.repeats, env.Repeated...)
	firstTime, _ := env.FirstTime()
	for i := range env.Events {
		ev := &env.Events[i]
		if ev.ID == "" {
			continue
		}
		at := firstTime + events.Micros(ev.Slot)
		w.repeats = append(w.repeats, events.Repeat{Key: events.RepeatKey(ev), Time: at},
			events.Repeat{Key: events.ContentKey(ev), Time: at})
	}

	// Ids older than the horizon are removed when the list has doubled, so that their removal costs
	// little per event.
	if n := len(w.repeats); n > 2*w.prunedLen+repeatsPerGroup {
		w.repeats = withinHorizon(w.repeats, env.Cursor.LastTime)
		w.prunedLen = len(w.repeats)
	}
}

// checkNext returns an error unless the envelope follows the last one added and the segments are
// not full.
func (w *Writer) checkNext(env *events.Envelope) error {
	c := env.Cursor
	switch {
	case w.closed:
		return fmt.Errorf("%w: the writer was sealed, or failed", ErrOrder)
	case c.Log != w.archive.log:
		return fmt.Errorf("%w: an envelope of log %x for the archive of %x", events.ErrOtherLog, c.Log, w.archive.log)
	case c.Epoch != w.end.Epoch && (w.from.Epoch != 0 || w.envelopes > 0):
		return fmt.Errorf("%w: an envelope of epoch %d, the archive is in %d", events.ErrOtherEpoch, c.Epoch, w.end.Epoch)
	case c.Seq <= w.end.Seq || c.LastTime < w.end.LastTime:
		return fmt.Errorf("%w: sequence %d at %d after %d at %d", ErrOrder, c.Seq, c.LastTime, w.end.Seq, w.end.LastTime)
	case len(env.Events) > events.MaxEnvelopeEvents || len(env.Rejects) > events.MaxEnvelopeEvents:
		return fmt.Errorf("%w: sequence %d has %d events", ErrOrder, c.Seq, len(env.Events))
	}
	for _, s := range w.classes {
		if s.estimatedSize() >= MaxSegmentBytes {
			return ErrFull
		}
	}
	return nil
}

// End returns the cursor after the last envelope added.
func (w *Writer) End() events.Cursor { return w.end }

// Len returns the number of envelopes added.
func (w *Writer) Len() int { return w.envelopes }

// Bytes returns the approximate size of the segments: the compressed blocks, and a third of the
// columns that are not compressed yet.
func (w *Writer) Bytes() int {
	n := 0
	for _, s := range w.classes {
		n += s.estimatedSize()
	}
	return n
}

// SealResult is the result of [Writer.Seal].
type SealResult struct {
	// First and Last are the range of sequences.
	First, Last uint64
	// End is the cursor after the last envelope: the new end of the archive.
	End events.Cursor
	// Envelopes is the number of envelopes archived.
	Envelopes uint64
	// Classes describes the new files. Segments is 0 for a class without records.
	Classes [numClasses]ClassInfo
}

// Seal writes the segments, reads them back, decodes and compares them with what was added, and
// replaces the manifest: from then on they are archived, and durable. An empty writer seals
// nothing. The writer must not be used afterwards. After an error the archive is unchanged, unless
// it occurred while the manifest was being replaced: call [Archive.Reload] to find out. It fails
// with [ErrChanged] if the archive no longer ends where the writer began.
func (w *Writer) Seal(ctx context.Context) (SealResult, error) {
	a := w.archive
	if w.closed {
		return SealResult{}, fmt.Errorf("%w: the writer was sealed, or failed", ErrOrder)
	}
	w.closed = true

	sealed := SealResult{First: w.from.Seq + 1, Last: w.end.Seq, End: w.end, Envelopes: uint64(w.envelopes)}
	if w.envelopes == 0 {
		return sealed, nil
	}

	a.changeMu.Lock()
	defer a.changeMu.Unlock()

	previous := a.currentManifest()
	if previous.end != w.from {
		return SealResult{}, fmt.Errorf("%w: it ends at sequence %d, the writer began at %d", ErrChanged, previous.end.Seq, w.from.Seq)
	}

	next := previous.clone()
	for c, s := range w.classes {
		sealed.Classes[c].Class = Class(c)
		if s.isEmpty() {
			continue
		}
		written, err := a.storeSegment(ctx, s, w.end.Seq, w.end.LastTime)
		if err != nil {
			return SealResult{}, err
		}
		next.segments = append(next.segments, written)
		sealed.Classes[c] = ClassInfo{
			Class: Class(c), Segments: 1, Bytes: uint64(written.bytes), Events: written.events,
		}
	}
	if err := a.storeRecentRepeats(ctx, w, next); err != nil {
		return SealResult{}, err
	}

	next.end = w.end
	next.epoch = w.end.Epoch
	next.envelopes += uint64(w.envelopes)
	if err := a.replaceManifest(ctx, previous, next); err != nil {
		return SealResult{}, err
	}

	// Not before the manifest is replaced: a crash in between would leave one that names missing
	// files.
	a.deleteUnnamedRepeats(ctx, previous, next)
	return sealed, nil
}

// storeSegment writes a segment to the bucket, reads it back, decodes it and compares the result
// with what was added. Only then may the stream be trimmed: the archive becomes the only copy.
func (a *Archive) storeSegment(ctx context.Context, w *segmentWriter, last uint64, lastTime events.Micros) (segment, error) {
	s := w.finish(last, lastTime)
	if err := a.bucket.Put(ctx, s.name, bytes.NewReader(w.data), s.bytes); err != nil {
		return segment{}, fmt.Errorf("archive: write %s: %w", s.name, err)
	}
	if err := a.verifySegment(ctx, s, w.digest.sum()); err != nil {
		return segment{}, readBackError(s.name, err)
	}
	return s, nil
}

// readBackError wraps the error of reading back an object that was just written. If the bucket does
// not find the object, that is not damage, after which archiving would end: no manifest names the
// object yet, and it is written again under another name.
func readBackError(name string, err error) error {
	if errors.Is(err, bucket.ErrNotFound) {
		return fmt.Errorf("archive: the bucket does not find %s, which was just written", name)
	}
	return fmt.Errorf("archive: what was written is not what is read: %w", err)
}

// verifySegment reads a segment and fails with [ErrDamaged] if the digest of its content is not
// want.
func (a *Archive) verifySegment(ctx context.Context, s segment, want uint64) error {
	r, err := openSegment(ctx, a.bucket, a.log, s)
	if err != nil {
		return err
	}
	var d digest
	err = r.scanBlocks(ctx, 0, func(_ *blockInfo, b *block) error {
		var rec record
		for b.readRecord(&rec) {
			d.addRecord(&rec)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if d.sum() != want {
		return s.damageError("it decodes to something else")
	}
	return nil
}
