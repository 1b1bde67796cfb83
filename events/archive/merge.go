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
	// MergedBytes bounds the total size of the files that one merge replaces, of all classes
	// together. The size of the merged files is not checked; they are normally smaller. Under load
	// the archiver seals 64 MiB of the stream at a time. According to the measurements of decision
	// 0009, these compress to 8 to 15 MiB, so such ranges need no merging.
	MergedBytes = 16 << 20
	// mergeFactor is the minimum ratio of the entries of a merged range to those of its largest
	// part. Entries are records and events. The ratio bounds how often merges write an event again:
	// at most log₈ n times, where n is the number of entries of the range that holds the event in
	// the end.
	mergeFactor = 8
)

// MergeResult is the result of [Archive.Merge].
type MergeResult struct {
	// First and Last are the first and the last sequence of the merged range.
	First, Last uint64
	// Replaced is the number of files that the manifest no longer names, or 0 if nothing was
	// merged. Segments is the number of files that replaced them.
	Replaced, Segments int
	// Bytes is the total size of the files that replaced them.
	Bytes uint64
}

// Merge joins neighboring small ranges of one epoch into one range, if there are enough of them. It
// reads their segments, writes the content again as one segment for each class that has records,
// reads the new segments back, compares their content with what was added, and replaces the
// manifest. Readers see no difference: every event keeps its sequence, slot and time. The replaced
// files stay until [Archive.RemoveReplaced], [Archive.Scrub] or [Archive.Sweep] removes them.
//
// A call does at most one merge. The result has Replaced 0, without an error, if there is nothing
// to merge, or if Scrub, Sweep or another call of Merge is running.
//
// If throttle is not nil, Merge calls it after each block that it has read and after each segment
// that it has written, with the time that this work took, but not after replacing the manifest.
// throttle may wait, to limit the load. Its error ends the merge. Sealing can continue meanwhile.
//
// Merge fails with [ErrDamaged] if a segment cannot be read because it is missing or damaged, and
// with [ErrChanged] if another process has changed the archive. After an error the archive is
// unchanged, unless the error occurred while the manifest was being replaced: call [Archive.Reload]
// to find out. New files that the manifest does not name stay in the bucket until Sweep removes
// them.
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

// segmentRange describes the segments of one range of sequences, which has at most one segment for
// each class.
type segmentRange struct {
	begin, end int   // the segments of the range are manifest.segments[begin:end]
	bytes      int64 // the total size of the segments
	// entries is the total number of records and events in the segments. Merging compares entries
	// rather than bytes, because a merged range has exactly the sum of the entries of its parts,
	// while its bytes are known only after compression.
	entries uint64
	// startsEpoch is true for the first range after a predecessor. Such a range must not be merged
	// with the range before it. The last sequence of a predecessor must stay the end of a range, so
	// that manifest.epochStartTime finds the log time at which the predecessor ended: a segment
	// records only the time at the end of its range.
	startsEpoch bool
}

// segmentRanges returns the ranges of the manifest's segments, in order.
func (m *manifest) segmentRanges() (ranges []segmentRange) {
	epochs := m.predecessors // those whose last sequence no range has passed yet
	for i := range m.segments {
		s := &m.segments[i]
		// Segments with the same last sequence belong to the same range.
		if i == 0 || m.segments[i-1].last != s.last {
			startsEpoch := false
			for len(epochs) > 0 && epochs[0].Last < s.first {
				startsEpoch = true
				epochs = epochs[1:]
			}
			ranges = append(ranges, segmentRange{begin: i, startsEpoch: startsEpoch})
		}

		r := &ranges[len(ranges)-1]
		r.end = i + 1
		r.bytes += s.bytes
		r.entries += s.envelopes + s.events
	}
	return ranges
}

// pickRangesToMerge returns the neighboring ranges to merge next, or none if there are not enough
// small ones.
//
// It tries the limits 2, 4, 8 and so on until the limit is above the entries of every range. For
// each limit it looks for neighbors that have fewer entries each than the limit, and together at
// least mergeFactor times the limit. So it returns more than mergeFactor ranges, it prefers the
// smallest ones, and a merge moves every event to a range with more than mergeFactor times as many
// entries as the event's previous range.
//
// The returned ranges have at most MergedBytes together, and only the first of them may start an
// epoch. A range of more than MergedBytes/mergeFactor bytes is never returned, so it stays as it
// is.
func pickRangesToMerge(ranges []segmentRange) []segmentRange {
	mostEntries := uint64(0)
	for i := range ranges {
		mostEntries = max(mostEntries, ranges[i].entries)
	}

	for exponent := 1; exponent <= bits.Len64(mostEntries); exponent++ {
		limit := uint64(1) << exponent

		// The candidates are the neighbors from begin up to and including the current range. bytes
		// and entries are the totals of the candidates.
		begin := 0
		bytes := int64(0)
		entries := uint64(0)
		for i := range ranges {
			r := &ranges[i]
			// After a range that is too large, the candidates begin anew with the next range. At
			// the first range of an epoch they begin anew with this range.
			isTooLarge := r.entries >= limit || r.bytes > MergedBytes/mergeFactor
			if isTooLarge || r.startsEpoch {
				begin = i
				bytes = 0
				entries = 0
			}
			if isTooLarge {
				begin = i + 1
				continue
			}

			bytes += r.bytes
			entries += r.entries
			for bytes > MergedBytes { // drop the first candidates
				bytes -= ranges[begin].bytes
				entries -= ranges[begin].entries
				begin++
			}
			if entries >= mergeFactor*limit {
				return ranges[begin : i+1]
			}
		}
	}
	return nil
}

// merger holds the arguments of one merge. See [Archive.Merge] for throttle.
type merger struct {
	archive  *Archive
	from, to int // merge manifest.segments[from:to], which are the segments of whole ranges
	throttle func(ctx context.Context, worked time.Duration) error
}

// mergeRanges merges the segments from g.from to g.to of the manifest m, and replaces the current
// manifest, which may be a later one than m.
func (g *merger) mergeRanges(ctx context.Context, m *manifest) (MergeResult, error) {
	a := g.archive
	old := m.segments[g.from:g.to]
	end := old[len(old)-1]

	// Everything is read before anything is written, so that a damaged segment, which is noticed
	// when it is read, leaves no garbage in the bucket. The merged segments fit into memory because
	// MergedBytes bounds the segments that they are made from.
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

// throttleSince calls throttle with the time since began and returns its error. If throttle is nil,
// throttleSince returns the error of ctx, which is nil unless ctx has ended.
func (g *merger) throttleSince(ctx context.Context, began time.Time) error {
	if g.throttle == nil {
		return ctx.Err()
	}
	return g.throttle(ctx, time.Since(began))
}

// readClass reads the records of one class from the old segments and adds them to a new writer,
// which it returns. The writer's range begins at the first old segment, of whichever class. The
// writer is empty if none of the segments is of the class.
//
// readClass fails with [ErrDamaged] if a segment cannot be read because it is missing or damaged,
// or if the number of records or events that were added is not that of the manifest. The numbers
// are compared because the digest of storeSegment covers only the records that were added, so it
// would not show that one was left out here.
func (g *merger) readClass(ctx context.Context, old []segment, class Class) (*segmentWriter, error) {
	a := g.archive
	w := newSegmentWriter(a.log, class, old[0].first)
	var envelopes, evs uint64 // totals of the segments of the class so far, as the manifest says
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
			began = time.Now() // the time that throttle has waited does not count as work
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

// replaceSegments replaces the old segments in the current manifest by the merged ones, and adds
// the old files to a.replaced. While the segments were read and written, the manifest may have been
// replaced. Segments that were sealed meanwhile do no harm. replaceSegments fails with [ErrChanged]
// if the current manifest no longer has the old segments, next to each other and unchanged, or if
// the bucket has another manifest than this process knows.
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

// replacedFile is a file that the manifest no longer names because a merge of this process has
// replaced it.
type replacedFile struct {
	name  string
	since time.Time // when the merge had replaced the manifest
}

// RemoveReplaced removes the files that merges of this process replaced at least grace ago. If a
// reader still needs such a file, it reads the manifest again and continues in the merged file. The
// grace period saves most readers from doing so.
//
// RemoveReplaced ends at the first error. The files that are left are tried again in the next call.
// It does not know the files that earlier processes have replaced; [Archive.Sweep] removes those.
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

// reloadIfReplaced finds out why the segment s of an earlier manifest could not be read. why is the
// error of reading it. If the file is missing, reloadIfReplaced reloads the manifest. If the
// reloaded manifest no longer names the file, a merge or a scrub has replaced it, and
// reloadIfReplaced returns that manifest, in which the caller can continue. Otherwise it returns
// why, or the error of reloading.
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
