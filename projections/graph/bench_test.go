package graph_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/store"
)

// makeFollowEnvelopes returns n live follows in envelopes of 100. The followers are n/10 users, all
// equally often; the followees are the same users, distributed by a power law.
func makeFollowEnvelopes(n int) []*events.Envelope {
	r := rand.New(rand.NewPCG(1, 2))
	users := n / 10
	popular := rand.NewZipf(r, 1.1, 10, uint64(users-1))
	list := make([]events.Event, n)
	for i := range list {
		ev := &list[i]
		ev.Kind = events.UserFollowed
		ev.Seq = uint64(i/100 + 1)
		ev.Slot = uint16(i % 100)
		ev.Time = histories.Start + events.Micros(i)*10
		ev.User = strconv.Itoa(r.IntN(users) + 1)
		ev.Peer = strconv.FormatUint(popular.Uint64()+1, 10)
		if ev.User == ev.Peer {
			ev.Peer = strconv.Itoa(users + 1)
		}
	}
	return histories.Envelopes(list)
}

// BenchmarkFold folds follows into a store on disk, 64 envelopes of 100 at a time. One operation is
// one follow.
func BenchmarkFold(b *testing.B) {
	envs := makeFollowEnvelopes(max(b.N, 10_000))
	cache := store.NewCache(512 << 20)
	defer cache.Unref()
	s, err := store.Open(store.Options{Dir: b.TempDir(), Projection: graph.New(), Cache: cache})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for len(envs) > 0 {
		n := min(64, len(envs))
		if err := s.Fold(envs[:n]); err != nil {
			b.Fatal(err)
		}
		envs = envs[n:]
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "follows/s")
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
