package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// newWorkload returns n events of random users and items (or peers) in envelopes of 100 events, as
// a reader of the stream returns them.
func newWorkload(t testing.TB, kind events.Kind, n, users, items int, id func(int) string) []*events.Envelope {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	d := events.NewDecoder(events.Cursor{Log: testLog, Epoch: 1})
	now := start
	envs := make([]*events.Envelope, 0, n/100)
	for seq := range n / 100 {
		msgs := make([]*skeinv1.Event, 100)
		for i := range msgs {
			ev := events.Event{Kind: kind, User: id(r.IntN(users)), Item: id(r.IntN(items)), ID: fmt.Sprintf("%x", r.Uint64())}
			ev.Peer = ev.Item
			msgs[i] = ev.Proto()
		}

		data, err := events.EncodeEnvelope(msgs)
		if err != nil {
			t.Fatal(err)
		}
		now += events.Micros(500 + r.IntN(1000))
		env, err := d.Decode(uint64(seq+1), now, data)
		if err != nil {
			t.Fatal(err)
		}
		envs = append(envs, env)
	}

	return envs
}

// denseID returns consecutive numbers as ids.
func denseID(i int) string { return fmt.Sprint(i + 1) }

// sparseID returns ids that look random and have 60 bits.
func sparseID(i int) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 29
	return fmt.Sprint(x>>4 | 1<<59)
}

// workloads are the logs of the benchmarks, and the sizes that their archives may have.
var workloads = []struct {
	name         string
	kind         events.Kind
	users, items int
	id           func(int) string
	maxBytes     float64 // per event
}{
	{"plays/dense", events.Played, 100_000, 1_000_000, denseID, 12},
	{"plays/60bit", events.Played, 100_000, 1_000_000, sparseID, 20},
	{"follows/dense", events.UserFollowed, 100_000, 100_000, denseID, 20},
	{"follows/60bit", events.UserFollowed, 100_000, 100_000, sparseID, 20},
}

// BenchmarkArchive reports the bytes per event in the archive, and how fast events are written,
// including their verification, and read.
func BenchmarkArchive(b *testing.B) {
	const n = 1_000_000
	for _, w := range workloads {
		b.Run("write/"+w.name, func(b *testing.B) {
			envs := newWorkload(b, w.kind, n, w.users, w.items, w.id)
			var a *Archive
			for b.Loop() {
				a = mustOpen(b, newMemoryBucket())
				mustSeal(b, a, envs)
			}

			reportSizes(b, a, envs, n)
		})
		b.Run("read/"+w.name, func(b *testing.B) {
			a := mustOpen(b, newMemoryBucket())
			mustSeal(b, a, newWorkload(b, w.kind, n, w.users, w.items, w.id)) // the events are not kept, as in a fold
			b.ReportAllocs()
			for b.Loop() {
				readToEnd(b, a)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// reportSizes reports the bytes per event in the archive and in the stream.
func reportSizes(b *testing.B, a *Archive, envs []*events.Envelope, n int) {
	b.Helper()
	stream := 0
	for _, env := range envs {
		stream += env.Bytes
	}
	info := a.Info()
	b.ReportMetric(float64(info.Classes[Facts].Bytes+info.Classes[Activity].Bytes)/float64(n), "archive-B/event")
	b.ReportMetric(float64(stream)/float64(n), "stream-B/event")
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// readToEnd reads a whole archive.
func readToEnd(t testing.TB, a *Archive) {
	t.Helper()
	r, err := a.Read(context.Background(), events.Cursor{Log: testLog}, events.AllKinds)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		_, err := r.Next(context.Background(), 1<<20)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestBytesPerEventAreBounded checks that archived plays and follows take at most the documented
// number of bytes per event.
func TestBytesPerEventAreBounded(t *testing.T) {
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			const n = maxBlockEvents / 100 * 100 // one block, because no block depends on another
			a := mustOpen(t, newMemoryBucket())
			mustSeal(t, a, newWorkload(t, w.kind, n, w.users, w.items, w.id))

			info := a.Info()
			got := float64(info.Classes[Facts].Bytes+info.Classes[Activity].Bytes) / n
			t.Logf("%.2f bytes per event", got)
			if got > w.maxBytes {
				t.Errorf("bytes per event: got %.2f, want at most %v", got, w.maxBytes)
			}
		})
	}
}

// BenchmarkYear seals some events per hour for a year, with merging. It reports the number of
// files, the size of the manifest, and the bytes that were written for segments and for manifests.
// Without merging there would be a file per class and seal, see BenchmarkManifest.
func BenchmarkYear(b *testing.B) {
	for _, n := range []int{3, 300} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				benchYear(b, n)
			}
		})
	}
}

// benchYear seals and merges a year with the given number of events per hour.
func benchYear(b *testing.B, perHour int) {
	const hours = 8760
	r := rand.New(rand.NewPCG(1, 2))
	written := &countingBucket{memoryBucket: newMemoryBucket()}
	a := mustOpen(b, written)
	var merged, merges uint64

	for h := range uint64(hours) {
		// Seal the events of the hour, in envelopes of three.
		w := a.Writer()
		for i := range uint64(perHour / 3) {
			seq := h*uint64(perHour/3) + i + 1
			at := int64(start) + 3_600_000_000*int64(h) + 1000*int64(i)
			if err := w.Add(newPlays(r, seq, at)); err != nil {
				b.Fatal(err)
			}
		}

		if _, err := w.Seal(context.Background()); err != nil {
			b.Fatal(err)
		}
		for {
			done, err := a.Merge(context.Background(), nil)
			if err != nil {
				b.Fatal(err)
			}
			if done.Replaced == 0 {
				break
			}
			merges++
			merged += done.Bytes
		}

		if err := a.RemoveReplaced(context.Background(), 0); err != nil {
			b.Fatal(err)
		}
	}

	total, files := uint64(0), 0
	for _, c := range a.Info().Classes {
		total += c.Bytes
		files += c.Segments
	}

	b.ReportMetric(float64(files), "files")
	b.ReportMetric(float64(len(a.currentManifest().segmentRanges())), "ranges")
	b.ReportMetric(float64(merges), "merges")
	b.ReportMetric(float64(len(written.objects[ManifestName])), "manifest-B")
	b.ReportMetric(float64(written.manifests)/1e6, "manifests-MB")
	b.ReportMetric(float64(total)/1e6, "archive-MB")
	b.ReportMetric(float64(merged)/1e6, "rewritten-MB")
	b.ReportMetric(float64(written.segments-merged)/1e6, "sealed-MB")
}

// newPlays returns an envelope of two plays and a follow at a time in microseconds.
func newPlays(r *rand.Rand, seq uint64, micros int64) *events.Envelope {
	last := events.Micros(micros)
	env := &events.Envelope{
		Bytes: 120, Kinds: events.Kinds(events.Played, events.UserFollowed),
		Cursor: events.Cursor{Log: testLog, Epoch: 1, Seq: seq, LastTime: last, Checksum: seq, WarmSeq: 1, WarmTime: start},
		Events: make([]events.Event, 3),
	}
	for i := range env.Events {
		env.Events[i] = events.Event{Kind: events.Played, Seq: seq, Slot: uint16(i), Time: last - events.Micros(2-i)}
		env.Events[i].User = denseID(r.IntN(10_000))
		if i == 2 {
			env.Events[i].Kind = events.UserFollowed
			env.Events[i].Peer = denseID(r.IntN(10_000))
		} else {
			env.Events[i].Item = denseID(r.IntN(100_000))
		}
	}

	return env
}

// countingBucket is a bucket that counts the bytes that are written for manifests and for segments.
type countingBucket struct {
	*memoryBucket
	manifests, segments uint64
}

// Put is part of [bucket.Bucket].
func (c *countingBucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if name == ManifestName {
		c.manifests += uint64(size)
	} else {
		c.segments += uint64(size)
	}
	return c.memoryBucket.Put(ctx, name, r, size)
}

// BenchmarkManifest measures what the manifest costs per seal: it is read, compared and written.
func BenchmarkManifest(b *testing.B) {
	for _, n := range []int{100, 1000, 2 * 8760} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := &manifest{log: testLog, epoch: 1, end: events.Cursor{Log: testLog, Epoch: 1, Seq: uint64(n) / 2 * 60, LastTime: start}}
			for i := range uint64(n) {
				s := segment{class: Class(i % 2), first: i/2*60 + 1, last: i/2*60 + 60, lastTime: start, envelopes: 60, events: 3600}
				s.object = object{newObjectName(s.class.String(), s.first, s.last), 30_000, checksum(nil)}
				m.segments = append(m.segments, s)
			}

			a := &Archive{bucket: newMemoryBucket(), log: testLog, manifest: m}
			if err := writeManifest(context.Background(), a.bucket, m); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := a.replaceManifest(context.Background(), a.currentManifest(), a.currentManifest().clone()); err != nil {
					b.Fatal(err)
				}
			}

			b.ReportMetric(float64(len(a.bucket.(*memoryBucket).objects[ManifestName])), "manifest-B")
		})
	}
}
