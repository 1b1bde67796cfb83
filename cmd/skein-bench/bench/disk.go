package bench

import (
	"context"
	"errors"
	"strconv"

	"github.com/skein-feed/skein/projections/graph"
)

// wideID is an id of up to 60 bits, spread as the ids of large services are.
func wideID(user uint32) string {
	z := (uint64(user) + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return strconv.FormatUint((z^z>>31)>>4, 10)
}

// disk measures the bytes that a follow takes in the graph store, both directions and all counts included, and in Redis.
func (b *bench) disk(ctx context.Context) error {
	const live, compacted, inRedis = "skein on disk, as folded", "skein on disk, compacted", "redis in memory"
	for _, d := range []struct {
		id, title string
		degree    int
		name      func(uint32) string
		// bound is for the compacted store, fraction for its ratio to Redis.
		bound, fraction float64
	}{
		{"disk-dense", "dense ids, 10 follows a user", 10, userID, 25, 2.0 / 3},
		{"disk-wide", "60-bit ids, 10 follows a user", 10, wideID, 40, 2.0 / 3},
		{"disk-wide-175", "60-bit ids, 175 follows a user", 175, wideID, 40, 0.25},
	} {
		g := newGraph(max(2*d.degree, b.opts.Edges/d.degree), b.opts.Edges, 6)
		row := b.row(d.id, "bytes a follow: "+d.title, "bytes", "")
		folded, dense, err := b.storeBytes(ctx, g, d.name)
		if err != nil {
			return err
		}
		memory, err := b.redisBytes(ctx, g, d.name)
		if err != nil {
			return err
		}
		n := float64(len(g.edges))
		row.series(live).add(measurement{value: float64(folded) / n})
		row.series(compacted).add(measurement{value: float64(dense) / n})
		row.series(inRedis).add(measurement{value: memory / n})
		b.say("  %-18s %s folded, %s compacted, %s in redis", d.id, figure(float64(folded)/n), figure(float64(dense)/n),
			figure(memory/n))
		row.compare(compacted, "", d.bound, true)
		row.compare(live, "", 55, true)
		row.compare(compacted, inRedis, d.fraction, true)
	}
	b.report.Rows[len(b.report.Rows)-1].Note = "live follows. The directory of the store after it was closed; Redis: " +
		"used_memory, less that of an empty server, of two sorted sets and a hash a user, the same follows."
	return nil
}

// storeBytes folds a graph and returns the size of the store as the fold leaves it and when it is compacted.
func (b *bench) storeBytes(
	ctx context.Context, g *followGraph, id func(uint32) string,
) (folded, compacted int64, err error) {
	f, err := openFolder(b.dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.loadGraph(g, id); err != nil {
		return 0, 0, err
	}
	if folded, err = f.closedBytes(); err != nil {
		return 0, 0, err
	}
	if compacted, err = f.compacted(ctx); err != nil {
		return 0, 0, err
	}
	return folded, compacted, f.ask(func(q *graph.Queries) error {
		c, err := q.UserCounts(id(0))
		if err == nil && int(c.Followers) != g.followers[0] {
			err = errors.New("the compacted store has lost followers")
		}
		return err
	})
}

// redisBytes loads a graph into a fresh server and returns the memory that it takes.
func (b *bench) redisBytes(ctx context.Context, g *followGraph, id func(uint32) string) (n float64, err error) {
	s, err := startRedis(ctx, b.tools.redisServer, b.dir, noFile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.load(ctx, g, id); err != nil {
		return 0, err
	}
	return s.memory(ctx)
}
