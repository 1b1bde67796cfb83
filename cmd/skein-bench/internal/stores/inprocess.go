package stores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/querycache"
)

// bitmaps is the follow graph as compressed bitmaps in memory: the fastest way to answer these questions when it
// need not be durable, has no times, and another program turns ids into small numbers.
type bitmaps map[string]*roaring.Bitmap

func newBitmaps(g *workload.Graph) bitmaps {
	m := make(bitmaps)
	for u := range g.Users {
		if followees := g.Of(uint32(u)); len(followees) > 0 {
			b := roaring.BitmapOf(followees...)
			b.RunOptimize()
			m[workload.UserID(uint32(u))] = b
		}
	}
	return m
}

func (m bitmaps) check(follower string, user uint32) bool {
	b, ok := m[follower]
	return ok && b.Contains(user)
}

// InProcess measures checks and filters without a network, on data in memory.
func InProcess(ctx context.Context, b *measure.Bench) (err error) {
	g := workload.NewGraph(b.Opts.Users, b.Opts.Edges, 1)
	f, err := workload.OpenProjection(b.Dir, workload.FirstFollow, func() projections.Projection {
		return graph.NewWith(querycache.New(querycache.DefaultBytes))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b.Say("folding %d follows in process", len(g.Edges))
	if err := f.LoadGraph(g, workload.UserID); err != nil {
		return err
	}
	maps, ids := newBitmaps(g), make([]string, g.Users)
	for u := range ids {
		ids[u] = workload.UserID(uint32(u))
	}
	r := rand.New(rand.NewPCG(5, 0))
	if err := inProcessCheck(ctx, b, f, g, r, maps, ids); err != nil {
		return err
	}
	return inProcessFilter(ctx, b, f, g, r, maps, ids)
}

// The contenders in process.
const mine, peer = "skein", "roaring in a map"

func inProcessCheck(
	ctx context.Context, b *measure.Bench, f *workload.Folder, g *workload.Graph, r *rand.Rand, maps bitmaps, ids []string,
) error {
	pairs := g.Pairs(r, workload.DistinctRequests)
	row := b.Row("inprocess-check", "point check in process, warm", "checks/s",
		"one goroutine, a new view of the store for each question, the default cache of follows. Every second pair is a follow. The "+
			"bitmaps are in a map by the follower's id and hold small numbers, which the followee's id is taken to be already.")
	err := b.Alternate(ctx, row,
		measure.Contender{Name: mine, Measure: loop(b, len(pairs), 1, func(i int) (bool, error) {
			var found graph.Follow
			err := f.AskCached(func(q *graph.Queries) (err error) {
				found, err = q.User(ids[pairs[i].Follower], ids[pairs[i].Followee])
				return err
			})
			return (found.Kind == graph.Explicit) == (i%2 == 0), err
		})},
		measure.Contender{Name: peer, Measure: loop(b, len(pairs), 1, func(i int) (bool, error) {
			return maps.check(ids[pairs[i].Follower], pairs[i].Followee) == (i%2 == 0), nil
		})})
	if err != nil {
		return err
	}
	row.Compare(mine, peer, 2, false)
	return nil
}

func inProcessFilter(
	ctx context.Context, b *measure.Bench, f *workload.Folder, g *workload.Graph, r *rand.Rand, maps bitmaps, ids []string,
) error {
	filters := g.Filters(r, workload.DistinctRequests/5)
	want := make([]int, len(filters))
	for i, f := range filters {
		for _, c := range f.Candidates {
			if g.Follows(f.Viewer, c) {
				want[i]++
			}
		}
	}
	row := b.Row("inprocess-filter", "25-way filter in process, warm", "pairs/s", "")
	users, follows := make([]string, workload.FilterSize), make([]graph.Follow, workload.FilterSize)
	err := b.Alternate(ctx, row,
		measure.Contender{Name: mine, Measure: loop(b, len(filters), workload.FilterSize, func(i int) (bool, error) {
			found := 0
			err := f.AskCached(func(q *graph.Queries) error {
				for j, c := range filters[i].Candidates {
					users[j] = ids[c]
				}
				err := q.Users(ids[filters[i].Viewer], users, follows)
				for _, follow := range follows {
					if follow.Kind != graph.None {
						found++
					}
				}
				return err
			})
			return found == want[i], err
		})},
		measure.Contender{Name: peer, Measure: loop(b, len(filters), workload.FilterSize, func(i int) (bool, error) {
			viewer, found := ids[filters[i].Viewer], 0
			for _, c := range filters[i].Candidates {
				if maps.check(viewer, c) {
					found++
				}
			}
			return found == want[i], nil
		})})
	if err != nil {
		return err
	}
	row.Compare(mine, peer, 2, false)
	return nil
}

// loop puts n questions in turn for the time of a measurement, and fails when one is answered wrongly. Each counts so
// many times.
func loop(b *measure.Bench, n, times int, ask func(i int) (bool, error)) func(context.Context) (measure.Measurement, error) {
	return func(ctx context.Context) (measure.Measurement, error) {
		// Once without the clock, so that everything is warm.
		for i := range n {
			if ok, err := ask(i); err != nil || !ok {
				return measure.Measurement{}, errors.Join(err, fmt.Errorf("question %d was answered wrongly", i))
			}
		}
		asked, begin := 0, time.Now()
		for {
			if _, err := ask(asked % n); err != nil {
				return measure.Measurement{}, err
			}
			asked++
			if asked%256 != 0 {
				continue
			}
			if took := time.Since(begin); took >= b.Opts.Time {
				return measure.Measurement{Value: float64(asked*times) / took.Seconds()}, ctx.Err()
			}
		}
	}
}
