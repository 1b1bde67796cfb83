package rebuild

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// someFollows returns envelopes of 100 follows each between so many users, of whom some have most followers.
func someFollows(n, users int) (envs []*events.Envelope) {
	r := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(r, 1.1, 50, uint64(users-1))
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	for range n / 100 {
		c.Seq++
		env := &events.Envelope{Kinds: events.Kinds(events.UserFollowed), Bytes: 3000}
		for slot := range 100 {
			user, peer := strconv.Itoa(r.IntN(users)), strconv.FormatUint(popular.Uint64(), 10)
			if user == peer {
				continue
			}
			c.LastTime++
			env.Events = append(env.Events, events.Event{
				Kind: events.UserFollowed, User: user, Peer: peer, Time: c.LastTime, Seq: c.Seq, Slot: uint16(slot),
			})
		}
		env.Cursor = c
		envs = append(envs, env)
	}
	return envs
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBuild folds follows into the graph, with the bounds of serving and with those of a build, and the
// compaction after it. It reports events per second, and seconds of processor time per million.
func BenchmarkBuild(b *testing.B) {
	envs := someFollows(200_000, 200_000)
	b.Run("serving", func(b *testing.B) { build(b, envs, projections.Bounds{}) })
	b.Run("bulk", func(b *testing.B) { build(b, envs, Bulk(graph.New(), 0)) })
}

// BenchmarkBuildBeyondMemory does the same with so many users that their counts do not fit into memory: as a build of ten times
// as many with ten times the memory. Rows are looked up one by one, and those of many events together; at last there is
// memory enough.
func BenchmarkBuildBeyondMemory(b *testing.B) {
	envs := someFollows(4_000_000, 1_000_000)
	small := Bulk(graph.New(), 0)
	for _, bytes := range []*int{&small.KeepBytes, &small.FilterBytes, &small.BatchBytes, &small.FlushBytes, &small.CacheBytes, &small.PrefetchEvents} {
		*bytes /= 10
	}
	b.Run("together", func(b *testing.B) { build(b, envs, small) })
	small.PrefetchEvents = 0
	b.Run("one-by-one", func(b *testing.B) { build(b, envs, small) })
	b.Run("enough", func(b *testing.B) { build(b, envs, Bulk(graph.New(), 0)) })
}

func build(b *testing.B, envs []*events.Envelope, bounds projections.Bounds) {
	var folded, used time.Duration
	for b.Loop() {
		cache := projections.NewCache(512 << 20)
		s, err := projections.Open(projections.Options{Dir: b.TempDir(), Projection: graph.New(), Bounds: bounds, Cache: cache})
		if err != nil {
			b.Fatal(err)
		}
		began, busy := time.Now(), cpu()
		for rest := envs; len(rest) > 0; rest = rest[min(len(rest), 2000):] {
			if err := s.Fold(rest[:min(len(rest), 2000)]); err != nil {
				b.Fatal(err)
			}
		}
		folded += time.Since(began)
		if err := s.Compact(b.Context()); err != nil {
			b.Fatal(err)
		}
		used += cpu() - busy
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		cache.Unref()
	}
	per := float64(b.N) * 100 * float64(len(envs))
	b.ReportMetric(per/folded.Seconds(), "folded/s")
	b.ReportMetric(per/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(used.Seconds()/per*1e6, "cpu-s/M")
}
