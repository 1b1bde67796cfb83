package store_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/internal/tally"
	"github.com/skein-feed/skein/projections/projectiontest/storetest"
	"github.com/skein-feed/skein/projections/store"
)

// randomFollows returns envelopes of 100 random follows each. A few of the users have most of the
// followers.
func randomFollows(seed uint64, n, users int) []*events.Envelope {
	r := rand.New(rand.NewPCG(seed, 2))
	popular := rand.NewZipf(r, 1.1, 50, uint64(users-1))
	lists := make([][]events.Event, n/100)
	for i := range lists {
		for range 100 {
			user, peer := strconv.Itoa(r.IntN(users)), strconv.FormatUint(popular.Uint64(), 10)
			if user != peer {
				lists[i] = append(lists[i], storetest.Follow(user, peer))
			}
		}
	}
	return storetest.Envelopes(lists...)
}

func benchStore(b *testing.B, p projections.Projection, cacheBytes int64) *store.Store {
	cache := store.NewCache(cacheBytes)
	s, err := store.Open(store.Options{Dir: b.TempDir(), Projection: p, Cache: cache})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
		cache.Unref()
	})
	return s
}

// BenchmarkFold folds follows into a store on disk: a hundred envelopes per call, as under load,
// and one per call, as in an idle service. It reports events per second.
func BenchmarkFold(b *testing.B) {
	const users = 100_000
	for name, p := range map[string]func() projections.Projection{
		"tally": newTally, "graph": func() projections.Projection { return graph.New() },
	} {
		for _, each := range []int{100, 1} {
			b.Run(name+"/"+strconv.Itoa(100*each), func(b *testing.B) {
				s := benchStore(b, p(), 256<<20)
				envs := randomFollows(1, max(b.N, 10000), users)
				b.ReportAllocs()
				b.ResetTimer()
				done := 0
				for rest := envs; len(rest) > 0 && done < b.N; {
					n := min(each, len(rest))
					if err := s.Fold(rest[:n]); err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
					done += 100 * n
				}
				b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkGet looks up single rows, some of which exist, in a store of a million edges.
func BenchmarkGet(b *testing.B) {
	const users = 100_000
	s := benchStore(b, tally.New(), 256<<20)
	if err := s.Fold(randomFollows(1, 1_000_000, users)); err != nil {
		b.Fatal(err)
	}
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%+v", s.Status())
	v, err := s.View()
	if err != nil {
		b.Fatal(err)
	}
	for name, key := range map[string]func(id string) []byte{
		"hit": tally.CountKey, "miss": func(id string) []byte { return tally.CountKey("x" + id) },
	} {
		b.Run(name, func(b *testing.B) {
			r := rand.New(rand.NewPCG(3, 4))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := v.Get(key(strconv.Itoa(r.IntN(users)))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("page of 20", func(b *testing.B) {
		r := rand.New(rand.NewPCG(3, 4))
		b.ReportAllocs()
		for b.Loop() {
			prefix := tally.EdgePrefix(strconv.Itoa(r.IntN(users)))
			it := v.Iter(prefix, projections.PrefixEnd(prefix))
			for n := 0; n < 20 && it.Next(); n++ {
				_ = it.Value()
			}
			if err := it.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	if err := v.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("view", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			v, err := s.View()
			if err != nil {
				b.Fatal(err)
			}
			if err := v.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
