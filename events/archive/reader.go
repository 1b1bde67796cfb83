package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
)

// blocksAhead is the number of decoded blocks of a class that wait for the reader, besides the one
// being decoded. Each takes some 3 MB, for every open reader.
const blocksAhead = 1

// Read implements [events.Archive]. A cursor beyond the end fails with [events.ErrLogShorter].
func (a *Archive) Read(ctx context.Context, from events.Cursor, kinds events.KindSet) (events.ArchiveReader, error) {
	m := a.currentManifest()
	err := a.checkCursor(ctx, m, from, kinds)
	if errors.Is(err, bucket.ErrNotFound) {
		// The segment may have been merged and removed. Try again with the current manifest.
		if err := a.Reload(ctx); err != nil {
			return nil, err
		}
		m = a.currentManifest()
		err = a.checkCursor(ctx, m, from, kinds)
	}
	if err != nil {
		return nil, err
	}

	// The goroutines of the reader end with Close, or with the context of the caller.
	ctx, cancel := context.WithCancel(ctx)
	r := &reader{cancel: cancel, end: m.end, lastSeq: from.Seq}
	r.startClass(ctx, a, m, Facts)
	if kinds&ActivityKinds != 0 {
		r.startClass(ctx, a, m, Activity)
	}
	return r, nil
}

// checkCursor compares a cursor with the archived envelope at its sequence. It fails with
// [events.ErrRewritten] if there is no such envelope or its last time differs, with
// [events.ErrLogShorter] if the archive ends before the cursor, and with [events.ErrOtherLog].
func (a *Archive) checkCursor(ctx context.Context, m *manifest, from events.Cursor, kinds events.KindSet) error {
	rewritten := func(why string) error {
		return fmt.Errorf("%w: at sequence %d the archive %s", events.ErrRewritten, from.Seq, why)
	}
	switch {
	case from.Log != a.log:
		return fmt.Errorf("%w: the cursor is of log %x, the archive of %x", events.ErrOtherLog, from.Log, a.log)
	case from.Seq > m.end.Seq:
		return fmt.Errorf("%w: the archive ends at sequence %d, the cursor is at %d", events.ErrLogShorter, m.end.Seq, from.Seq)
	case from.Seq == 0 || from.LastTime == 0:
		return nil // such a cursor only names a position
	case from.Seq == m.end.Seq:
		if from.LastTime != m.end.LastTime {
			return rewritten("has another time")
		}
		return nil
	}

	last, found, err := a.lastTimeAt(ctx, m, Facts, from.Seq)
	if err == nil && !found {
		if kinds&ActivityKinds == 0 {
			return nil // the envelope may be in the class that this reader does not open, so its absence here proves nothing
		}
		last, found, err = a.lastTimeAt(ctx, m, Activity, from.Seq)
	}
	switch {
	case err != nil:
		return err
	case !found:
		return rewritten("has no envelope")
	case last != from.LastTime:
		return rewritten("has another time")
	}
	return nil
}

// lastTimeAt returns the last time of the envelope at a sequence. found is false if the class has
// no record of that envelope.
func (a *Archive) lastTimeAt(ctx context.Context, m *manifest, class Class, seq uint64) (at events.Micros, found bool, err error) {
	for _, s := range m.segments {
		if s.class != class || seq < s.first || seq > s.last {
			continue
		}
		r, err := openSegment(ctx, a.bucket, a.log, s)
		if err != nil {
			return 0, false, err
		}
		err = r.scanBlocks(ctx, seq-1, func(_ *blockInfo, b *block) error {
			var rec record
			for rec.seq < seq && b.readRecord(&rec) {
				at = rec.lastTime
			}
			found = rec.seq == seq
			return io.EOF // ends the scan after the first block
		})
		// A segment that is too short also gives io.EOF, but as ErrDamaged.
		if errors.Is(err, io.EOF) && !errors.Is(err, ErrDamaged) {
			err = nil
		}
		return at, found, err
	}
	return 0, false, nil
}

// classReader returns the records of a class. A goroutine reads and decodes the blocks ahead.
type classReader struct {
	blocks  chan *block
	err     error  // set before blocks is closed
	block   *block // from which records are being read
	head    record // the next record
	hasHead bool   // head has not been returned yet
}

// reader merges the classes by sequence. It implements [events.ArchiveReader].
type reader struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	classes []*classReader
	end     events.Cursor
	lastSeq uint64 // of the last returned envelope, at first that of the cursor
	failed  error  // returned by all later calls of Next
}

// startClass starts the goroutine that reads a class from after the cursor. Close stops it.
func (r *reader) startClass(ctx context.Context, a *Archive, m *manifest, class Class) {
	src := &classReader{blocks: make(chan *block, blocksAhead)}
	r.classes = append(r.classes, src)
	after := r.lastSeq

	r.running.Go(func() {
		defer close(src.blocks)
		src.err = a.scanClass(ctx, m, class, after, func(b *block) error {
			select {
			case src.blocks <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
}

// scanClass calls f with the blocks of a class, from the first one with a record after a sequence.
// If a file is gone because it was merged, scanClass continues in the merged file. The blocks there
// have other boundaries: one may begin with records that f has already seen, and the last may go
// beyond the end at which the archive was when reading began. The caller must skip both.
func (a *Archive) scanClass(ctx context.Context, m *manifest, class Class, after uint64, f func(*block) error) error {
	for i := 0; i < len(m.segments); i++ {
		s := m.segments[i]
		if s.class != class || s.last <= after {
			continue
		}

		r, err := openSegment(ctx, a.bucket, a.log, s)
		if err == nil {
			err = r.scanBlocks(ctx, after, func(info *blockInfo, b *block) error {
				after = info.last
				return f(b)
			})
		}
		if err == nil {
			continue
		}

		if m, err = a.reloadIfReplaced(ctx, s, err); err != nil {
			return err
		}
		i = -1 // begin again in the new manifest, after the last block that f got
	}
	return nil
}

// fillHead sets head to the next record after a sequence. At the end of the class it leaves hasHead
// false.
func (s *classReader) fillHead(ctx context.Context, after uint64) error {
	for !s.hasHead {
		if s.block != nil && s.block.readRecord(&s.head) {
			s.hasHead = s.head.seq > after
			continue
		}

		select {
		case b, ok := <-s.blocks:
			if !ok {
				s.block = nil
				return s.err
			}
			s.block = b
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Next implements [events.ArchiveReader].
func (r *reader) Next(ctx context.Context, maxBytes int) ([]*events.Envelope, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	var envs []*events.Envelope
	for size := 0; size < maxBytes || len(envs) == 0; {
		env, err := r.nextEnvelope(ctx)
		if err != nil && ctx.Err() == nil {
			// The context of a call may end without harm, but any other error is final.
			r.failed = err
		}
		if err != nil && len(envs) > 0 {
			break // the next call returns the error
		}
		if err != nil {
			return nil, err
		}
		envs = append(envs, env)
		size += max(env.Bytes, 32+16*len(env.Events))
	}
	return envs, nil
}

// nextEnvelope returns the next envelope, or io.EOF after the end. The envelope at the end is
// returned even if it has no event of the wanted classes, so that the caller gets the cursor there.
func (r *reader) nextEnvelope(ctx context.Context) (*events.Envelope, error) {
	var first *classReader
	var second *classReader // has the other part of the same envelope
	for _, s := range r.classes {
		if err := s.fillHead(ctx, r.lastSeq); err != nil {
			return nil, err
		}
		switch {
		case !s.hasHead, s.head.seq > r.end.Seq:
		case first == nil || s.head.seq < first.head.seq:
			first, second = s, nil
		case s.head.seq == first.head.seq:
			second = s
		}
	}
	if first == nil {
		if r.lastSeq >= r.end.Seq {
			return nil, io.EOF
		}
		// The last envelope has no record in the classes that are read.
		r.lastSeq = r.end.Seq
		return &events.Envelope{Cursor: r.end}, nil
	}

	// The parts of the envelope are used up, so fillHead reads the next ones.
	head := first.head
	first.hasHead = false
	if second != nil {
		head.mergePart(&second.head)
		second.hasHead = false
	}
	r.lastSeq = head.seq

	env := &events.Envelope{
		Events: head.events, Rejects: head.rejects, Repeats: head.repeats, Bytes: head.bytes,
		Cursor: events.Cursor{Log: r.end.Log, Epoch: r.end.Epoch, Seq: head.seq, LastTime: head.lastTime},
	}
	if head.seq == r.end.Seq {
		env.Cursor = r.end
	}
	for i := range env.Events {
		env.Kinds |= 1 << env.Events[i].Kind
	}
	return env, nil
}

// mergePart adds the other class's part of the same envelope. It puts the events of both into the
// order of their slots.
func (r *record) mergePart(other *record) {
	r.repeats += other.repeats
	r.rejects = append(r.rejects, other.rejects...)
	a, b := r.events, other.events
	if len(a) == 0 {
		r.events = b
		return
	}
	if len(b) == 0 {
		return
	}

	merged := make([]events.Event, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0].Slot < b[0].Slot {
			merged = append(merged, a[0])
			a = a[1:]
		} else {
			merged = append(merged, b[0])
			b = b[1:]
		}
	}
	r.events = append(append(merged, a...), b...)
}

// Close implements [events.ArchiveReader].
func (r *reader) Close() {
	r.cancel()
	for _, s := range r.classes {
		for range s.blocks { // receive what is left, so that the goroutine is not blocked on sending and can end
			continue
		}
	}
	r.running.Wait()
	r.failed = fmt.Errorf("archive: the reader is closed: %w", context.Canceled)
}

var _ events.ArchiveReader = (*reader)(nil)
