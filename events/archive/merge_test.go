package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// mergeRanges makes one of the ranges from i up to j, whatever their size.
func mergeRanges(t fataler, a *Archive, i, j int) Merged {
	t.Helper()
	m := a.currentManifest()
	spans := m.ranges()
	g := merger{archive: a, from: spans[i].begin, to: spans[j].end}
	done, err := g.merge(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// drawMerge merges some neighbors.
func drawMerge(t *rapid.T, a *Archive) {
	n := len(a.currentManifest().ranges())
	i := rapid.IntRange(0, n-1).Draw(t, "merge from")
	j := rapid.IntRange(i, n-1).Draw(t, "merge to")
	mergeRanges(t, a, i, j)
}

// I3, I4: after any merges every reader gets what it would have got before, from every position and of every class, and what was
// merged is gone.
func TestMergeChangesNothingForReaders(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newMemoryBucket()
		envs := drawLog(rt, 25)
		a := mustOpen(rt, b)
		for rest := envs; len(rest) > 0; {
			n := rapid.IntRange(1, min(3, len(rest))).Draw(rt, "segment")
			mustSeal(rt, a, rest[:n])
			rest = rest[n:]
		}
		before, repeats := a.Info(), mustReadRepeats(rt, a)
		for range rapid.IntRange(1, 4).Draw(rt, "merges") {
			drawMerge(rt, a)
		}
		if err := a.Drop(t.Context(), 0); err != nil {
			rt.Fatal(err)
		}
		a = mustOpen(rt, b)
		want := toArchival(envs)
		portion := rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "portion")
		for from := range len(envs) + 1 {
			cursor := events.Cursor{Log: testLog}
			if from > 0 {
				cursor = want[from-1].Cursor
			}
			got, err := readAll(a, cursor, events.AllKinds, portion)
			if d := diffEnvelopes(want[from:], got); err != nil || d != "" {
				rt.Fatalf("from %d: %v %s", from, err, d)
			}
			got, err = readAll(a, cursor, events.AllKinds&^ActivityKinds, portion)
			if d := diffEnvelopes(keepFacts(want[from:]), got); err != nil || d != "" {
				rt.Fatalf("facts from %d: %v %s", from, err, d)
			}
		}
		if err := a.Check(t.Context(), nil); err != nil {
			rt.Fatal(err)
		}
		after := a.Info()
		for c := range after.Classes {
			was, is := before.Classes[c], after.Classes[c]
			if is.Events != was.Events || is.Segments > was.Segments || is.Segments == 0 && was.Segments > 0 {
				rt.Fatalf("%+v, was %+v", is, was)
			}
		}
		if after.End != before.End || after.Envelopes != before.Envelopes || !slices.Equal(mustReadRepeats(rt, a), repeats) {
			rt.Fatalf("%+v, was %+v", after, before)
		}
		named := 1 + after.Classes[Facts].Segments + after.Classes[Activity].Segments + len(a.currentManifest().recent)
		if len(b.objects) != named {
			rt.Fatalf("%d objects, %d are named", len(b.objects), named)
		}
	})
}

func mustReadRepeats(t fataler, a *Archive) []events.Repeat {
	t.Helper()
	r, err := a.Remembered(context.Background())
	if err := errors.Join(append(r.Damaged, err)...); err != nil {
		t.Fatal(err)
	}
	return r.Repeats
}

// I4: a reader whose files are merged and removed while it reads, and one that begins with a manifest of before, continue with
// what took their place: nothing twice, nothing left out, nothing beyond the end that it began with.
func TestReaderContinuesInMergedFiles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newMemoryBucket()
		envs := drawLog(rt, 25)
		parts := drawSegments(rt, envs)
		begun := rapid.IntRange(1, len(parts)).Draw(rt, "sealed when reading begins")
		a, other := mustOpen(rt, b), mustOpen(rt, b)
		mustSeal(rt, other, parts[:begun]...)
		if err := a.Reload(t.Context()); err != nil {
			rt.Fatal(err)
		}
		kinds := rapid.SampledFrom([]events.KindSet{events.AllKinds, events.AllKinds &^ ActivityKinds}).Draw(rt, "kinds")
		held := slices.Concat(parts[:begun]...)
		want := toArchival(held)
		if kinds != events.AllKinds {
			want = keepFacts(want)
		}
		previous := a.currentManifest()
		r, err := a.Read(t.Context(), events.Cursor{Log: testLog}, kinds)
		if err != nil {
			rt.Fatal(err)
		}
		defer r.Close()
		var got []*events.Envelope
		for range rapid.IntRange(0, len(want)-1).Draw(rt, "read before") {
			more, err := r.Next(t.Context(), 1)
			if err != nil {
				rt.Fatal(err)
			}
			got = append(got, more...)
		}
		for range rapid.IntRange(1, 2).Draw(rt, "rounds") {
			if begun < len(parts) {
				mustSeal(rt, other, parts[begun])
				begun++
			}
			drawMerge(rt, other)
			if err := other.Drop(t.Context(), 0); err != nil {
				rt.Fatal(err)
			}
			if len(got) < len(want)-1 {
				more, err := r.Next(t.Context(), 1)
				if err != nil {
					rt.Fatal(err)
				}
				got = append(got, more...)
			}
		}
		for err = nil; err == nil; {
			var more []*events.Envelope
			more, err = r.Next(t.Context(), 1)
			got = append(got, more...)
		}
		if d := diffEnvelopes(want, got); d != "" {
			rt.Fatalf("%v: %s", err, d)
		}
		late := mustOpen(rt, b)
		late.manifest = previous
		from := rapid.IntRange(0, len(held)).Draw(rt, "from")
		cursor := events.Cursor{Log: testLog}
		if from > 0 {
			cursor = toArchival(held)[from-1].Cursor
		}
		all, err := readAll(late, cursor, events.AllKinds, 1)
		for i := range all {
			all[i].Cursor = toArchival(envs)[from+i].Cursor
		}
		if d := diffEnvelopes(toArchival(envs)[from:from+len(all)], all); err != nil || d != "" || from+len(all) < len(held) {
			rt.Fatalf("from %d with the previous manifest: %v %s", from, err, d)
		}
	})
}

// I3: wherever a merge or the removal of its files is interrupted, the archive holds what it held, and the next merge ends the
// same.
func TestInterruptedMergeKeepsContent(t *testing.T) {
	ctx := t.Context()
	before := buildSmallSegments(20)
	merge := func(a *Archive) error {
		for {
			done, err := a.Merge(ctx, nil)
			if err = errors.Join(err, a.Drop(ctx, 0)); err != nil || done.Replaced == 0 {
				return err
			}
		}
	}
	shape := func(a *Archive) (s string) {
		for _, seg := range a.currentManifest().segments {
			s += fmt.Sprint(seg.class, seg.first, seg.last, seg.events, seg.envelopes, seg.bytes, "\n")
		}
		return s
	}
	memory := newMemoryBucket()
	model := mustOpen(t, memory)
	mustSeal(t, model, before...)
	sealed := maps.Clone(memory.objects)
	was := describeContent(t, model)
	if err := merge(model); err != nil {
		t.Fatal(err)
	}
	want := shape(model)
	if got := describeContent(t, model); got != was || len(model.currentManifest().segments) > 8 {
		t.Fatalf("%d segments: %s", len(model.currentManifest().segments), got)
	}
	for _, after := range []bool{false, true} {
		for n, crashed := 1, true; crashed; n++ {
			b := newMemoryBucket()
			maps.Copy(b.objects, sealed)
			faulty := &faultyBucket{Bucket: b, left: 1 << 30}
			a := mustOpen(t, faulty)
			faulty.left, faulty.after = n, after
			err := merge(a)
			crashed = err != nil
			if crashed && !errors.Is(err, errCrash) {
				t.Fatalf("operation %d: %v", n, err)
			}
			a = mustOpen(t, b)
			if got := describeContent(t, a); got != was {
				t.Fatalf("operation %d (after: %v): the archive holds\n%s", n, after, got)
			}
			if err := errors.Join(a.Check(ctx, nil), a.Sweep(ctx), merge(a)); err != nil {
				t.Fatal(err)
			}
			if got := shape(a); got != want || describeContent(t, a) != was || len(b.objects) != 1+len(a.currentManifest().segments)+len(a.currentManifest().recent) {
				t.Fatalf("operation %d (after: %v): once more, the archive holds\n%s", n, after, got)
			}
		}
	}
}

// content is all that an archive tells a reader.
func describeContent(t *testing.T, a *Archive) string {
	t.Helper()
	envs, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	fmt.Fprintln(&text, a.End(), a.Epoch(), a.Predecessors(), mustReadRepeats(t, a))
	for _, env := range envs {
		fmt.Fprintln(&text, *env)
	}
	return text.String()
}

// smallSegments is a log of both classes, to be sealed one envelope at a time.
func buildSmallSegments(n int) (parts [][]*events.Envelope) {
	for seq := uint64(1); seq <= uint64(n); seq++ {
		kind := events.Played
		if seq%2 == 0 {
			kind = events.UserFollowed
		}
		env := newEnvelope(seq, kind, 3)
		env.Events[2].ID = fmt.Sprint("e", seq%3)
		parts = append(parts, []*events.Envelope{env})
	}
	return parts
}

// Neighbors are merged within their epoch, those of another stay apart.
func TestMergeStaysWithinEpochs(t *testing.T) {
	a := mustOpen(t, newMemoryBucket())
	parts := buildSmallSegments(60)
	for i, part := range parts {
		if i == 30 {
			if err := a.BeginEpoch(t.Context(), 2, a.End()); err != nil {
				t.Fatal(err)
			}
		}
		part[0].Cursor.Epoch = 1 + uint32(i/30)
		mustSeal(t, a, part)
	}
	was := describeContent(t, a)
	for {
		done, err := a.Merge(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if done.Replaced == 0 {
			break
		}
		if done.First <= 30 && done.Last > 30 || done.Segments != 2 || done.Bytes == 0 {
			t.Errorf("%+v", done)
		}
	}
	if n := len(a.currentManifest().ranges()); n > 32 || describeContent(t, a) != was {
		t.Errorf("%d ranges", n)
	}
}

// I12: a scrub takes what was merged away, too, though it waits to be removed.
func TestScrubRemovesFilesReplacedByMerge(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildSmallSegments(20)
	parts[4][0].Events[1].User = "erased-user"
	mustSeal(t, a, parts...)
	if done := mergeRanges(t, a, 0, 19); done.Replaced != 20 || done.Segments != 2 || len(b.objects) < 22 {
		t.Fatalf("%+v, %d objects", done, len(b.objects))
	}
	if err := a.Drop(t.Context(), time.Hour); err != nil || len(b.objects) < 22 {
		t.Fatalf("files are removed at once: %v", err)
	}
	if _, err := a.Scrub(t.Context(), matchUser("erased-user"), nil, nil); err != nil {
		t.Fatal(err)
	}
	objects, err := b.List(t.Context(), objectPrefix)
	if err != nil || len(objects) != 3+len(a.currentManifest().recent) || bucketContains(t, a, "erased-user") {
		t.Errorf("%v, %v", objects, err)
	}
}

// No merge begins during a scrub or a sweep, and neither during a merge.
func TestMergeExcludesScrubAndSweep(t *testing.T) {
	ctx := t.Context()
	a := mustOpen(t, newMemoryBucket())
	mustSeal(t, a, buildSmallSegments(20)...)
	done, err := a.Scrub(ctx, func(ev *events.Event) (*events.Event, bool) {
		if done, err := a.Merge(ctx, nil); done.Replaced > 0 || err != nil {
			t.Errorf("during a scrub: %+v, %v", done, err)
		}
		return ev, true
	}, nil, nil)
	if done != (Scrubbed{}) || err != nil {
		t.Fatal(done, err)
	}
	// Sealing continues during a merge, and a merge that rests is given up with its context.
	rests, next := 0, buildSmallSegments(22)
	merged, err := a.Merge(ctx, func(_ context.Context, worked time.Duration) error {
		if rests++; rests <= 2 {
			mustSeal(t, a, next[19+rests]) //nolint:contextcheck // of the test
		}
		if a.rewriteMu.TryLock() || worked < 0 {
			t.Error("a scrub may run during a merge")
		}
		return nil
	})
	if err != nil || merged.Replaced == 0 || rests < merged.Replaced || a.End().Seq != 22 {
		t.Fatalf("%+v, %v after %d rests, the end is %d", merged, err, rests, a.End().Seq)
	}
	if err := a.Check(ctx, nil); err != nil {
		t.Error(err)
	}
	mustSeal(t, a, buildSmallSegments(44)[22:]...)
	ended, cancel := context.WithCancel(ctx)
	_, err = a.Merge(ended, func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A check that reaches a file which was merged meanwhile checks the file that replaced it.
func TestCheckFollowsMerge(t *testing.T) {
	ctx := t.Context()
	for at := range 20 {
		b := newMemoryBucket()
		a, other := mustOpen(t, b), mustOpen(t, b)
		mustSeal(t, other, buildSmallSegments(20)...)
		calls, done, total := 0, uint64(0), uint64(0)
		err := a.Check(ctx, func(d, all uint64) {
			if calls++; calls == 3*at+1 {
				mustSeal(t, other, buildSmallSegments(21)[20:]...) //nolint:contextcheck // of the test
				mergeRanges(t, other, 4, 15)                       //nolint:contextcheck // of the test
				if err := other.Drop(ctx, 0); err != nil {
					t.Error(err)
				}
			}
			done, total = d, all
		})
		if err != nil || done != total || total == 0 {
			t.Errorf("merged at %d: %v, %d of %d bytes", at, err, done, total)
		}
	}
	b := newMemoryBucket()
	a := mustOpen(t, b)
	mustSeal(t, a, buildSmallSegments(3)...)
	if err := b.Delete(ctx, a.currentManifest().segments[1].name); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(ctx, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), a.currentManifest().segments[1].name) {
		t.Errorf("a missing file: %v", err)
	}
}

// Growth is reported for ranges of any length.
func TestGrowthCoversRequestedSpan(t *testing.T) {
	a := mustOpen(t, newMemoryBucket())
	if n, over := a.Growth(1); n != 0 || over != 0 {
		t.Errorf("an empty archive: %d in %d", n, over)
	}
	mustSeal(t, a, buildSmallSegments(30)...)
	mergeRanges(t, a, 0, 9)
	mergeRanges(t, a, 1, 10)
	segs := a.currentManifest().segments
	if n, over := a.Growth(1500); over != 2000 || n != uint64(segs[len(segs)-1].bytes+segs[len(segs)-2].bytes) {
		t.Errorf("of the last two: %d in %d", n, over)
	}
	all := uint64(0)
	for _, s := range segs[2:] {
		all += uint64(s.bytes)
	}
	if n, over := a.Growth(1 << 40); over != 20_000 || n != all {
		t.Errorf("of all but the first: %d in %d, want %d", n, over, all)
	}
}

// The ranges of any year of seals stay few, no event is written again more often than the logarithm of what there is, and what
// is large stays as it is.
func TestMergesKeepRangesFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type year struct {
			segmentRange
			depth int
		}
		scale := rapid.SampledFrom([]uint64{1, 50, 1000, 100_000}).Draw(t, "events an hour")
		perEvent := rapid.SampledFrom([]uint64{5, 30}).Draw(t, "bytes an event")
		random := rapid.Uint64().Draw(t, "seed")
		var ranges []year
		var total int64
		for hour := range 800 {
			random = random*6364136223846793005 + 1442695040888963407
			weight := 1 + random>>33%(2*scale)
			if hour%24 < 8 { // the night
				weight = 1 + weight/10
			}
			s := segmentRange{bytes: int64(300 + perEvent*weight), entries: weight, startsEpoch: hour == 400}
			total += s.bytes
			ranges = append(ranges, year{segmentRange: s})
			for {
				spans := make([]segmentRange, len(ranges))
				for i := range ranges {
					spans[i] = ranges[i].segmentRange
					spans[i].begin = i
				}
				small := pickRangesToMerge(spans)
				if len(small) == 0 {
					break
				}
				from := small[0].begin
				sum := year{segmentRange: segmentRange{startsEpoch: small[0].startsEpoch}}
				largest := uint64(0)
				for i, s := range small {
					if i > 0 && s.startsEpoch || s.begin != from+i {
						t.Fatalf("merges %+v", small)
					}
					sum.bytes, sum.entries = sum.bytes+s.bytes, sum.entries+s.entries
					sum.depth = max(sum.depth, ranges[from+i].depth+1)
					largest = max(largest, s.entries)
				}
				if sum.bytes > MergedBytes || sum.entries < mergeFactor*largest {
					t.Fatalf("%d bytes, %d events in place of at most %d", sum.bytes, sum.entries, largest)
				}
				ranges = slices.Replace(ranges, from, from+len(small), sum)
			}
			if most := 2*16*5 + int(total/(MergedBytes/mergeFactor)); len(ranges) > most {
				t.Fatalf("%d ranges of %d bytes after %d hours", len(ranges), total, hour)
			}
		}
		for _, r := range ranges {
			if weight := uint64(1) << (3 * r.depth); weight > r.entries {
				t.Fatalf("%d events were written %d times again", r.entries, r.depth)
			}
		}
	})
}
