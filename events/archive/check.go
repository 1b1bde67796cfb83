package archive

import (
	"context"
	"errors"
)

// meter tells how far a pass over all segments is.
type meter struct {
	done, total uint64
	progress    func(done, total uint64)
}

func newMeter(m *manifest, progress func(done, total uint64)) *meter {
	t := &meter{progress: progress}
	for i := range m.segments {
		t.total += uint64(m.segments[i].bytes)
	}
	t.add(0)
	return t
}

func (t *meter) add(n uint64) {
	t.done += n
	if t.progress != nil {
		t.progress(t.done, t.total)
	}
}

// Check reads all that the manifest names and verifies it: checksums, that every block decodes, and that sequences and times
// rise through the segments of a class up to the end. [ErrDamaged] names what is not what was written: the errors of all such
// objects are joined, as [errors.Join] does. Progress, if not nil, is called with bytes.
func (a *Archive) Check(ctx context.Context, progress func(done, total uint64)) error {
	if err := a.Reload(ctx); err != nil {
		return err
	}
	m := a.current()
	meter := newMeter(m, progress)
	var last [numClasses]record
	var damage []error
	for _, s := range m.segments {
		done := meter.done
		err := a.checkSegment(ctx, s, &last[s.class], meter)
		if err != nil && (!errors.Is(err, ErrDamaged) || ctx.Err() != nil) {
			return errors.Join(append(damage, err)...)
		}
		if err != nil {
			damage = append(damage, err)
			meter.add(done + uint64(s.bytes) - meter.done)
			last[s.class] = record{seq: s.last, lastTime: s.lastTime}
		}
	}
	end := max(last[Facts].seq, last[Activity].seq)
	if n := len(m.segments); n > 0 && end != m.end.Seq && len(damage) == 0 {
		s := m.segments[n-1]
		damage = append(damage, s.damaged("it ends at sequence %d, the archive at %d", end, m.end.Seq))
	}
	_, err := a.repeatsAtEnd(ctx, m)
	return errors.Join(append(damage, err)...)
}

// checkSegment reads a segment. Last is the last record of its class so far.
func (a *Archive) checkSegment(ctx context.Context, s segment, last *record, meter *meter) error {
	r, err := openSegment(ctx, a.bucket, a.log, s)
	if err != nil {
		return err
	}
	rest := s.bytes
	err = r.scan(ctx, 0, func(info *blockInfo, b *block) error {
		var rec record
		for b.next(&rec) {
			if rec.seq <= last.seq || rec.seq > s.last || rec.lastTime < last.lastTime || rec.lastTime > s.lastTime {
				return s.damaged("sequence %d at %d after %d at %d", rec.seq, rec.lastTime, last.seq, last.lastTime)
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
