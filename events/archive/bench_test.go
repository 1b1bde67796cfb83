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

// workload makes n events of random users and items (or peers) in envelopes of 100, as the reader of the stream gives them.
func workload(t testing.TB, kind events.Kind, n, users, items int, id func(int) string) []*events.Envelope {
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

func dense(i int) string { return fmt.Sprint(i + 1) }

// sparse ids are random and have 60 bits.
func sparse(i int) string {
	x := uint64(i+1) * 0x9e3779b97f4a7c15
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 29
	return fmt.Sprint(x>>4 | 1<<59)
}

var workloads = []struct {
	name         string
	kind         events.Kind
	users, items int
	id           func(int) string
	atMost       float64 // bytes an event
}{
	{"plays/dense", events.Played, 100_000, 1_000_000, dense, 12},
	{"plays/60bit", events.Played, 100_000, 1_000_000, sparse, 20},
	{"follows/dense", events.UserFollowed, 100_000, 100_000, dense, 20},
	{"follows/60bit", events.UserFollowed, 100_000, 100_000, sparse, 20},
}

// Bytes an event in the archive; how fast it is written, verification included, and read.
func BenchmarkArchive(b *testing.B) {
	const n = 1_000_000
	for _, w := range workloads {
		b.Run("write/"+w.name, func(b *testing.B) {
			envs := workload(b, w.kind, n, w.users, w.items, w.id)
			var a *Archive
			for b.Loop() {
				a = open(b, newMemory())
				seal(b, a, envs)
			}
			report(b, a, envs, n)
		})
		b.Run("read/"+w.name, func(b *testing.B) {
			a := open(b, newMemory())
			seal(b, a, workload(b, w.kind, n, w.users, w.items, w.id)) // a fold keeps no events: nor is the heap full of them
			b.ReportAllocs()
			for b.Loop() {
				drain(b, a)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func report(b *testing.B, a *Archive, envs []*events.Envelope, n int) {
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

func drain(t testing.TB, a *Archive) {
	t.Helper()
	r, err := a.Read(context.Background(), events.Cursor{Log: testLog}, events.AllKinds)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		if _, err := r.Next(context.Background(), 1<<20); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// The archive of plays and follows is as small as was promised.
func TestBytes(t *testing.T) {
	for _, w := range workloads {
		const n = 200_000
		a := open(t, newMemory())
		seal(t, a, workload(t, w.kind, n, w.users, w.items, w.id))
		info := a.Info()
		got := float64(info.Classes[Facts].Bytes+info.Classes[Activity].Bytes) / n
		t.Logf("%s: %.2f bytes an event", w.name, got)
		if got > w.atMost {
			t.Errorf("%s: %.2f bytes an event, at most %v", w.name, got, w.atMost)
		}
	}
}
