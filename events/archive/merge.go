package archive

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/skein-feed/skein/events/bucket"
)

const (
	// MergedBytes bounds the size of a merged range, the files of all classes together. Under load
	// the archiver seals 64 MiB of the stream at a time, which compress to about this size.
	MergedBytes = 16 << 20
	// mergeFactor is the minimum ratio of the size of a merged range to that of its largest part.
	// It bounds how often an event is rewritten: at most log₈ of the number of events.
	mergeFactor = 8
)

// MergeResult is the result of [Archive.Merge].
type MergeResult struct {
	// First and Last are the range of sequences that was merged.
	First, Last uint64
	// Replaced is the number of files that the manifest no longer names, Segments the number of
	// files that replaced them.
	Replaced, Segments int
	// Bytes is the number of bytes written.
	Bytes uint64
}

// Merge joins neighboring small ranges into one, if there are enough of them. It reads their
// segments, writes their content again as one segment per class, reads that back, compares it, and
// replaces the manifest. Readers see no difference: every event keeps its sequence, slot and time.
// A call does at most one merge. Replaced is 0 if there was nothing to merge, or while
// [Archive.Scrub] or [Archive.Sweep] runs. The replaced files stay until [Archive.RemoveReplaced]
// or Sweep removes them.
//
// Merge calls throttle, if not nil, repeatedly with the time worked since the last call; throttle
// may wait, to limit the load. Sealing can continue meanwhile. After an error the archive is
// unchanged, unless it occurred while the manifest was being replaced: call [Archive.Reload] to
// find out. Sweep removes files that were written but are not named by the manifest.
func (a *Archive) Merge(ctx context.Context, throttle func(ctx context.Context, worked time.Duration) error) (MergeResult, error) {
	if !a.rewriteMu.TryLock() {
		return MergeResult{}, nil
	}
	defer a.rewriteMu.Unlock()

	m := a.currentManifest()
	small := pickRangesToMerge(m.segmentRanges())
	if len(small) == 0 {
		return MergeResult{}, nil
	}
	g := merger{archive: a, from: small[0].begin, to: small[len(small)-1].end, throttle: throttle}
	return g.mergeRanges(ctx, m)
}

// segmentRange is a range of sequences and the sizes of its segments, of which there is at most one
// per class.
type segmentRange struct {
	begin, end int    // of the segments of the manifest
	bytes      int64  // of all classes
	entries    uint64 // records and events; unlike bytes, the weight of a merged range is exactly the sum of its parts
	// startsEpoch is true for the first range of an epoch. It must not be merged with the range
	// before it, because the last sequence of a predecessor must stay the end of a range.
	startsEpoch bool
}

// segmentRanges returns the ranges of the segments, in order.
func (m *manifest) segmentRanges() (spans []segmentRange) {
	epochs := m.predecessors
	for i := range m.segments {
		s := &m.segments[i]
		if i == 0 || m.segments[i-1].last != s.last {
			startsEpoch := false
			for len(epochs) > 0 && epochs[0].Last < s.first {
				startsEpoch = true
				epochs = epochs[1:]
			}
			spans = append(spans, segmentRange{begin: i, startsEpoch: startsEpoch})
		}

		r := &spans[len(spans)-1]
		r.end = i + 1
		r.bytes += s.bytes
		r.entries += s.envelopes + s.events
	}
	return spans
}

// pickRangesToMerge returns the neighbors to merge next, or none if a merge would cost more than it
// saves. For a limit that doubles, it looks for neighbors that are each below the limit and
// together at least mergeFactor times the limit. So the smallest are merged first, and every event
// moves to a range more than mergeFactor times as large as its previous one. Ranges above
// MergedBytes/mergeFactor stay as they are.
func pickRangesToMerge(spans []segmentRange) []segmentRange {
	heaviest := uint64(0)
	for i := range spans {
		heaviest = max(heaviest, spans[i].entries)
	}

	for exponent := 1; exponent <= bits.Len64(heaviest); exponent++ {
		limit := uint64(1) << exponent

		// The candidates are the ranges from begin to the current one. bytes and entries are their
		// totals.
		begin := 0
		bytes := int64(0)
		entries := uint64(0)
		for i := range spans {
			s := &spans[i]
			// A range that is too large ends the candidates, and the first one of an epoch begins
			// new ones.
			isTooLarge := s.entries >= limit || s.bytes > MergedBytes/mergeFactor
			if isTooLarge || s.startsEpoch {
				begin = i
				bytes = 0
				entries = 0
			}
			if isTooLarge {
				begin = i + 1
				continue
			}

			bytes += s.bytes
			entries += s.entries
			for bytes > MergedBytes {
				bytes -= spans[begin].bytes
				entries -= spans[begin].entries
				begin++
			}
			if entries >= mergeFactor*limit {
				return spans[begin : i+1]
			}
		}
	}
	return nil
}

// merger merges neighboring ranges.
type merger struct {
	archive  *Archive
	from, to int // of the segments of the manifest
	throttle func(ctx context.Context, worked time.Duration) error
}

// mergeRanges merges the ranges of a manifest.
func (g *merger) mergeRanges(ctx context.Context, m *manifest) (MergeResult, error) {
	a := g.archive
	old := m.segments[g.from:g.to]
	end := old[len(old)-1]

	// Everything is read before anything is written, so that damage leaves no garbage in the
	// bucket.
	var writers []*segmentWriter
	for c := range Class(numClasses) {
		w, err := g.readClass(ctx, old, c)
		if err != nil {
			return MergeResult{}, fmt.Errorf("merge sequences %d to %d: %w", old[0].first, end.last, err)
		}
		if !w.isEmpty() {
			writers = append(writers, w)
		}
	}

	done := MergeResult{First: old[0].first, Last: end.last, Replaced: len(old), Segments: len(writers)}
	var written []segment
	for _, w := range writers {
		began := time.Now()
		s, err := a.storeSegment(ctx, w, end.last, end.lastTime)
		if err != nil {
			return MergeResult{}, err
		}
		written = append(written, s)
		done.Bytes += uint64(s.bytes)
		if err := g.throttleSince(ctx, began); err != nil {
			return MergeResult{}, err
		}
	}

	if err := a.replaceSegments(ctx, old, written); err != nil {
		return MergeResult{}, err
	}
	return done, nil
}

// throttleSince calls throttle with the time since began. Without throttle it only checks whether
// ctx has ended.
func (g *merger) throttleSince(ctx context.Context, began time.Time) error {
	if g.throttle == nil {
		return ctx.Err()
	}
	return g.throttle(ctx, time.Since(began))
}

// readClass reads the records of one class from several segments and adds them to a new segment,
// which covers the ranges of all of them. It fails with [ErrDamaged] if a segment has other numbers
// of envelopes or events than the manifest says.
func (g *merger) readClass(ctx context.Context, old []segment, class Class) (*segmentWriter, error) {
	a := g.archive
	w := newSegmentWriter(a.log, class, old[0].first)
	var envelopes, evs uint64 // of the segments so far, as the manifest says
	for _, s := range old {
		if s.class != class {
			continue
		}

		began := time.Now()
		r, err := openSegment(ctx, a.bucket, a.log, s)
		if err != nil {
			return nil, err
		}
		err = r.scanBlocks(ctx, 0, func(_ *blockInfo, b *block) error {
			var rec record
			for b.readRecord(&rec) {
				if err := w.addRecord(&rec); err != nil {
					return err
				}
			}
			err := g.throttleSince(ctx, began)
			began = time.Now() // the time that throttle has waited is no work
			return err
		})
		if err != nil {
			return nil, err
		}

		envelopes += s.envelopes
		evs += s.events
		if w.envelopes != envelopes || w.events != evs {
			return nil, s.damageError("it has %d envelopes and %d events with those before it, not %d and %d", w.envelopes, w.events,
				envelopes, evs)
		}
	}
	return w, nil
}

// replaceSegments replaces the old segments by the merged ones in the manifest. It fails with
// [ErrChanged] if the manifest no longer has the old ones side by side, because the manifest may
// have been replaced while they were read.
func (a *Archive) replaceSegments(ctx context.Context, old, merged []segment) error {
	a.changeMu.Lock()
	defer a.changeMu.Unlock()

	previous := a.currentManifest()
	at := slices.Index(previous.segments, old[0])
	if at < 0 || at+len(old) > len(previous.segments) || !slices.Equal(previous.segments[at:at+len(old)], old) {
		return fmt.Errorf("%w: %s", ErrChanged, a.bucket)
	}

	next := previous.clone()
	next.segments = slices.Replace(next.segments, at, at+len(old), merged...)
	if err := a.replaceManifest(ctx, previous, next); err != nil {
		return err
	}

	now := time.Now()
	for _, s := range old {
		a.replaced = append(a.replaced, replacedFile{s.name, now})
	}
	return nil
}

// replacedFile is a file that the manifest no longer names.
type replacedFile struct {
	name  string
	since time.Time // when the manifest was replaced
}

// RemoveReplaced removes the files that this process replaced by merged ones at least grace ago. A
// reader that still needs one continues in the merged file, after it has read the manifest again;
// the grace period saves most readers from doing so.
func (a *Archive) RemoveReplaced(ctx context.Context, grace time.Duration) error {
	a.changeMu.Lock()
	defer a.changeMu.Unlock()
	for len(a.replaced) > 0 && time.Since(a.replaced[0].since) >= grace {
		if err := a.bucket.Delete(ctx, a.replaced[0].name); err != nil {
			return err
		}
		a.replaced = a.replaced[1:]
	}
	return nil
}

// reloadIfReplaced returns the current manifest if why, an error of reading a segment, means that
// the segment's file was removed because the manifest no longer names it. Otherwise it returns why.
func (a *Archive) reloadIfReplaced(ctx context.Context, s segment, why error) (*manifest, error) {
	if !errors.Is(why, bucket.ErrNotFound) {
		return nil, why
	}
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}
	m := a.currentManifest()
	if slices.ContainsFunc(m.segments, func(other segment) bool { return other.name == s.name }) {
		return nil, why
	}
	return m, nil
}
