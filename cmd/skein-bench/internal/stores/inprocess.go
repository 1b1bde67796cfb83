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

// followBitmaps is the follow graph as compressed bitmaps in memory: the fastest way to answer
// these questions when it need not be durable, has no times, and another program turns ids into
// small numbers.
type followBitmaps map[string]*roaring.Bitmap

// newFollowBitmaps returns the bitmaps of a graph.
func newFollowBitmaps(g *workload.Graph) followBitmaps {
	m := make(followBitmaps)
	for u := range g.Users {
		if followees := g.FolloweesOf(uint32(u)); len(followees) > 0 {
			b := roaring.BitmapOf(followees...)
			b.RunOptimize()
			m[workload.UserID(uint32(u))] = b
		}
	}
	return m
}

// follows reports whether a follower follows the user with a number.
func (m followBitmaps) follows(follower string, user uint32) bool {
	b, ok := m[follower]
	return ok && b.Contains(user)
}

// MeasureFollowChecks measures checks without a network, on data in memory.
func MeasureFollowChecks(ctx context.Context, b *measure.Bench) (err error) {
	g := workload.NewGraph(b.Opts.Users, b.Opts.Edges, 1)
	f, err := workload.OpenStore(b.Dir, workload.FirstFollow, func() projections.Projection {
		return graph.NewWith(querycache.New(querycache.DefaultBytes))
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()

	b.Logf("folding %d follows in process", len(g.Edges))
	if err := f.FoldGraph(g, workload.UserID); err != nil {
		return err
	}

	maps := newFollowBitmaps(g)
	ids := make([]string, g.Users)
	for u := range ids {
		ids[u] = workload.UserID(uint32(u))
	}
	return measurePointChecks(ctx, b, f, g, rand.New(rand.NewPCG(5, 0)), maps, ids)
}

// The names of the contenders in process.
const (
	skeinInProcess = measure.Skein
	roaringInMap   = "roaring in a map"
)

// measurePointChecks measures checks of single pairs.
func measurePointChecks(
	ctx context.Context, b *measure.Bench, f *workload.BenchStore, g *workload.Graph, r *rand.Rand, maps followBitmaps, ids []string,
) error {
	pairs := g.Pairs(r, workload.DistinctRequests)
	row := b.AddRow("inprocess-check", "point check in process, warm", "checks/s",
		"one goroutine, a new view of the store for each question, the default cache of follows. Every second pair is a follow. The "+
			"bitmaps are in a map by the follower's id and hold small numbers, which the followee's id is taken to be already.")
	err := b.MeasureInTurn(ctx, row,
		measure.Contender{Name: skeinInProcess, Measure: timeQuestions(b, len(pairs), func(i int) (bool, error) {
			var found graph.Follow
			err := f.QueryCached(func(q *graph.Queries) (err error) {
				found, err = q.UserFollow(ids[pairs[i].Follower], ids[pairs[i].Followee])
				return err
			})
			return (found.Kind == graph.Explicit) == (i%2 == 0), err
		})},
		measure.Contender{Name: roaringInMap, Measure: timeQuestions(b, len(pairs), func(i int) (bool, error) {
			return maps.follows(ids[pairs[i].Follower], pairs[i].Followee) == (i%2 == 0), nil
		})})
	if err != nil {
		return err
	}
	row.Compare(skeinInProcess, roaringInMap, 2, false)
	return nil
}

// timeQuestions returns a function that asks n questions in turn for the time of a measurement. It
// returns an error if an answer is wrong.
func timeQuestions(b *measure.Bench, n int, ask func(i int) (bool, error)) func(context.Context) (measure.Measurement, error) {
	return func(ctx context.Context) (measure.Measurement, error) {
		// The first round is not timed, so that everything is warm, and checks the answers.
		for i := range n {
			if ok, err := ask(i); err != nil || !ok {
				return measure.Measurement{}, errors.Join(err, fmt.Errorf("question %d was answered wrongly", i))
			}
		}

		// The clock is read only now and then, because it takes about as long as a question.
		asked := 0
		begin := time.Now()
		for {
			if _, err := ask(asked % n); err != nil {
				return measure.Measurement{}, err
			}
			asked++
			if asked%256 != 0 {
				continue
			}
			if took := time.Since(begin); took >= b.Opts.Time {
				return measure.Measurement{Value: float64(asked) / took.Seconds()}, ctx.Err()
			}
		}
	}
}
