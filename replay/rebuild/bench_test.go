package rebuild

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

// someFollows returns envelopes of 100 follows each between so many users, of whom some have most followers.
func someFollows(n, users int) []*events.Envelope {
	return some(n, users, func(user, other string) (ev events.Event, ok bool) {
		return events.Event{Kind: events.UserFollowed, User: user, Peer: other}, user != other
	})
}

// somePlays returns envelopes of 100 plays each by so many users, of as many items, of which some are played most.
func somePlays(n, users int) []*events.Envelope {
	return some(n, users, func(user, other string) (ev events.Event, ok bool) {
		return events.Event{Kind: events.Played, User: user, Item: other}, true
	})
}

func newGraph() projections.Projection { return graph.New() }

func some(n, users int, of func(user, other string) (events.Event, bool)) (envs []*events.Envelope) {
	r := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(r, 1.1, 50, uint64(users-1))
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	for range n / 100 {
		c.Seq++
		env := &events.Envelope{Bytes: 3000}
		for slot := range 100 {
			ev, ok := of(strconv.Itoa(r.IntN(users)), strconv.FormatUint(popular.Uint64(), 10))
			if !ok {
				continue
			}
			c.LastTime++
			ev.Time, ev.Seq, ev.Slot = c.LastTime, c.Seq, uint16(slot)
			env.Kinds |= events.Kinds(ev.Kind)
			env.Events = append(env.Events, ev)
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
	b.Run("serving", func(b *testing.B) { build(b, envs, newGraph, projections.Bounds{}) })
	b.Run("bulk", func(b *testing.B) { build(b, envs, newGraph, Bulk(graph.New(), 0)) })
}

// BenchmarkBuildBeyondMemory does the same, and with plays and counters, with so many users that their counts do not fit into memory:
// as a build of ten times as many with ten times the memory. Rows are looked up one by one, and those of many events together; at
// last there is memory enough.
func BenchmarkBuildBeyondMemory(b *testing.B) {
	for _, of := range []struct {
		envs    []*events.Envelope
		project func() projections.Projection
	}{
		{someFollows(4_000_000, 1_000_000), newGraph},
		{someFollows(2_000_000, 1_000_000), func() projections.Projection { return inbox.New(inbox.DefaultSettings()) }},
		{somePlays(2_000_000, 1_000_000), func() projections.Projection { return counters.New(counters.DefaultSettings()) }},
	} {
		small := Bulk(of.project(), 0)
		for _, size := range []*int{
			&small.KeepBytes, &small.FilterBytes, &small.BatchBytes, &small.FlushBytes, &small.CacheBytes, &small.PrefetchEvents,
		} {
			*size /= 10
		}
		alone := small
		alone.PrefetchEvents = 0
		for name, bounds := range map[string]projections.Bounds{"together": small, "one-by-one": alone, "enough": Bulk(of.project(), 0)} {
			b.Run(of.project().Name()+"/"+name, func(b *testing.B) { build(b, of.envs, of.project, bounds) })
		}
	}
}

func build(b *testing.B, envs []*events.Envelope, project func() projections.Projection, bounds projections.Bounds) {
	var folded, used time.Duration
	for b.Loop() {
		cache := projections.NewCache(512 << 20)
		s, err := projections.Open(projections.Options{Dir: b.TempDir(), Projection: project(), Bounds: bounds, Cache: cache})
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
