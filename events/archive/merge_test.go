package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// mergeRanges merges the ranges with the indexes from first to last into one, whatever their size.
func mergeRanges(t fataler, a *Archive, first, last int) MergeResult {
	t.Helper()
	m := a.currentManifest()
	spans := m.segmentRanges()
	g := merger{archive: a, from: spans[first].begin, to: spans[last].end}
	done, err := g.mergeRanges(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// drawMerge merges neighboring ranges that rapid chooses.
func drawMerge(t *rapid.T, a *Archive) {
	n := len(a.currentManifest().segmentRanges())
	first := rapid.IntRange(0, n-1).Draw(t, "merge from")
	last := rapid.IntRange(first, n-1).Draw(t, "merge to")
	mergeRanges(t, a, first, last)
}

// TestMergeChangesNothingForReaders tests I3 and I4: after any merges every reader gets what it would
// have got before, from every cursor and of every class. The merged files are gone.
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

		before := a.Info()
		repeats := mustReadRepeats(rt, a)
		for range rapid.IntRange(1, 4).Draw(rt, "merges") {
			drawMerge(rt, a)
		}
		if err := a.RemoveReplaced(t.Context(), 0); err != nil {
			rt.Fatal(err)
		}

		// Read from every cursor, all envelopes and only the facts.
		a = mustOpen(rt, b)
		want := toArchival(envs)
		portion := rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "portion")
		for from := range len(envs) + 1 {
			cursor := events.Cursor{Log: testLog}
			if from > 0 {
				cursor = want[from-1].Cursor
			}
			got, err := readAll(a, cursor, events.AllKinds, portion)
			if err != nil {
				rt.Fatal(err)
			}
			if d := diffEnvelopes(want[from:], got); d != "" {
				rt.Fatalf("envelopes from %d (-want +got):\n%s", from, d)
			}

			got, err = readAll(a, cursor, events.AllKinds&^ActivityKinds, portion)
			if err != nil {
				rt.Fatal(err)
			}
			if d := diffEnvelopes(keepFacts(want[from:]), got); d != "" {
				rt.Fatalf("facts from %d (-want +got):\n%s", from, d)
			}
		}

		if err := a.Check(t.Context(), nil); err != nil {
			rt.Fatal(err)
		}

		// There are as many events as before, in at most as many segments.
		after := a.Info()
		for c := range after.Classes {
			old, merged := before.Classes[c], after.Classes[c]
			if merged.Events != old.Events {
				rt.Fatalf("events of class %d after the merges: got %d, want %d", c, merged.Events, old.Events)
			}
			if merged.Segments > old.Segments || merged.Segments == 0 && old.Segments > 0 {
				rt.Fatalf("segments of class %d after the merges: got %d, want at most %d and not none", c, merged.Segments, old.Segments)
			}
		}

		if after.End != before.End || after.Envelopes != before.Envelopes {
			rt.Fatalf("archive after the merges: got %+v, want the end and the envelopes of %+v", after, before)
		}
		if diff := cmp.Diff(repeats, mustReadRepeats(rt, a), cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("repeats after the merges (-want +got):\n%s", diff)
		}
		named := 1 + after.Classes[Facts].Segments + after.Classes[Activity].Segments + len(a.currentManifest().recent)
		if len(b.objects) != named {
			rt.Fatalf("objects: got %d, want the %d that the manifest names", len(b.objects), named)
		}
	})
}

// mustReadRepeats returns the event ids that the archive remembers at its end.
func mustReadRepeats(t fataler, a *Archive) []events.Repeat {
	t.Helper()
	r, err := a.ReadRepeats(context.Background())
	if err := errors.Join(append(r.Damaged, err)...); err != nil {
		t.Fatal(err)
	}
	return r.Repeats
}

// TestReaderContinuesInMergedFiles tests I4: a reader whose files are merged and removed while it
// reads, and one that begins with an outdated manifest, continue in the merged files. They get no
// envelope twice, miss none, and get none after the end at which they began.
func TestReaderContinuesInMergedFiles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newMemoryBucket()
		envs := drawLog(rt, 25)
		parts := drawSegments(rt, envs)
		sealedParts := rapid.IntRange(1, len(parts)).Draw(rt, "sealed when reading begins")
		a := mustOpen(rt, b)
		other := mustOpen(rt, b)
		mustSeal(rt, other, parts[:sealedParts]...)
		if err := a.Reload(t.Context()); err != nil {
			rt.Fatal(err)
		}

		// Begin to read, and read some envelopes.
		kinds := rapid.SampledFrom([]events.KindSet{events.AllKinds, events.AllKinds &^ ActivityKinds}).Draw(rt, "kinds")
		sealed := slices.Concat(parts[:sealedParts]...)
		want := toArchival(sealed)
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

		// Another process seals, merges and removes files while the reader continues.
		for range rapid.IntRange(1, 2).Draw(rt, "rounds") {
			if sealedParts < len(parts) {
				mustSeal(rt, other, parts[sealedParts])
				sealedParts++
			}
			drawMerge(rt, other)
			if err := other.RemoveReplaced(t.Context(), 0); err != nil {
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

		if !errors.Is(err, io.EOF) {
			rt.Fatalf("end of the reader: got error %v, want %v", err, io.EOF)
		}
		if d := diffEnvelopes(want, got); d != "" {
			rt.Fatalf("reader during the merges (-want +got):\n%s", d)
		}

		// A reader with the manifest of before gets at least what was sealed then.
		outdated := mustOpen(rt, b)
		outdated.manifest = previous
		from := rapid.IntRange(0, len(sealed)).Draw(rt, "from")
		cursor := events.Cursor{Log: testLog}
		if from > 0 {
			cursor = toArchival(sealed)[from-1].Cursor
		}
		all, err := readAll(outdated, cursor, events.AllKinds, 1)
		if err != nil {
			rt.Fatal(err)
		}
		if from+len(all) < len(sealed) {
			rt.Fatalf("envelopes from %d with the outdated manifest: got %d, want at least %d", from, len(all), len(sealed)-from)
		}
		for i := range all { // the cursor of the last envelope depends on the end
			all[i].Cursor = toArchival(envs)[from+i].Cursor
		}
		if d := diffEnvelopes(toArchival(envs)[from:from+len(all)], all); d != "" {
			rt.Fatalf("envelopes from %d with the outdated manifest (-want +got):\n%s", from, d)
		}
	})
}

// TestInterruptedMergeKeepsContent tests I3: wherever a merge or the removal of the merged files is
// interrupted, the archive has the same content as before, and the next merge has the same result as
// an uninterrupted one.
func TestInterruptedMergeKeepsContent(t *testing.T) {
	ctx := t.Context()
	before := buildSmallSegments(20)
	mergeAll := func(a *Archive) error {
		for {
			done, err := a.Merge(ctx, nil)
			if err = errors.Join(err, a.RemoveReplaced(ctx, 0)); err != nil || done.Replaced == 0 {
				return err
			}
		}
	}

	describeSegments := func(a *Archive) (text string) {
		for _, seg := range a.currentManifest().segments {
			text += fmt.Sprint(seg.class, seg.first, seg.last, seg.events, seg.envelopes, seg.bytes, "\n")
		}
		return text
	}

	// The model is an archive that is merged without an interruption.
	memory := newMemoryBucket()
	model := mustOpen(t, memory)
	mustSeal(t, model, before...)
	sealed := maps.Clone(memory.objects)
	wantContent := describeContent(t, model)
	if err := mergeAll(model); err != nil {
		t.Fatal(err)
	}
	wantSegments := describeSegments(model)
	if diff := cmp.Diff(wantContent, describeContent(t, model)); diff != "" {
		t.Fatalf("content of the merged archive (-want +got):\n%s", diff)
	}
	if got := len(model.currentManifest().segments); got > 8 {
		t.Fatalf("segments of the merged archive: got %d, want at most 8", got)
	}

	for _, afterwards := range []bool{false, true} {
		for n, crashed := 1, true; crashed; n++ {
			b := newMemoryBucket()
			maps.Copy(b.objects, sealed)
			faulty := &faultyBucket{Bucket: b, operationsLeft: 1 << 30}
			a := mustOpen(t, faulty)
			faulty.operationsLeft, faulty.failAfterwards = n, afterwards
			err := mergeAll(a)
			crashed = err != nil
			if crashed && !errors.Is(err, errCrash) {
				t.Fatalf("crash at operation %d: got error %v, want %v", n, err, errCrash)
			}

			a = mustOpen(t, b)
			if got := describeContent(t, a); got != wantContent {
				t.Fatalf("crash at operation %d (after it: %v): content (-want +got):\n%s", n, afterwards, cmp.Diff(wantContent, got))
			}

			if err := errors.Join(a.Check(ctx, nil), a.Sweep(ctx), mergeAll(a)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantSegments, describeSegments(a)); diff != "" {
				t.Fatalf("segments merged after a crash at operation %d (after it: %v) (-want +got):\n%s", n, afterwards, diff)
			}
			if diff := cmp.Diff(wantContent, describeContent(t, a)); diff != "" {
				t.Fatalf("content merged after a crash at operation %d (after it: %v) (-want +got):\n%s", n, afterwards, diff)
			}
			named := 1 + len(a.currentManifest().segments) + len(a.currentManifest().recent)
			if got := len(b.objects); got != named {
				t.Fatalf("objects after a crash at operation %d (after it: %v): got %d, want the %d that the manifest names", n, afterwards, got, named)
			}
		}
	}
}

// describeContent returns the content of an archive, and the event ids that are stored for a reader at
// its end, as text.
func describeContent(t *testing.T, a *Archive) string {
	t.Helper()
	return describeArchive(t, a, mustReadRepeats(t, a))
}

// describeArchive returns the content of an archive and the event ids that were read from it, as
// text.
func describeArchive(t *testing.T, a *Archive, repeats []events.Repeat) string {
	t.Helper()
	envs, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20)
	if err != nil {
		t.Fatal(err)
	}

	var text bytes.Buffer
	fmt.Fprintln(&text, a.End(), a.Epoch(), a.Predecessors(), repeats)
	for _, env := range envs {
		fmt.Fprintln(&text, *env)
	}
	return text.String()
}

// buildSmallSegments returns a log of n envelopes with both classes, one envelope per segment.
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

// TestMergeStaysWithinEpochs checks that merges join ranges only within an epoch.
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

	wantContent := describeContent(t, a)
	for {
		done, err := a.Merge(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if done.Replaced == 0 {
			break
		}
		if done.First <= 30 && done.Last > 30 {
			t.Errorf("merge: got %d to %d, want one within an epoch, which changes after 30", done.First, done.Last)
		}
		if done.Segments != 2 || done.Bytes == 0 {
			t.Errorf("result of the merge: got %d segments with %d bytes, want 2 with more than 0", done.Segments, done.Bytes)
		}
	}

	if n := len(a.currentManifest().segmentRanges()); n > 32 {
		t.Errorf("ranges after all merges: got %d, want at most 32", n)
	}
	if diff := cmp.Diff(wantContent, describeContent(t, a)); diff != "" {
		t.Errorf("content after all merges (-want +got):\n%s", diff)
	}
}

// TestScrubRemovesFilesReplacedByMerge tests I12: a scrub also removes the files that a merge has
// replaced and that still wait to be removed.
func TestScrubRemovesFilesReplacedByMerge(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	parts := buildSmallSegments(20)
	parts[4][0].Events[1].User = "erased-user"
	mustSeal(t, a, parts...)

	// The files that the merge has replaced wait for the end of the grace period.
	if done := mergeRanges(t, a, 0, 19); done.Replaced != 20 || done.Segments != 2 {
		t.Fatalf("merge: got %+v, want 20 files replaced by 2", done)
	}
	if got := len(b.objects); got < 22 {
		t.Fatalf("objects after the merge: got %d, want at least 22", got)
	}
	if err := a.RemoveReplaced(t.Context(), time.Hour); err != nil || len(b.objects) < 22 {
		t.Fatalf("files within the grace period: got %d objects and error %v, want at least 22", len(b.objects), err)
	}

	if _, err := a.Scrub(t.Context(), matchUser("erased-user"), nil, nil); err != nil {
		t.Fatal(err)
	}
	objects, err := b.List(t.Context(), objectPrefix)
	if want := 3 + len(a.currentManifest().recent); err != nil || len(objects) != want {
		t.Errorf("objects after the scrub: got %v and error %v, want the %d that the manifest names", objects, err, want)
	}
	if bucketContains(t, a, "erased-user") {
		t.Error("erased id after the scrub: got it in a file, want none")
	}
}

// TestMergeExcludesScrubAndSweep checks that no merge runs during a scrub, and no scrub during a
// merge. Sealing continues during a merge.
func TestMergeExcludesScrubAndSweep(t *testing.T) {
	ctx := t.Context()
	a := mustOpen(t, newMemoryBucket())
	mustSeal(t, a, buildSmallSegments(20)...)
	done, err := a.Scrub(ctx, func(ev *events.Event) (*events.Event, bool) {
		if done, err := a.Merge(ctx, nil); done.Replaced > 0 || err != nil {
			t.Errorf("merge during a scrub: got %+v and error %v, want no merge", done, err)
		}
		return ev, true
	}, nil, nil)
	if done != (ScrubResult{}) || err != nil {
		t.Fatalf("scrub: got %+v and error %v, want nothing changed", done, err)
	}

	// Seal two segments during a merge, which calls the throttle after each file.
	calls := 0
	more := buildSmallSegments(22)
	merged, err := a.Merge(ctx, func(_ context.Context, worked time.Duration) error {
		calls++
		if calls <= 2 {
			mustSeal(t, a, more[19+calls]) //nolint:contextcheck // of the test
		}
		if worked < 0 {
			t.Errorf("time that the merge has worked: got %v, want at least 0", worked)
		}
		if a.rewriteMu.TryLock() {
			t.Error("lock of a scrub during the merge: got it, want it held by the merge")
		}
		return nil
	})
	if err != nil || merged.Replaced == 0 {
		t.Fatalf("merge: got %+v and error %v, want some files replaced", merged, err)
	}
	if calls < merged.Replaced {
		t.Fatalf("calls of throttle: got %d, want at least one for each of %d files", calls, merged.Replaced)
	}
	if got := a.End().Seq; got != 22 {
		t.Fatalf("end of the archive after the merge: got %d, want 22", got)
	}
	if err := a.Check(ctx, nil); err != nil {
		t.Error(err)
	}

	// A merge ends when its context ends while it is throttled.
	mustSeal(t, a, buildSmallSegments(44)[22:]...)
	canceled, cancel := context.WithCancel(ctx)
	_, err = a.Merge(canceled, func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("merge with an ended context: got error %v, want %v", err, context.Canceled)
	}
}

// TestCheckFollowsMerge checks that if a file is merged while a check runs, the check continues in the
// file that replaced it.
func TestCheckFollowsMerge(t *testing.T) {
	ctx := t.Context()
	for segment := range 20 {
		b := newMemoryBucket()
		a := mustOpen(t, b)
		other := mustOpen(t, b)
		mustSeal(t, other, buildSmallSegments(20)...)

		calls := 0
		var done, total uint64 // bytes
		err := a.Check(ctx, func(d, all uint64) {
			calls++
			if calls == 3*segment+1 {
				mustSeal(t, other, buildSmallSegments(21)[20:]...) //nolint:contextcheck // of the test
				mergeRanges(t, other, 4, 15)                       //nolint:contextcheck // of the test
				if err := other.RemoveReplaced(ctx, 0); err != nil {
					t.Error(err)
				}
			}
			done, total = d, all
		})
		if err != nil || done != total || total == 0 {
			t.Errorf("merge during segment %d: got error %v and %d of %d bytes, want all", segment, err, done, total)
		}
	}

	// A file that nothing has replaced is damage.
	b := newMemoryBucket()
	a := mustOpen(t, b)
	mustSeal(t, a, buildSmallSegments(3)...)
	missing := a.currentManifest().segments[1].name
	if err := b.Delete(ctx, missing); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(ctx, nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), missing) {
		t.Errorf("check with a missing file: got error %v, want %v with %q", err, ErrDamaged, missing)
	}
}

// TestGrowthCoversRequestedSpan checks that Growth counts the bytes of the last ranges that together
// span at least the requested time, and never the first range.
func TestGrowthCoversRequestedSpan(t *testing.T) {
	a := mustOpen(t, newMemoryBucket())
	if n, over := a.Growth(1); n != 0 || over != 0 {
		t.Errorf("growth of an empty archive: got %d bytes in %d, want 0 in 0", n, over)
	}

	mustSeal(t, a, buildSmallSegments(30)...)
	mergeRanges(t, a, 0, 9)
	mergeRanges(t, a, 1, 10)
	segs := a.currentManifest().segments
	lastTwo := uint64(segs[len(segs)-1].bytes + segs[len(segs)-2].bytes)
	if n, over := a.Growth(1500); over != 2000 || n != lastTwo {
		t.Errorf("growth over 1500: got %d bytes in %d, want %d in 2000", n, over, lastTwo)
	}

	afterFirstRange := uint64(0)
	for _, s := range segs[2:] {
		afterFirstRange += uint64(s.bytes)
	}
	if n, over := a.Growth(1 << 40); over != 20_000 || n != afterFirstRange {
		t.Errorf("growth over everything: got %d bytes in %d, want %d in 20000", n, over, afterFirstRange)
	}
}

// TestMergesKeepRangesFew checks that however many events are sealed per hour, the number of ranges
// stays small, an event is rewritten at most logarithmically often, and large ranges are not merged.
func TestMergesKeepRangesFew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type mergedRange struct {
			segmentRange
			depth int // how often its events were rewritten
		}
		scale := rapid.SampledFrom([]uint64{1, 50, 1000, 100_000}).Draw(t, "events per hour")
		perEvent := rapid.SampledFrom([]uint64{5, 30}).Draw(t, "bytes per event")
		random := rapid.Uint64().Draw(t, "seed")
		var ranges []mergedRange
		var total int64

		// Seal one range per hour, with fewer events at night.
		for hour := range 800 {
			random = random*6364136223846793005 + 1442695040888963407
			weight := 1 + random>>33%(2*scale)
			if hour%24 < 8 {
				weight = 1 + weight/10
			}
			s := segmentRange{bytes: int64(300 + perEvent*weight), entries: weight, startsEpoch: hour == 400}
			total += s.bytes
			ranges = append(ranges, mergedRange{segmentRange: s})

			// Merge as long as there is something to merge.
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
				sum := mergedRange{segmentRange: segmentRange{startsEpoch: small[0].startsEpoch}}
				largest := uint64(0)
				for i, s := range small {
					if i > 0 && s.startsEpoch || s.begin != from+i {
						t.Fatalf("ranges to merge: got %+v, want neighbors of one epoch", small)
					}
					sum.bytes += s.bytes
					sum.entries += s.entries
					sum.depth = max(sum.depth, ranges[from+i].depth+1)
					largest = max(largest, s.entries)
				}

				if sum.bytes > MergedBytes {
					t.Fatalf("size of the merged range: got %d bytes, want at most %d", sum.bytes, MergedBytes)
				}
				if sum.entries < mergeFactor*largest {
					t.Fatalf("events of the merged range: got %d, want at least %d", sum.entries, mergeFactor*largest)
				}
				ranges = slices.Replace(ranges, from, from+len(small), sum)
			}

			if most := 2*16*5 + int(total/(MergedBytes/mergeFactor)); len(ranges) > most {
				t.Fatalf("ranges of %d bytes after %d hours: got %d, want at most %d", total, hour, len(ranges), most)
			}
		}

		for _, r := range ranges {
			if weight := uint64(1) << (3 * r.depth); weight > r.entries {
				t.Fatalf("range of %d events: got %d rewrites, want at most the logarithm to base 8", r.entries, r.depth)
			}
		}
	})
}
