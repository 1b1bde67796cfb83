package events

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/proto"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// encodeFollows returns an envelope of n live follows between users with 8-digit ids. The numbers of
// the users begin at from. With withIDs, each event has an event id of its own.
func encodeFollows(tb testing.TB, from, n int, withIDs bool) []byte {
	tb.Helper()
	evs := make([]*skeinv1.Event, n)
	for i := range evs {
		evs[i] = &skeinv1.Event{Kind: &skeinv1.Event_UserFollowed{UserFollowed: &skeinv1.UserFollowed{
			UserId: fmt.Sprint(10_000_000 + from + i), TargetUserId: fmt.Sprint(20_000_000 + 7*(from+i)),
		}}}
		if withIDs {
			evs[i].EventId = fmt.Sprintf("req-%08d", from+i)
		}
	}

	data, err := EncodeEnvelope(evs)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// reportEvents reports the rate of a benchmark that handles perOp events per operation.
func reportEvents(b *testing.B, perOp int) {
	b.ReportMetric(float64(perOp)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkDecode decodes envelopes of 100 follows with the decoder of readers, without event ids,
// with a new event id in every event, and with all kinds, and also with the standard protobuf
// decoder, which neither checks events nor assigns times.
func BenchmarkDecode(b *testing.B) {
	const n = 100

	// Without this memory, the garbage collector would run every few milliseconds on an almost empty
	// heap, and the benchmarks would measure little else.
	ballast := make([]byte, 128<<20)
	defer runtime.KeepAlive(ballast)
	b.Run("skein", func(b *testing.B) {
		data := encodeFollows(b, 0, n, false)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		d := NewDecoder(Cursor{})
		for i := range b.N {
			env, err := d.Decode(uint64(i+1), Micros(i)*1000, data)
			if err != nil || len(env.Events) != n {
				b.Fatalf("Decode: got %+v and error %v, want %d events", env, err, n)
			}
		}

		reportEvents(b, n)
	})
	b.Run("skein-event-ids", func(b *testing.B) {
		// There are enough envelopes within two horizons that none is a repeat when its turn comes again.
		envelopes := make([][]byte, 256)
		for i := range envelopes {
			envelopes[i] = encodeFollows(b, i*n, n, true)
		}
		b.SetBytes(int64(len(envelopes[0])))
		b.ReportAllocs()
		d := NewDecoder(Cursor{})
		for i := range b.N {
			env, err := d.Decode(uint64(i+1), Micros(i)*Horizon/128, envelopes[i%256])
			if err != nil || len(env.Events) != n {
				b.Fatalf("Decode: got %+v and error %v, want %d events", env, err, n)
			}
		}

		reportEvents(b, n)
	})
	b.Run("every-kind", func(b *testing.B) {
		var evs []*skeinv1.Event
		for _, ev := range newEventsOfEveryKind() {
			// The decoder leaves a backfill_closed in an import to the standard decoder.
			if KindOf(ev) == BackfillClosed {
				continue
			}
			ev.EventId = ""
			evs = append(evs, ev)
		}

		data := mustEncode(b, evs...)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		d := NewDecoder(Cursor{})
		for i := range b.N {
			env, err := d.Decode(uint64(i+1), Micros(i)*1000, data)
			if err != nil || len(env.Events) != len(evs) {
				b.Fatalf("Decode: got %+v and error %v, want %d events", env, err, len(evs))
			}
		}

		reportEvents(b, len(evs))
	})
	b.Run("standard", func(b *testing.B) {
		data := encodeFollows(b, 0, n, false)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for range b.N {
			var batch skeinv1.EventBatch
			if err := proto.Unmarshal(data, &batch); err != nil || len(batch.Events) != n {
				b.Fatalf("Unmarshal: got %d events and error %v, want %d", len(batch.Events), err, n)
			}
		}

		reportEvents(b, n)
	})
}

// BenchmarkWindow remembers a million event ids and their contents, as a decoder does, and reports
// the time and memory that it takes.
func BenchmarkWindow(b *testing.B) {
	const n = 1 << 20
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var w repeatWindow
		for i := range uint64(n) {
			key := xxh3.Hash(binary.LittleEndian.AppendUint64(nil, i))
			w.remember(key, Micros(i))
			w.remember(key^contentSalt, Micros(i))
		}

		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "bytes/id")
		runtime.KeepAlive(w)
	}

	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "ids/s")
}
