package audit_test

import (
	"math/rand/v2"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay/audit"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/verify"
)

// followEnvelopes returns envelopes with about n follows among users, some of whom have most
// followers, and one pin per ten follows. Each envelope has about 100 follows and 10 pins.
func followEnvelopes(n, users int) (envs []*events.Envelope) {
	r := rand.New(rand.NewPCG(1, 2))
	popular := rand.NewZipf(r, 1.1, 50, uint64(users-1))
	c := events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: 1_700_000_000_000_000}
	pin := 0

	for range n / 100 {
		c.Seq++
		env := &events.Envelope{Bytes: 3000}
		for slot := range 110 {
			c.LastTime += 1000
			follower := strconv.Itoa(r.IntN(users))
			followee := strconv.FormatUint(popular.Uint64(), 10)
			ev := events.Event{Kind: events.UserFollowed, User: follower, Peer: followee}
			if slot >= 100 {
				pin++
				owner := strconv.Itoa(r.IntN(users))
				ev = events.Event{Kind: events.PinCreated, User: owner, Pin: strconv.Itoa(pin), Item: strconv.Itoa(pin / 3)}
			}
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

// BenchmarkRound audits and verifies stores on disk with 10^6 follows among 10^5 users. It reports
// the processor time of each.
func BenchmarkRound(b *testing.B) {
	envs := followEnvelopes(1_000_000, 100_000)
	log := memlog.New(envs...)
	dir := b.TempDir()
	newProjection := func(i int) projections.Projection { return all.All(all.Settings{})[i] }

	var stores [4]*store.Store
	for i := range stores {
		p := newProjection(i)
		builder, err := build.New(build.Options{
			FS: vfs.Default, Dir: dir + "/" + p.Name() + "/000001", New: func() projections.Projection { return newProjection(i) },
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := builder.Add(envs); err != nil {
			b.Fatal(err)
		}
		if err := builder.Finish(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := builder.Close(); err != nil {
			b.Fatal(err)
		}

		stores[i], err = store.Open(store.Options{FS: vfs.Default, Dir: dir, Projection: p})
		if err != nil {
			b.Fatal(err)
		}
		defer func() {
			if err := stores[i].Close(); err != nil {
				b.Error(err)
			}
		}()
	}

	b.Run("audit", func(b *testing.B) {
		limits := audit.Limits{Feed: 200, FeedTurn: 3, FeedTurns: audit.FeedTurns}
		before := processorTime()
		for b.Loop() {
			a, err := audit.Open(b.Context(), stores[graphStore], stores[inboxStore], stores[countersStore], limits)
			if err != nil {
				b.Fatal(err)
			}
			for shard := events.Shard(0); ; shard++ {
				shard, err = a.NextShard(shard)
				if err != nil {
					b.Fatal(err)
				}
				if shard == events.NumShards {
					break
				}
				if err := a.Shard(b.Context(), shard); err != nil {
					b.Fatal(err)
				}
			}
			for _, f := range a.Findings() {
				b.Errorf("got the finding %v, expected none", f)
			}
			if err := a.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric((processorTime()-before).Seconds()/float64(b.N), "cpu-s/op")
	})

	for i, s := range stores {
		b.Run(newProjection(i).Name(), func(b *testing.B) {
			before := processorTime()
			for b.Loop() {
				r, err := verify.Verify(b.Context(), s, verify.Options{
					FS: vfs.Default, Dir: dir + "/scratch", New: func() projections.Projection { return newProjection(i) },
					Subscribe: log.Subscribe,
				})
				if err != nil || !r.Equal {
					b.Fatalf("got %v and error %v, expected an equal store", r, err)
				}
			}
			b.ReportMetric((processorTime()-before).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}

// processorTime returns the processor time that this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
