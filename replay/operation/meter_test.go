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
	fold time.Duration
}

func (s slowGraph) Apply(ev events.Event, b *projections.Batch) error {
	letTimePass(s.fold)
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
	const n, read = 20_000, 10 * time.Millisecond
	for name, c := range map[string]struct {
		fold    time.Duration
		workers int
		share   float64
	}{
		"cheap":          {read / 5, 1, 0},
		"parallel":       {4 * read, 2, 0},
		"throttled":      {2 * read, 1, 0.25},
		"far dearer":     {20 * read, 2, 0},
		"nearly nothing": {read / 100, 1, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				envs, size := largeLog(n)
				m := mustOpen(t, dir)
				runManager(t, m)
				began := time.Now()
				id := mustStart(t, m, Rebuild, "graph", func(ctx context.Context, p *replay.Progress) (_ string, err error) {
					b, err := paced.New(paced.Options{
						Pace: replay.Pace{Share: c.share}, Progress: p, Head: envs[len(envs)-1].Seq(), Log: size,
						Check: func() error { return nil },
						Options: build.Options{FS: vfs.NewMem(), Dir: "data/graph/000001", Workers: c.workers, New: func() projections.Projection {
							return slowGraph{graph.New(), c.fold}
						}},
					})
					if err != nil {
						return "", err
					}
					defer func() { err = errors.Join(err, b.Close()) }()
					for _, env := range envs {
						letTimePass(time.Duration(len(env.Events)) * read)
						if err := b.Add(ctx, []*events.Envelope{env}); err != nil {
							return "", err
						}
					}
					return "", b.Finish(ctx)
				}).ID
				type look struct{ at, left time.Duration }
				var looks []look
				last := Info{}
				if err := m.Watch(t.Context(), id, func(i Info) error {
					looks, last = append(looks, look{time.Since(began), i.Remaining}), i
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				little := took/100 + 2*samplePeriod
				for _, l := range looks {
					left := took - l.at
					if l.at >= took/10 && (l.left < left*2/3-little || l.left > left*3/2+little) {
						t.Errorf("after %v of %v: %v left, not %v", l.at, took, l.left, left)
					}
				}
				if last.Phase != replay.Writing || last.Done == 0 || last.Done != last.Total || last.State != Succeeded || len(looks) < 10 {
					t.Errorf("%+v, %d looks", last, len(looks))
				}
			})
		})
	}
}
