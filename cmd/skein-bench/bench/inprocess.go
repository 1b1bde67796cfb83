package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
)

// bitmaps is the follow graph as compressed bitmaps in memory: the fastest way to answer these questions when it
// need not be durable, has no times, and somebody else turns ids into small numbers.
type bitmaps map[string]*roaring.Bitmap

func newBitmaps(g *followGraph) bitmaps {
	m := make(bitmaps)
	for u := range g.users {
		if followees := g.of(uint32(u)); len(followees) > 0 {
			b := roaring.BitmapOf(followees...)
			b.RunOptimize()
			m[userID(uint32(u))] = b
		}
	}
	return m
}

func (m bitmaps) check(follower string, user uint32) bool {
	b, ok := m[follower]
	return ok && b.Contains(user)
}

// inProcess measures checks and filters without a network, on data in memory.
func (b *bench) inProcess(ctx context.Context) (err error) {
	g := newGraph(b.opts.Users, b.opts.Edges, 1)
	f, err := openProjection(b.dir, firstFollow, func() projections.Projection {
		return graph.NewWith(graph.NewHotCache(graph.DefaultHotBytes))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	b.say("folding %d follows in process", len(g.edges))
	if err := f.loadGraph(g, userID); err != nil {
		return err
	}
	maps, ids := newBitmaps(g), make([]string, g.users)
	for u := range ids {
		ids[u] = userID(uint32(u))
	}
	r := rand.New(rand.NewPCG(5, 0))
	if err := b.inProcessCheck(ctx, f, g, r, maps, ids); err != nil {
		return err
	}
	return b.inProcessFilter(ctx, f, g, r, maps, ids)
}

// The contenders in process.
const mine, peer = "skein", "roaring in a map"

func (b *bench) inProcessCheck(ctx context.Context, f *folder, g *followGraph, r *rand.Rand, maps bitmaps, ids []string) error {
	pairs := g.pairs(r, distinctRequests)
	row := b.row("inprocess-check", "point check in process, warm", "checks/s",
		"one goroutine, a new view of the store for each question, the default cache of follows. Every second pair is a follow. The "+
			"bitmaps are in a map by the follower's id and hold small numbers, which the followee's id is taken to be already.")
	err := b.alternate(ctx, row,
		contender{mine, b.loop(len(pairs), 1, func(i int) (bool, error) {
			var found graph.Follow
			err := f.askHot(func(q *graph.Queries) (err error) {
				found, err = q.User(ids[pairs[i].follower], ids[pairs[i].followee])
				return err
			})
			return (found.Kind == graph.Explicit) == (i%2 == 0), err
		})},
		contender{peer, b.loop(len(pairs), 1, func(i int) (bool, error) {
			return maps.check(ids[pairs[i].follower], pairs[i].followee) == (i%2 == 0), nil
		})})
	if err != nil {
		return err
	}
	row.compare(mine, peer, 2, false)
	return nil
}

func (b *bench) inProcessFilter(ctx context.Context, f *folder, g *followGraph, r *rand.Rand, maps bitmaps, ids []string) error {
	filters := g.filters(r, distinctRequests/5)
	want := make([]int, len(filters))
	for i, f := range filters {
		for _, c := range f.candidates {
			if g.follows(f.viewer, c) {
				want[i]++
			}
		}
	}
	row := b.row("inprocess-filter", "25-way filter in process, warm", "pairs/s", "")
	users, follows := make([]string, filterSize), make([]graph.Follow, filterSize)
	err := b.alternate(ctx, row,
		contender{mine, b.loop(len(filters), filterSize, func(i int) (bool, error) {
			found := 0
			err := f.askHot(func(q *graph.Queries) error {
				for j, c := range filters[i].candidates {
					users[j] = ids[c]
				}
				err := q.Users(ids[filters[i].viewer], users, follows)
				for _, follow := range follows {
					if follow.Kind != graph.None {
						found++
					}
				}
				return err
			})
			return found == want[i], err
		})},
		contender{peer, b.loop(len(filters), filterSize, func(i int) (bool, error) {
			viewer, found := ids[filters[i].viewer], 0
			for _, c := range filters[i].candidates {
				if maps.check(viewer, c) {
					found++
				}
			}
			return found == want[i], nil
		})})
	if err != nil {
		return err
	}
	row.compare(mine, peer, 2, false)
	return nil
}

// loop puts n questions in turn for the time of a measurement, and fails when one is answered wrongly. Each counts so
// many times.
func (b *bench) loop(n, times int, ask func(i int) (bool, error)) func(context.Context) (measurement, error) {
	return func(ctx context.Context) (measurement, error) {
		// Once without the clock, so that everything is warm.
		for i := range n {
			if ok, err := ask(i); err != nil || !ok {
				return measurement{}, errors.Join(err, fmt.Errorf("question %d was answered wrongly", i))
			}
		}
		asked, begin := 0, time.Now()
		for {
			if _, err := ask(asked % n); err != nil {
				return measurement{}, err
			}
			asked++
			if asked%256 != 0 {
				continue
			}
			if took := time.Since(begin); took >= b.opts.Time {
				return measurement{value: float64(asked*times) / took.Seconds()}, ctx.Err()
			}
		}
	}
}
