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
	// MergedBytes is how large a merged range may get, the files of all classes together. It is about what 64 MiB of the stream
	// take, as they are sealed when there is much to archive.
	MergedBytes = 16 << 20
	// mergeFactor is how much more a merged range holds than the largest that it is made of, at least: so an event is written
	// again at most log₈ of the number of events times.
	mergeFactor = 8
)

// Merged is what [Archive.Merge] did.
type Merged struct {
	// First and Last are the range of sequences that is one now.
	First, Last uint64
	// Replaced is how many files are no longer named, Segments how many took their place.
	Replaced, Segments int
	// Bytes were written.
	Bytes uint64
}

// Merge makes one range of neighbors that are small, if there are enough of them: what they hold is written again as one
// segment a class, read back and compared, and the manifest replaced. Nothing is changed for readers: every event keeps its
// sequence, slot and time. It does one merge; Replaced is 0 when there was none to do, or while [Archive.Scrub] or
// [Archive.Sweep] runs. The files that were replaced stay until [Archive.Drop] or Sweep removes them.
//
// Rest is called now and then with how long was worked, and may wait; nil means it does not. Sealing continues meanwhile. After an
// error the archive is what it was, unless the manifest was being replaced: [Archive.Reload] tells. What was written and is
// not named is garbage for Sweep.
func (a *Archive) Merge(ctx context.Context, rest func(ctx context.Context, worked time.Duration) error) (Merged, error) {
	if !a.rewriting.TryLock() {
		return Merged{}, nil
	}
	defer a.rewriting.Unlock()
	m := a.current()
	small := smallRun(m.ranges())
	if len(small) == 0 {
		return Merged{}, nil
	}
	g := merger{archive: a, from: small[0].from, to: small[len(small)-1].to, rest: rest}
	return g.merge(ctx, m)
}

// span is a range of sequences with what the manifest says of its segments, one a class.
type span struct {
	from, to int    // of the segments of the manifest
	bytes    int64  // of all classes
	weight   uint64 // how many records and events: that of a merged range is the sum of the weights of its parts
	// begins: the range must not be merged with the one before, which is of another epoch.
	begins bool
}

// ranges returns the ranges of the segments, in order.
func (m *manifest) ranges() (spans []span) {
	epochs := m.predecessors
	for i := range m.segments {
		s := &m.segments[i]
		if i == 0 || m.segments[i-1].last != s.last {
			begins := false
			for len(epochs) > 0 && epochs[0].Last < s.first {
				begins, epochs = true, epochs[1:]
			}
			spans = append(spans, span{from: i, begins: begins})
		}
		r := &spans[len(spans)-1]
		r.to, r.bytes, r.weight = i+1, r.bytes+s.bytes, r.weight+s.envelopes+s.events
	}
	return spans
}

// smallRun returns the neighbors that are merged next; none: it would cost more than it saves. For a limit that doubles it
// looks for neighbors that are all below it and together at least mergeFactor times as much. So the smallest are merged
// first, and each gets into a range that holds more than mergeFactor times what its previous one did. What has grown to more
// than a factor below [MergedBytes] stays as it is.
func smallRun(spans []span) []span {
	heaviest := uint64(0)
	for i := range spans {
		heaviest = max(heaviest, spans[i].weight)
	}
	for k := 1; k <= bits.Len64(heaviest); k++ {
		limit := uint64(1) << k
		begin, bytes, weight := 0, int64(0), uint64(0)
		for i := range spans {
			s := &spans[i]
			if s.weight >= limit || s.bytes > MergedBytes/mergeFactor {
				begin, bytes, weight = i+1, 0, 0
				continue
			}
			if s.begins {
				begin, bytes, weight = i, 0, 0
			}
			bytes, weight = bytes+s.bytes, weight+s.weight
			for bytes > MergedBytes {
				bytes, weight = bytes-spans[begin].bytes, weight-spans[begin].weight
				begin++
			}
			if weight >= mergeFactor*limit {
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
	rest     func(ctx context.Context, worked time.Duration) error
}

func (g *merger) merge(ctx context.Context, m *manifest) (Merged, error) {
	a, old := g.archive, m.segments[g.from:g.to]
	end := old[len(old)-1]
	// All is read before anything is written: what is found damaged leaves no garbage.
	var writers []*segmentWriter
	for c := range Class(numClasses) {
		w, err := g.gather(ctx, old, c)
		if err != nil {
			return Merged{}, fmt.Errorf("merge sequences %d to %d: %w", old[0].first, end.last, err)
		}
		if !w.empty() {
			writers = append(writers, w)
		}
	}
	done := Merged{First: old[0].first, Last: end.last, Replaced: len(old), Segments: len(writers)}
	var written []segment
	for _, w := range writers {
		began := time.Now()
		s, err := a.store(ctx, w, end.last, end.lastTime)
		if err != nil {
			return Merged{}, err
		}
		written = append(written, s)
		done.Bytes += uint64(s.bytes)
		if err := g.pause(ctx, began); err != nil {
			return Merged{}, err
		}
	}
	if err := a.exchange(ctx, old, written); err != nil {
		return Merged{}, err
	}
	return done, nil
}

// pause rests after work that began at a time.
func (g *merger) pause(ctx context.Context, began time.Time) error {
	if g.rest == nil {
		return ctx.Err()
	}
	return g.rest(ctx, time.Since(began))
}

// gather reads what segments hold of a class into a segment for all of their ranges.
func (g *merger) gather(ctx context.Context, old []segment, class Class) (*segmentWriter, error) {
	a := g.archive
	w := newSegmentWriter(a.log, class, old[0].first)
	var envelopes, evs uint64
	for _, s := range old {
		if s.class != class {
			continue
		}
		began := time.Now()
		r, err := openSegment(ctx, a.bucket, a.log, s)
		if err != nil {
			return nil, err
		}
		err = r.scan(ctx, 0, func(_ *blockInfo, b *block) error {
			var rec record
			for b.next(&rec) {
				if err := w.add(&rec); err != nil {
					return err
				}
			}
			err := g.pause(ctx, began)
			began = time.Now()
			return err
		})
		if err != nil {
			return nil, err
		}
		if envelopes, evs = envelopes+s.envelopes, evs+s.events; w.envelopes != envelopes || w.events != evs {
			return nil, s.damaged("it has %d envelopes and %d events with those before it, not %d and %d", w.envelopes, w.events,
				envelopes, evs)
		}
	}
	return w, nil
}

// exchange has the manifest name the segments of a merged range in place of those that it was made of.
func (a *Archive) exchange(ctx context.Context, old, merged []segment) error {
	a.change.Lock()
	defer a.change.Unlock()
	previous := a.current()
	at := slices.Index(previous.segments, old[0])
	if at < 0 || at+len(old) > len(previous.segments) || !slices.Equal(previous.segments[at:at+len(old)], old) {
		return fmt.Errorf("%w: %s", ErrChanged, a.bucket)
	}
	next := previous.clone()
	next.segments = slices.Replace(next.segments, at, at+len(old), merged...)
	if err := a.replace(ctx, previous, next); err != nil {
		return err
	}
	now := time.Now()
	for _, s := range old {
		a.replaced = append(a.replaced, replaced{s.name, now})
	}
	return nil
}

// replaced is a file that the manifest no longer names since a time.
type replaced struct {
	name string
	at   time.Time
}

// Drop removes the files that this process replaced by merged ones longer ago than a grace. Readers that still look for them
// continue in the merged ones, but must read the manifest again for that.
func (a *Archive) Drop(ctx context.Context, grace time.Duration) error {
	a.change.Lock()
	defer a.change.Unlock()
	for len(a.replaced) > 0 && time.Since(a.replaced[0].at) >= grace {
		if err := a.bucket.Delete(ctx, a.replaced[0].name); err != nil {
			return err
		}
		a.replaced = a.replaced[1:]
	}
	return nil
}

// successor returns the manifest that no longer names a segment, when that is why reading it failed; else why it failed.
func (a *Archive) successor(ctx context.Context, s segment, why error) (*manifest, error) {
	if !errors.Is(why, bucket.ErrNotFound) {
		return nil, why
	}
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}
	m := a.current()
	if slices.ContainsFunc(m.segments, func(other segment) bool { return other.name == s.name }) {
		return nil, why
	}
	return m, nil
}
