package archive

import (
	"context"
	"io"

	"github.com/skein-feed/skein/events"
)

// Scrubbed is the result of [Archive.Scrub].
type Scrubbed struct {
	// Dropped and Changed count events. Rejects counts the rejects that were dropped or changed.
	Dropped, Changed, Rejects uint64
	// Segments is the number of segments that were rewritten.
	Segments int
}

// Scrub rewrites the segments that hold something to be scrubbed, replaces the manifest once and removes the old segments.
// Match is called for every event, perhaps twice: it returns the same event as it is, another one in its place with the same
// sequence, slot and kind, or keep false to drop it; it must not change what it is given. Rejects does the same with rejects.
// Dropped events keep an empty slot: all times and positions stay what they were. Progress, if not nil,
// is called with bytes. After an error nothing is scrubbed, unless the manifest was being replaced; objects that are no
// longer named, or not yet, may be left: [Archive.Sweep].
func (a *Archive) Scrub(ctx context.Context, match func(ev *events.Event) (changed *events.Event, keep bool),
	rejects func(r *events.Reject) (changed *events.Reject, keep bool), progress func(done, total uint64),
) (Scrubbed, error) {
	a.rewriteMu.Lock()
	defer a.rewriteMu.Unlock()
	// The files that merges replaced also hold what must go, so they are removed first, without the grace.
	if err := a.Drop(ctx, 0); err != nil {
		return Scrubbed{}, err
	}
	a.changeMu.Lock()
	defer a.changeMu.Unlock()
	s := scrubber{archive: a, match: match, rejects: rejects}
	previous := a.currentManifest()
	next := previous.clone()
	meter := newProgressMeter(previous, progress)
	var old []string
	for i := range next.segments {
		seg := &next.segments[i]
		touched, err := s.hasMatches(ctx, *seg)
		if err != nil {
			return Scrubbed{}, err
		}
		if touched {
			written, err := s.rewriteSegment(ctx, *seg)
			if err != nil {
				return Scrubbed{}, err
			}
			old = append(old, seg.name)
			*seg = written
		}
		meter.add(uint64(previous.segments[i].bytes))
	}
	if s.result.Segments == 0 {
		return s.result, nil
	}
	if err := a.replaceManifest(ctx, previous, next); err != nil {
		return Scrubbed{}, err
	}
	for _, name := range old {
		if err := a.bucket.Delete(ctx, name); err != nil {
			return s.result, err
		}
	}
	return s.result, nil
}

type scrubber struct {
	archive *Archive
	match   func(ev *events.Event) (*events.Event, bool)
	rejects func(r *events.Reject) (*events.Reject, bool)
	result  Scrubbed
}

// scrub removes or replaces the matching events and rejects of a record.
func (s *scrubber) scrubRecord(r *record, tally *Scrubbed) (touched bool) {
	evs := r.events
	r.events = nil
	for i := range evs {
		ev, keep := s.match(&evs[i])
		switch {
		case !keep:
			tally.Dropped++
		case ev != &evs[i]:
			tally.Changed++
			r.events = append(r.events, *ev)
		default:
			r.events = append(r.events, evs[i])
			continue
		}
		touched = true
	}
	rejects := r.rejects
	r.rejects = nil
	for i := range rejects {
		j, keep := &rejects[i], true
		if s.rejects != nil {
			j, keep = s.rejects(j)
		}
		if !keep || j != &rejects[i] {
			tally.Rejects++
			touched = true
		}
		if keep {
			r.rejects = append(r.rejects, *j)
		}
	}
	return touched
}

// touches reports whether a segment holds something to be scrubbed.
func (s *scrubber) hasMatches(ctx context.Context, seg segment) (touched bool, err error) {
	r, err := openSegment(ctx, s.archive.bucket, s.archive.log, seg)
	if err != nil {
		return false, err
	}
	var trial Scrubbed
	err = r.scanBlocks(ctx, 0, func(_ *blockInfo, b *block) error {
		var rec record
		for !touched && b.readRecord(&rec) {
			touched = s.scrubRecord(&rec, &trial)
		}
		if touched {
			return io.EOF
		}
		return nil
	})
	if touched {
		err = nil
	}
	return touched, err
}

// rewrite writes a segment again without the scrubbed content. The new segment keeps the range, and a record for every envelope,
// even one that is now empty: sequences must not get a gap.
func (s *scrubber) rewriteSegment(ctx context.Context, seg segment) (segment, error) {
	r, err := openSegment(ctx, s.archive.bucket, s.archive.log, seg)
	if err != nil {
		return segment{}, err
	}
	w := newSegmentWriter(s.archive.log, seg.class, seg.first)
	err = r.scanBlocks(ctx, 0, func(_ *blockInfo, b *block) error {
		var rec record
		for b.readRecord(&rec) {
			s.scrubRecord(&rec, &s.result)
			if err := w.addRecord(&rec); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return segment{}, err
	}
	s.result.Segments++
	return s.archive.storeSegment(ctx, w, seg.last, seg.lastTime)
}
