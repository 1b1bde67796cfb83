package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/counters"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// hotPage is how many items a page of a list by heat has; hotPages pages are walked before the last one is timed.
	hotPage, hotPages = 50, 100
	// hotSkew is that of plays over items.
	hotSkew = 0.5
	// countedKeys is how many keys are asked for together.
	countedKeys = 100
	// hotDays is over how long the plays are spread.
	hotDays = 30
)

// hotUsers is how many users play and own pins.
const hotUsers = 10_000

// countersStore is a store of counters.
type countersStore struct{ *folder }

// counters measures lists by heat, counts, and what a play or a pin costs where there are many already.
func (b *bench) counters(ctx context.Context) (err error) {
	f, err := openProjection(b.dir, monthAt(0)+(hotDays+1)*day, func() projections.Projection {
		return counters.New(counters.DefaultSettings())
	})
	if err != nil {
		return err
	}
	c := &countersStore{f}
	defer func() { err = errors.Join(err, c.close()) }()
	s, err := startRedis(ctx, b.tools.redisServer, b.dir, noFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	b.say("folding plays of %d items", b.opts.Items)
	begin := time.Now()
	if err := c.foldPlays(ctx, hotPlays(b.opts.Items).all); err != nil {
		return err
	}
	load := b.row("counters-load", "loading plays into counters", "plays/s", fmt.Sprintf("%d plays of %d items over %d days, made "+
		"and decoded on the way, %d folded together. From the first envelope to the flush.",
		2*b.opts.Items, b.opts.Items, hotDays, playsTogether*playEnvelopes))
	load.series(mySelf).add(rate(2*b.opts.Items, begin))
	load.compare(mySelf, "", 0, false)
	b.say("  %-18s %s plays/s", load.ID, figure(load.Series[0].Median))
	if err := s.loadHot(ctx, hotPlays(b.opts.Items)); err != nil {
		return err
	}
	if err := b.countersHot(ctx, c, s); err != nil {
		return err
	}
	if err := b.countersBatch(ctx, c); err != nil {
		return err
	}
	return b.countersConstant(ctx, c)
}

// hotPlays are plays of so many items, each once and then as many again by a power law, evenly spread over [hotDays].
type hotPlays int

func (h hotPlays) all(yield func(play) bool) {
	n := int(h)
	r := rand.New(rand.NewPCG(17, 0))
	step := hotDays * day / events.Micros(2*n)
	for i, item := range slices.Concat(r.Perm(n), make([]int, n)) {
		if i >= n {
			item = powerLaw(r, n, hotSkew)
		}
		if !yield(play{monthAt(0) + step*events.Micros(i), firstID + uint64(item), uint32(r.IntN(hotUsers))}) {
			return
		}
	}
}

// ask opens a view, asks, and closes it, as the service does for each call.
func (c *countersStore) ask(question func(q *counters.Queries) error) error {
	v, err := c.store.View()
	if err != nil {
		return err
	}
	return errors.Join(question(counters.Query(v)), v.Close())
}

// hot reads a page of everybody's list.
func (c *countersStore) hot(ctx context.Context, after counters.Mark, n int) (
	items []counters.TrendingItem, next counters.Mark, rows int, err error,
) {
	err = c.ask(func(q *counters.Queries) error {
		items, next, err = q.Hot(ctx, counters.Scope{}, after, n)
		rows = q.RowsRead()
		return err
	})
	return items, next, rows, err
}

// checkHot walks over everybody's list and returns the mark behind some pages. It fails unless every item stands in the
// list once, hotter ones first.
func (c *countersStore) checkHot(ctx context.Context, items, pages int) (behind counters.Mark, err error) {
	var (
		found = make(map[string]bool, items)
		mark  counters.Mark
		last  *counters.TrendingItem
	)
	for page := 0; page == 0 || mark != nil; page++ {
		n := hotPage
		if page == pages {
			behind = mark
		}
		if page >= pages {
			n = 20 * hotPage
		}
		list, next, _, err := c.hot(ctx, mark, n)
		if err != nil {
			return nil, err
		}
		for i := range list {
			it := &list[i]
			if found[it.Item] || last != nil && last.Score < it.Score {
				return nil, fmt.Errorf("the list by heat has %s twice, or behind a colder one", it.Item)
			}
			found[it.Item], last = true, it
		}
		mark = next
	}
	if len(found) != items {
		return nil, fmt.Errorf("the list by heat has %d items, not %d", len(found), items)
	}
	return behind, nil
}

// countersHot measures pages of everybody's list by heat.
func (b *bench) countersHot(ctx context.Context, c *countersStore, s *redisServer) error {
	behind, err := c.checkHot(ctx, b.opts.Items, hotPages-1)
	if err != nil {
		return err
	}
	const peer = "redis ZREVRANGE"
	read := b.row("counters-hot-rows", "rows read for a page of 50 by heat", "rows", "")
	for _, p := range []struct {
		id, title string
		after     counters.Mark
		from      int
	}{
		{"counters-hot", "page 1 of 50", nil, 0},
		{"counters-hot-100", fmt.Sprintf("page %d of 50", hotPages), behind, (hotPages - 1) * hotPage},
	} {
		_, _, rows, err := c.hot(ctx, p.after, hotPage)
		if err != nil {
			return err
		}
		read.series(p.title).add(measurement{value: float64(rows)})
		read.compare(p.title, "", 0, true)
		row := b.row(p.id, p.title+" by heat, p50", "µs", fmt.Sprintf("in process, a new view of the store for each page, one "+
			"goroutine; %d items with %d plays over %d days. Redis: go-redis, over the loopback; ZREVRANGE WITHSCORES of the set "+
			"of all items, whose scores are plays (ZINCRBY), which neither fade nor hold still while somebody pages.",
			b.opts.Items, 2*b.opts.Items, hotDays))
		err = b.alternate(ctx, row,
			contender{mySelf, b.timeCalls(func(ctx context.Context) error {
				_, _, _, err := c.hot(ctx, p.after, hotPage)
				return err
			})},
			contender{peer, b.timeCalls(func(ctx context.Context) error {
				list, err := s.client.ZRevRangeWithScores(ctx, hotKey, int64(p.from), int64(p.from+hotPage-1)).Result()
				if err == nil && len(list) != hotPage {
					err = fmt.Errorf("redis gives a page of %d", len(list))
				}
				return err
			})})
		if err != nil {
			return err
		}
		row.compare(mySelf, peer, 0, true)
	}
	return nil
}

const hotKey = "hot"

// loadHot counts plays in a sorted set.
func (s *redisServer) loadHot(ctx context.Context, plays hotPlays) error {
	pipe := s.client.Pipeline()
	flush := func(most int) error {
		if pipe.Len() <= most {
			return nil
		}
		_, err := pipe.Exec(ctx)
		return err
	}
	for p := range plays.all {
		pipe.ZIncrBy(ctx, hotKey, 1, strconv.FormatUint(p.item, 10))
		if err := flush(1000); err != nil {
			return err
		}
	}
	return flush(0)
}

// timeCalls times calls one after the other, for a third of the time of a measurement. Its value is the median.
func (b *bench) timeCalls(call func(context.Context) error) func(context.Context) (measurement, error) {
	return func(ctx context.Context) (measurement, error) {
		var times []float64
		for end := time.Now().Add(b.opts.Time / 3); len(times) < fewestPages || time.Now().Before(end); {
			begin := time.Now()
			if err := call(ctx); err != nil {
				return measurement{}, err
			}
			times = append(times, micros(time.Since(begin)))
		}
		m := latency(times)
		m.value = m.p50 * 1000
		return m, nil
	}
}

// countersBatch measures the counts of items and users, as BatchGetCounters asks for them.
func (b *bench) countersBatch(ctx context.Context, c *countersStore) error {
	r := rand.New(rand.NewPCG(19, 0))
	row := b.row("counters-batch", fmt.Sprintf("counts of %d keys, p50", countedKeys), "µs", "in process, a new view of the "+
		"store for each call, one goroutine; random items and users, in turn.")
	err := b.alternate(ctx, row, contender{mySelf, b.timeCalls(func(context.Context) error {
		return c.ask(func(q *counters.Queries) error {
			for i := range countedKeys {
				if i%2 == 0 {
					n, err := q.Item(strconv.Itoa(firstID + r.IntN(b.opts.Items)))
					if err != nil || n.Plays == 0 {
						return errors.Join(err, fmt.Errorf("an item has %d plays", n.Plays))
					}
					continue
				}
				if _, err := q.User(userID(uint32(r.IntN(hotUsers)))); err != nil {
					return err
				}
			}
			return nil
		})
	})})
	row.compare(mySelf, "", 0, true)
	return err
}

func playedEvent(user uint32, item uint64) *skeinv1.Event {
	return play{user: user, item: item}.event()
}
