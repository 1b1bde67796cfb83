package operation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/internal/memlog"
	"github.com/skein-feed/skein/replay/internal/paced"
)

// slowGraph is a graph that takes a fixed time to fold an event.
type slowGraph struct {
	*graph.Graph
	foldTime time.Duration
}

func (s slowGraph) Apply(ev events.Event, b *projections.Batch) error {
	letTimePass(s.foldTime)
	return s.Graph.Apply(ev, b)
}

// largeLog returns a log of n events by many users: one half in large envelopes, as an import has
// them, and then the others in envelopes of their own, as live events are.
func largeLog(n int) (envs []*events.Envelope, size replay.LogSize) {
	w := memlog.NewWorld(1, 3000)
	follow := func() events.Event {
		ev := events.Event{Kind: events.UserFollowed, User: w.User(), Peer: w.User()}
		for ev.Peer == ev.User {
			ev.Peer = w.User()
		}
		return ev
	}

	for size.Events < uint64(n/2) {
		evs := make([]events.Event, 100)
		for i := range evs {
			evs[i] = follow()
		}
		envs = append(envs, w.Envelope(evs...))
		size.Events += 100
	}
	for ; size.Events < uint64(n); size.Events++ {
		envs = append(envs, w.Envelope(follow()))
	}

	size.Kinds = events.AllKinds
	return envs, size
}

// After the first tenth of a build, the estimate of the remaining time is right within a factor of
// 1.5, or within a hundredth of the whole time, whatever folding costs compared with reading. The
// time is simulated: only these costs take time.
func TestRemainingTimeOfABuildIsAccurate(t *testing.T) {
	const eventCount = 20_000
	const readTime = 10 * time.Millisecond // per event
	for name, c := range map[string]struct {
		foldTime time.Duration // per event
		workers  int
		share    float64
	}{
		"folding is cheap":       {readTime / 5, 1, 0},
		"two workers fold":       {4 * readTime, 2, 0},
		"the build is throttled": {2 * readTime, 1, 0.25},
		"folding is far dearer":  {20 * readTime, 2, 0},
		"folding is nearly free": {readTime / 100, 1, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				envs, size := largeLog(eventCount)
				m := mustOpen(t, dir)
				runManager(t, m)

				buildGraph := func(ctx context.Context, p *replay.Progress) (_ string, err error) {
					b, err := paced.New(paced.Options{
						Pace: replay.Pace{Share: c.share}, Progress: p, Head: envs[len(envs)-1].Seq(), Log: size,
						Check: func() error { return nil },
						Options: build.Options{
							FS: vfs.NewMem(), Dir: "data/graph/000001", Workers: c.workers,
							New: func() projections.Projection { return slowGraph{graph.New(), c.foldTime} },
						},
					})
					if err != nil {
						return "", err
					}
					defer func() { err = errors.Join(err, b.Close()) }()

					for _, env := range envs {
						letTimePass(time.Duration(len(env.Events)) * readTime)
						if err := b.Add(ctx, []*events.Envelope{env}); err != nil {
							return "", err
						}
					}
					return "", b.Finish(ctx)
				}

				// Record the estimates until the build has ended.
				type estimate struct{ elapsed, remaining time.Duration }
				var estimates []estimate
				var last Info
				began := time.Now()
				id := mustStart(t, m, Rebuild, "graph", buildGraph).ID
				err := m.Watch(t.Context(), id, func(i Info) error {
					estimates = append(estimates, estimate{time.Since(began), i.Remaining})
					last = i
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				total := time.Since(began)

				// Compare them with the time that the build then took.
				tolerance := total/100 + 2*samplePeriod
				for _, e := range estimates {
					if e.elapsed < total/10 {
						continue
					}
					remaining := total - e.elapsed
					least := remaining*2/3 - tolerance
					most := remaining*3/2 + tolerance
					if e.remaining < least || e.remaining > most {
						t.Errorf("after %v of %v: got the estimate %v, expected between %v and %v", e.elapsed, total, e.remaining, least, most)
					}
				}
				if len(estimates) < 10 {
					t.Errorf("got %d estimates, expected at least 10", len(estimates))
				}
				if last.Phase != replay.Writing || last.State != Succeeded {
					t.Errorf("got phase %v and state %s at the end, expected %v and %s", last.Phase, last.State, replay.Writing, Succeeded)
				}
				if last.Done == 0 || last.Done != last.Total {
					t.Errorf("got %d of %d done at the end, expected all of at least 1", last.Done, last.Total)
				}
			})
		})
	}
}
