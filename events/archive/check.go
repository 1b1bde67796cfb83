package archive

import (
	"context"
	"errors"
	"io"

	"github.com/skein-feed/skein/events/bucket"
)

// progressMeter reports the progress of an operation that reads all segments, in bytes.
type progressMeter struct {
	done, total uint64
	progress    func(done, total uint64)
}

// newProgressMeter returns a meter for the segments of a manifest. progress may be nil.
func newProgressMeter(m *manifest, progress func(done, total uint64)) *progressMeter {
	t := &progressMeter{progress: progress}
	t.restartAt(m, 0)
	return t
}

// restartAt changes to another manifest, in which the operation continues with the range that
// contains sequence seq. It returns the index of the last segment before that range, or -1, and a
// record with that segment's last sequence and time.
func (t *progressMeter) restartAt(m *manifest, seq uint64) (before int, last record) {
	before = -1
	t.done, t.total = 0, 0
	for i := range m.segments {
		s := &m.segments[i]
		t.total += uint64(s.bytes)
		if s.last < seq {
			t.done += uint64(s.bytes)
			before = i
			last = record{seq: s.last, lastTime: s.lastTime}
		}
	}
	t.add(0)
	return before, last
}

// add counts n bytes as done.
func (t *progressMeter) add(n uint64) {
	t.done += n
	if t.progress != nil {
		t.progress(t.done, t.total)
	}
}

// Check reads and verifies every object that the manifest names: checksums match, every block
// decodes, sequences and times rise through the segments of a class up to the end, nothing follows
// the end of a segment, and the files of event ids can be read. Check continues after damage, and
// returns one [ErrDamaged] for each damaged object, joined. It calls progress, if not nil, with the
// number of bytes read and the number of all bytes.
func (a *Archive) Check(ctx context.Context, progress func(done, total uint64)) error {
	damage, err := a.checkSegments(ctx, a.checkNothingFollows, progress)
	if err != nil {
		return errors.Join(append(damage, err)...)
	}
	ids, err := a.readRemembered(ctx, a.currentManifest())
	if len(ids.Damaged) > 0 {
		// The files may also be missing because another process sealed the next segment, which
		// replaces them. So look again.
		if err = a.Reload(ctx); err == nil {
			ids, err = a.readRemembered(ctx, a.currentManifest())
		}
	}
	return errors.Join(append(append(damage, ids.Damaged...), err)...)
}

// CheckReadable reads and verifies all segments as [Archive.Check] does. It ignores damage that
// does not prevent restoring a log from the archive: bytes after the end of a segment, and damaged
// files of event ids, which can be replaced.
func (a *Archive) CheckReadable(ctx context.Context, progress func(done, total uint64)) error {
	noCheck := func(context.Context, segment) error { return nil }
	damage, err := a.checkSegments(ctx, noCheck, progress)
	return errors.Join(append(damage, err)...)
}

// checkSegments reads and verifies all segments, and calls checkEnd with those that are whole. It
// returns one [ErrDamaged] for each damaged segment, and as err any other failure, which ends the
// check.
func (a *Archive) checkSegments(
	ctx context.Context, checkEnd func(context.Context, segment) error, progress func(done, total uint64),
) (damage []error, err error) {
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}

	m := a.currentManifest()
	meter := newProgressMeter(m, progress)
	var last [numClasses]record
	for i := 0; i < len(m.segments); i++ {
		s := m.segments[i]
		done := meter.done
		err := a.checkSegment(ctx, s, &last[s.class], meter)
		if err == nil {
			err = checkEnd(ctx, s)
		}

		if errors.Is(err, bucket.ErrNotFound) {
			var next *manifest
			next, err = a.reloadIfReplaced(ctx, s, err)
			if next != nil {
				// The segment was merged meanwhile. Check the merged segment instead, and with it
				// once more the part of the range that was checked already.
				var before record
				m = next
				i, before = meter.restartAt(m, s.first)
				last = [numClasses]record{before, before}
				continue
			}
		}

		if err != nil && (!errors.Is(err, ErrDamaged) || ctx.Err() != nil) {
			return damage, err
		}
		if err != nil {
			// Count the rest of the segment as read, and do not report the next segment for what
			// this one lacks.
			damage = append(damage, err)
			meter.add(done + uint64(s.bytes) - meter.done)
			last[s.class] = record{seq: s.last, lastTime: s.lastTime}
		}
	}

	end := max(last[Facts].seq, last[Activity].seq)
	if n := len(m.segments); n > 0 && end != m.end.Seq && len(damage) == 0 {
		s := m.segments[n-1]
		damage = append(damage, s.damageError("it ends at sequence %d, the archive at %d", end, m.end.Seq))
	}
	return damage, nil
}

// checkNothingFollows returns an error if the file is longer than the segment. Readers never read
// those bytes, but whoever wrote them may have changed more.
func (a *Archive) checkNothingFollows(ctx context.Context, s segment) error {
	switch _, err := readRange(ctx, a.bucket, s.name, s.bytes, 1); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return s.classifyReadError(err)
	}
	return s.damageError("bytes follow its end, at byte %d", s.bytes)
}

// checkSegment reads a segment and checks that its records follow last, the last record of its
// class so far. It sets last to the last record that it has read.
func (a *Archive) checkSegment(ctx context.Context, s segment, last *record, meter *progressMeter) error {
	r, err := openSegment(ctx, a.bucket, a.log, s)
	if err != nil {
		return err
	}

	rest := s.bytes // bytes that no block has accounted for: header and footer
	err = r.scanBlocks(ctx, 0, func(info *blockInfo, b *block) error {
		var rec record
		for b.readRecord(&rec) {
			// Two envelopes have different sequences, but may have the same time.
			isNextSeq := last.seq < rec.seq && rec.seq <= s.last
			isNextTime := last.lastTime <= rec.lastTime && rec.lastTime <= s.lastTime
			if !isNextSeq || !isNextTime {
				return s.damageError("sequence %d at %d after %d at %d", rec.seq, rec.lastTime, last.seq, last.lastTime)
			}
			*last = record{seq: rec.seq, lastTime: rec.lastTime}
		}
		rest -= info.length
		meter.add(uint64(info.length))
		return nil
	})
	if err != nil {
		return err
	}

	meter.add(uint64(rest))
	return nil
}
