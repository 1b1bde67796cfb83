package archive

import (
	"context"
	"io"

	"github.com/skein-feed/skein/events"
)

// ScrubResult is the result of [Archive.Scrub].
type ScrubResult struct {
	// Dropped and Changed count events. Rejects counts the rejects that were dropped or changed.
	Dropped, Changed, Rejects uint64
	// Segments is the number of segments that were rewritten.
	Segments int
}

// Scrub drops or changes events and rejects in the archive, as the erasure of a user requires. It
// rewrites the segments that hold any of them, replaces the manifest once, and then removes the old
// segments.
//
// Scrub calls match for every event, for some of them twice. To keep the event, match returns the
// pointer it was given; to change it, a pointer to another event with the same sequence, slot and
// kind; to drop it, keep false. It must not change the event that it was given. rejects does the
// same with rejects, and may be nil. The slot of a dropped event stays empty, so the times and
// positions of all other events stay the same. Scrub calls progress, if not nil, with the number of
// bytes done and the number of all bytes.
//
// After an error nothing is scrubbed, unless the error occurred while the manifest was being
// replaced or afterwards. Objects that the manifest does not name may be left in the bucket;
// [Archive.Sweep] removes them.
func (a *Archive) Scrub(ctx context.Context, match func(ev *events.Event) (changed *events.Event, keep bool),
	rejects func(r *events.Reject) (changed *events.Reject, keep bool), progress func(done, total uint64),
) (ScrubResult, error) {
	a.rewriteMu.Lock()
	defer a.rewriteMu.Unlock()

	// The files that merges replaced also hold what must be removed. Remove them first, without the
	// usual grace period.
	if err := a.RemoveReplaced(ctx, 0); err != nil {
		return ScrubResult{}, err
	}
	// Nothing may be sealed meanwhile, because it would not be scrubbed.
	a.changeMu.Lock()
	defer a.changeMu.Unlock()

	s := scrubber{archive: a, match: match, rejects: rejects}
	previous := a.currentManifest()
	next := previous.clone()
	meter := newProgressMeter(previous, progress)

	var old []string // the names of the rewritten segments
	for i := range next.segments {
		// Most segments have nothing of one user. Finding that out costs less than rewriting them.
		seg := &next.segments[i]
		touched, err := s.hasMatches(ctx, *seg)
		if err != nil {
			return ScrubResult{}, err
		}
		if touched {
			written, err := s.rewriteSegment(ctx, *seg)
			if err != nil {
				return ScrubResult{}, err
			}
			old = append(old, seg.name)
			*seg = written
		}
		meter.add(uint64(previous.segments[i].bytes))
	}
	if s.result.Segments == 0 {
		return s.result, nil
	}

	// The old segments must stay until the manifest no longer names them: a crash in between must
	// leave an archive that can be read.
	if err := a.replaceManifest(ctx, previous, next); err != nil {
		return ScrubResult{}, err
	}
	for _, name := range old {
		if err := a.bucket.Delete(ctx, name); err != nil {
			return s.result, err
		}
	}
	return s.result, nil
}

// scrubber holds the functions and the counts of a call of [Archive.Scrub].
type scrubber struct {
	archive *Archive
	match   func(ev *events.Event) (*events.Event, bool)
	rejects func(r *events.Reject) (*events.Reject, bool)
	result  ScrubResult
}

// scrubRecord drops or changes the events and rejects of a record, adds their numbers to counts,
// and reports whether there were any.
func (s *scrubber) scrubRecord(r *record, counts *ScrubResult) (touched bool) {
	evs := r.events
	r.events = nil
	for i := range evs {
		ev, keep := s.match(&evs[i])
		switch {
		case !keep:
			counts.Dropped++
		case ev != &evs[i]:
			counts.Changed++
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
			counts.Rejects++
			touched = true
		}
		if keep {
			r.rejects = append(r.rejects, *j)
		}
	}
	return touched
}

// hasMatches reports whether a segment holds anything to be scrubbed. It stops reading at the first
// match.
func (s *scrubber) hasMatches(ctx context.Context, seg segment) (touched bool, err error) {
	r, err := openSegment(ctx, s.archive.bucket, s.archive.log, seg)
	if err != nil {
		return false, err
	}
	var trial ScrubResult
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
		err = nil // it is the io.EOF that ended the scan
	}
	return touched, err
}

// rewriteSegment writes a segment again without the scrubbed content. The new segment keeps the
// range, and a record for every envelope, even one that is now empty: sequences must not get a gap.
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
