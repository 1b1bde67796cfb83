package stores

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
)

const (
	// trendingPageSize is how many items a page of a list by heat has.
	trendingPageSize = 50
	// keysPerCall is how many keys a call of BatchGetCounters has.
	keysPerCall = 100
	// playDays is the number of days over which the plays are spread.
	playDays = 30
)

// playerCount is how many users play and own pins.
const playerCount = 10_000

// countersStore is a store of counters.
type countersStore struct{ playStore }

// MeasureCounters measures lists by heat and counts.
func MeasureCounters(ctx context.Context, b *measure.Bench) (err error) {
	f, err := workload.OpenStore(b.Dir, monthStart(0)+(playDays+1)*day, func() projections.Projection {
		return counters.New(counters.DefaultSettings())
	})
	if err != nil {
		return err
	}
	c := &countersStore{playStore{f}}
	defer func() { err = errors.Join(err, c.CloseAndRemove()) }()
	s, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	b.Logf("folding plays of %d items", b.Opts.Items)
	begin := time.Now()
	if err := c.foldPlays(ctx, spreadPlays(b.Opts.Items).all); err != nil {
		return err
	}
	load := b.AddRow("counters-load", "loading plays into counters", "plays/s", fmt.Sprintf("%d plays of %d items over %d days, made "+
		"and decoded on the way, %d folded together. From the first envelope to the flush.",
		2*b.Opts.Items, b.Opts.Items, playDays, playsPerEnvelope*envelopesPerPlayFold))
	load.SeriesOf(measure.Skein).Add(measure.RateSince(2*b.Opts.Items, begin))
	load.Compare(measure.Skein, "", 0, false)
	b.Logf("  %-18s %s plays/s", load.ID, measure.FormatFigure(load.Series[0].Median))

	if err := loadTrendingIntoRedis(ctx, s, spreadPlays(b.Opts.Items)); err != nil {
		return err
	}
	if err := measureTrending(ctx, b, c, s); err != nil {
		return err
	}
	return measureCounterBatch(ctx, b, c)
}

// spreadPlays is the number of items of a list of plays. The plays are evenly spread over
// [playDays]: first one of each item, and then as many again by a power law.
type spreadPlays int

// all is the sequence of the plays.
func (items spreadPlays) all(yield func(play) bool) {
	n := int(items)
	r := rand.New(rand.NewPCG(17, 0))
	step := playDays * day / events.Micros(2*n)
	for i, item := range slices.Concat(r.Perm(n), make([]int, n)) {
		if i >= n {
			item = workload.PowerLaw(r, n, workload.PlaySkew)
		}
		if !yield(play{monthStart(0) + step*events.Micros(i), workload.FirstID + uint64(item), uint32(r.IntN(playerCount))}) {
			return
		}
	}
}

// query runs a query on a new view of the store, as the service does for each call.
func (c *countersStore) query(run func(q *counters.Queries) error) error {
	v, err := c.Store.View()
	if err != nil {
		return err
	}
	return errors.Join(run(counters.NewQueries(v)), v.Close())
}

// readTrending reads a page of everybody's list.
func (c *countersStore) readTrending(ctx context.Context, after counters.PageCursor, n int) (
	items []counters.TrendingItem, next counters.PageCursor, err error,
) {
	err = c.query(func(q *counters.Queries) error {
		items, next, err = q.Trending(ctx, counters.Scope{}, after, n)
		return err
	})
	return items, next, err
}

// checkTrending reads everybody's list, and returns an error unless every item is in the list once
// and the hottest come first.
func (c *countersStore) checkTrending(ctx context.Context, items int) error {
	found := make(map[string]bool, items)
	var cursor counters.PageCursor
	var previous *counters.TrendingItem
	for page := 0; page == 0 || cursor != nil; page++ {
		// Large pages make this check of all items quick.
		list, next, err := c.readTrending(ctx, cursor, 20*trendingPageSize)
		if err != nil {
			return err
		}
		for i := range list {
			item := &list[i]
			isHotterThanPrevious := previous != nil && previous.Score < item.Score
			if found[item.Item] || isHotterThanPrevious {
				return fmt.Errorf("the list by heat has %s twice, or behind a colder item", item.Item)
			}
			found[item.Item] = true
			previous = item
		}
		cursor = next
	}
	if len(found) != items {
		return fmt.Errorf("the list by heat has %d items, not %d", len(found), items)
	}
	return nil
}

// measureTrending measures the first page of everybody's list by heat.
func measureTrending(ctx context.Context, b *measure.Bench, c *countersStore, s *programs.Redis) error {
	if err := c.checkTrending(ctx, b.Opts.Items); err != nil {
		return err
	}
	const peer = "redis ZREVRANGE"
	row := b.AddRow("counters-hot", fmt.Sprintf("page 1 of %d by heat, p50", trendingPageSize), "µs", fmt.Sprintf("in process, a new view of the "+
		"store for each page, one goroutine; %d items with %d plays over %d days. Redis: go-redis, over the loopback; ZREVRANGE "+
		"WITHSCORES of the set of all items, whose scores are plays (ZINCRBY), which neither fade nor hold still while somebody pages.",
		b.Opts.Items, 2*b.Opts.Items, playDays))
	err := b.MeasureInTurn(ctx, row,
		measure.Contender{Name: measure.Skein, Measure: timeCalls(b, func(ctx context.Context) error {
			_, _, err := c.readTrending(ctx, nil, trendingPageSize)
			return err
		})},
		measure.Contender{Name: peer, Measure: timeCalls(b, func(ctx context.Context) error {
			list, err := s.Client.ZRevRangeWithScores(ctx, redisTrendingKey, 0, trendingPageSize-1).Result()
			if err == nil && len(list) != trendingPageSize {
				err = fmt.Errorf("redis gives a page of %d", len(list))
			}
			return err
		})})
	if err != nil {
		return err
	}
	row.Compare(measure.Skein, peer, 0, true)
	return nil
}

const redisTrendingKey = "hot"

// loadTrendingIntoRedis counts the plays of each item in a sorted set of Redis.
func loadTrendingIntoRedis(ctx context.Context, s *programs.Redis, plays spreadPlays) error {
	const commandsPerPipeline = 1000
	pipe := s.Client.Pipeline()
	for p := range plays.all {
		pipe.ZIncrBy(ctx, redisTrendingKey, 1, strconv.FormatUint(p.item, 10))
		if pipe.Len() > commandsPerPipeline {
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
	}
	_, err := pipe.Exec(ctx)
	return err
}

// timeCalls returns a function that times calls one after the other, for a third of the time of a
// measurement. The value is the median.
func timeCalls(b *measure.Bench, call func(context.Context) error) func(context.Context) (measure.Measurement, error) {
	return func(ctx context.Context) (measure.Measurement, error) {
		m, err := sampleLatencies(b, func(int) (time.Duration, error) {
			begin := time.Now()
			err := call(ctx)
			return time.Since(begin), err
		})
		m.Value = m.P50 * 1000 // in microseconds
		return m, err
	}
}

// sampleLatencies calls timeCall again and again, with numbers from 0, for a third of the time of a
// measurement. The durations that timeCall returns are the sample.
func sampleLatencies(b *measure.Bench, timeCall func(i int) (time.Duration, error)) (measure.Measurement, error) {
	var times []float64
	for end := time.Now().Add(b.Opts.Time / 3); len(times) < minTimedCalls || time.Now().Before(end); {
		took, err := timeCall(len(times))
		if err != nil {
			return measure.Measurement{}, err
		}
		times = append(times, measure.Micros(took))
	}
	return measure.SummarizeLatencies(times), nil
}

// measureCounterBatch measures the counts of items and users that a call of BatchGetCounters reads.
func measureCounterBatch(ctx context.Context, b *measure.Bench, c *countersStore) error {
	r := rand.New(rand.NewPCG(19, 0))
	row := b.AddRow("counters-batch", fmt.Sprintf("counts of %d keys, p50", keysPerCall), "µs", "in process, a new view of the "+
		"store for each call, one goroutine; random items and users, in turn.")
	err := b.MeasureInTurn(ctx, row, measure.Contender{Name: measure.Skein, Measure: timeCalls(b, func(context.Context) error {
		return c.query(func(q *counters.Queries) error {
			for i := range keysPerCall {
				if i%2 == 0 {
					// Every item has a play, so an item without plays would be a wrong answer.
					n, err := q.ItemCounts(strconv.Itoa(workload.FirstID + r.IntN(b.Opts.Items)))
					if err != nil || n.Plays == 0 {
						return errors.Join(err, fmt.Errorf("an item has %d plays", n.Plays))
					}
					continue
				}
				if _, err := q.UserCounts(workload.UserID(uint32(r.IntN(playerCount)))); err != nil {
					return err
				}
			}
			return nil
		})
	})})
	row.Compare(measure.Skein, "", 0, true)
	return err
}
