package build_test

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/counters"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

// newSkewedLog returns envelopes of 100 events each over a month. A few of the items or other users
// have most of the events.
func newSkewedLog(n, users int, of func(user, other string) events.Event) (envs []*events.Envelope) {
	r := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(r, 1.1, 50, uint64(users-1))
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	pause := events.Micros(30*24*time.Hour/time.Microsecond) / events.Micros(n)
	for range n / 100 {
		c.Seq++
		env := &events.Envelope{Bytes: 3000}
		for slot := range 100 {
			c.LastTime += pause
			ev := of(strconv.Itoa(r.IntN(users)), strconv.FormatUint(popular.Uint64(), 10))
			if ev.User == ev.Peer {
				continue
			}
			ev.Time, ev.Seq, ev.Slot = c.LastTime, c.Seq, uint16(slot)
			env.Kinds |= events.Kinds(ev.Kind)
			env.Events = append(env.Events, ev)
		}
		env.Cursor = c
		envs = append(envs, env)
	}
	return envs
}

// BenchmarkBuild builds stores on disk. It reports events per second, seconds of processor time per
// million events, the share of Finish in the processor time, and the estimate of that share from a
// sample after a tenth of the log.
func BenchmarkBuild(b *testing.B) {
	for _, of := range []struct {
		newProjection func() projections.Projection
		event         func(user, other string) events.Event
		events, users int
	}{
		{newSeen, func(user, other string) events.Event {
			return events.Event{Kind: events.Played, User: user, Item: other}
		}, 2_000_000, 100_000},
		{func() projections.Projection { return graph.New() }, func(user, other string) events.Event {
			return events.Event{Kind: events.UserFollowed, User: user, Peer: other}
		}, 2_000_000, 1_000_000},
		{func() projections.Projection { return inbox.New(inbox.DefaultSettings()) }, func(user, other string) events.Event {
			return events.Event{Kind: events.UserFollowed, User: user, Peer: other}
		}, 2_000_000, 1_000_000},
		{func() projections.Projection { return counters.New(counters.DefaultSettings()) }, func(user, other string) events.Event {
			return events.Event{Kind: events.Played, User: user, Item: other}
		}, 2_000_000, 1_000_000},
	} {
		b.Run(of.newProjection().Name(), func(b *testing.B) {
			envs := newSkewedLog(of.events, of.users, of.event)
			b.ResetTimer()
			benchmarkBuild(b, of.newProjection, envs)
		})
	}
}

// BenchmarkPartitions builds 16 of the 256 partitions of 10⁷ and of 10⁸ follows. It reports the
// time of Finish per end of a follow that it folds.
func BenchmarkPartitions(b *testing.B) {
	var held events.Partitions
	for p := range uint8(16) {
		held.Add(p)
	}
	for _, n := range []int{10_000_000, 100_000_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			var took, used time.Duration
			ends := int64(0)
			for b.Loop() {
				builder, err := build.New(build.Options{
					FS: vfs.Default, Dir: b.TempDir() + "/store", New: func() projections.Projection { return graph.New() },
					Partitions: &held, Memory: 3 << 30,
				})
				if err != nil {
					b.Fatal(err)
				}
				if err := addFollows(builder, n, &held); err != nil {
					b.Fatal(err)
				}
				ends += builder.ScatteredEvents()
				busy, began := cpu(), time.Now()
				if err := builder.Finish(b.Context()); err != nil {
					b.Fatal(err)
				}
				took, used = took+time.Since(began), used+cpu()-busy
				if err := builder.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(ends)/took.Seconds(), "ends/s")
			b.ReportMetric(used.Seconds()/float64(ends)*1e6, "cpu-s/M")
		})
	}
}

// addFollows adds n follows, ten by each user. It creates only the events that are delivered to the
// given partitions.
func addFollows(builder *build.Builder, n int, held *events.Partitions) error {
	users := n / 10
	name := func(user int) string { return strconv.Itoa(1_000_000_000_000 + user) }
	homes := make([]bool, users)
	for user := range homes {
		homes[user] = held.Has(events.ShardOf(name(user)).Partition())
	}
	r := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(r, 1.1, 50, uint64(users-1))
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	pause := events.Micros(30*24*time.Hour/time.Microsecond) / events.Micros(n)
	for range n / 1000 {
		c.Seq++
		env := &events.Envelope{Kinds: events.Kinds(events.UserFollowed)}
		for slot := range uint16(1000) {
			c.LastTime += pause
			user, peer := r.IntN(users), int(popular.Uint64())
			if peer < 50 { // the most popular would be a partition's whole work
				peer = r.IntN(users)
			}
			if user == peer || !homes[user] && !homes[peer] {
				continue
			}
			env.Events = append(env.Events, events.Event{
				Kind: events.UserFollowed, User: name(user), Peer: name(peer), Time: c.LastTime, Seq: c.Seq, Slot: slot,
			})
		}
		env.Cursor = c
		if err := builder.Add([]*events.Envelope{env}); err != nil {
			return err
		}
	}
	return nil
}

func benchmarkBuild(b *testing.B, of func() projections.Projection, envs []*events.Envelope) {
	var used, finishing, expected time.Duration
	for b.Loop() {
		busy := cpu()
		builder, err := build.New(build.Options{FS: vfs.Default, Dir: b.TempDir() + "/store", New: of})
		if err != nil {
			b.Fatal(err)
		}
		const chunk = 2000
		for at := 0; at < len(envs); at += chunk {
			if err := builder.Add(envs[at:min(at+chunk, len(envs))]); err != nil {
				b.Fatal(err)
			}
			if at == 0 {
				expected += estimateFinish(b, builder, float64(chunk)/float64(len(envs)))
			}
		}
		added := cpu()
		if err := builder.Finish(b.Context()); err != nil {
			b.Fatal(err)
		}
		finishing += cpu() - added
		if err := builder.Close(); err != nil {
			b.Fatal(err)
		}
		used += cpu() - busy
	}
	per := float64(b.N) * 100 * float64(len(envs))
	b.ReportMetric(per/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(used.Seconds()/per*1e6, "cpu-s/M")
	b.ReportMetric(finishing.Seconds()/used.Seconds(), "finish/all")
	b.ReportMetric(expected.Seconds()/finishing.Seconds(), "expected/finish")
}

// estimateFinish estimates the processor time of Finish from a sample of the events so far, which
// are the given share of all events.
func estimateFinish(b *testing.B, builder *build.Builder, part float64) time.Duration {
	s, busy := builder.Sample(builder.ScatteredEvents()/16), cpu()
	if err := s.Fold(); err != nil {
		b.Fatal(err)
	}
	if err := s.Merge(b.Context()); err != nil {
		b.Fatal(err)
	}
	return time.Duration(float64(cpu()-busy) / part * float64(builder.ScatteredEvents()) / float64(s.Events))
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
