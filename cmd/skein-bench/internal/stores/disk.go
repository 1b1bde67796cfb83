package stores

import (
	"context"
	"errors"
	"strconv"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/projections/graph"
)

// wideID returns an id of up to 60 bits for a user, spread as the ids of large services are. It
// mixes the bits of the number as SplitMix64 does, so that different users have different ids.
func wideID(user uint32) string {
	z := (uint64(user) + 1) * 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return strconv.FormatUint((z^z>>31)>>4, 10)
}

// MeasureBytesPerFollow measures the bytes that a follow takes in the graph store, both directions
// and all counts included, and in Redis.
func MeasureBytesPerFollow(ctx context.Context, b *measure.Bench) error {
	const live, compacted, inRedis = "skein on disk, as folded", "skein on disk, compacted", "redis in memory"
	for _, d := range []struct {
		id, title string
		degree    int
		name      func(uint32) string
		// maxBytes is the target for a follow in the compacted store, and maxRatio the target for
		// its ratio to Redis.
		maxBytes, maxRatio float64
	}{
		{"disk-dense", "dense ids, 10 follows a user", 10, workload.UserID, 25, 2.0 / 3},
		{"disk-wide", "60-bit ids, 10 follows a user", 10, wideID, 40, 2.0 / 3},
		{"disk-wide-175", "60-bit ids, 175 follows a user", 175, wideID, 40, 0.25},
	} {
		g := workload.NewGraph(max(2*d.degree, b.Opts.Edges/d.degree), b.Opts.Edges, 6)
		row := b.AddRow(d.id, "bytes a follow: "+d.title, "bytes", "")
		folded, afterCompaction, err := measureStoreBytes(ctx, b, g, d.name)
		if err != nil {
			return err
		}
		memory, err := measureRedisBytes(ctx, b, g, d.name)
		if err != nil {
			return err
		}

		n := float64(len(g.Edges))
		row.SeriesOf(live).Add(measure.Measurement{Value: float64(folded) / n})
		row.SeriesOf(compacted).Add(measure.Measurement{Value: float64(afterCompaction) / n})
		row.SeriesOf(inRedis).Add(measure.Measurement{Value: memory / n})
		b.Logf("  %-18s %s folded, %s compacted, %s in redis", d.id, measure.FormatFigure(float64(folded)/n), measure.FormatFigure(float64(afterCompaction)/n),
			measure.FormatFigure(memory/n))

		row.Compare(compacted, "", d.maxBytes, true)
		row.Compare(live, "", 55, true)
		row.Compare(compacted, inRedis, d.maxRatio, true)
	}

	// The note of the last row holds for all of them.
	b.Report.Rows[len(b.Report.Rows)-1].Note = "live follows. The directory of the store after it was closed; Redis: " +
		"used_memory, less that of an empty server, of two sorted sets and a hash a user, the same follows."
	return nil
}

// measureStoreBytes folds a graph and returns the size of the store as the fold leaves it and when
// it is compacted.
func measureStoreBytes(
	ctx context.Context, b *measure.Bench, g *workload.Graph, id func(uint32) string,
) (folded, compacted int64, err error) {
	f, err := workload.OpenGraphStore(b.Dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.CloseAndRemove()) }()
	if err := f.FoldGraph(g, id); err != nil {
		return 0, 0, err
	}

	folded, err = f.BytesAfterClose()
	if err != nil {
		return 0, 0, err
	}
	compacted, err = f.CompactedBytes(ctx)
	if err != nil {
		return 0, 0, err
	}

	// A store that lost rows would be too small.
	return folded, compacted, f.Query(func(q *graph.Queries) error {
		c, err := q.UserCounts(id(0))
		if err == nil && int(c.Followers) != g.Followers[0] {
			err = errors.New("the compacted store has lost followers")
		}
		return err
	})
}

// measureRedisBytes loads a graph into a fresh server and returns the memory that it takes.
func measureRedisBytes(ctx context.Context, b *measure.Bench, g *workload.Graph, id func(uint32) string) (n float64, err error) {
	s, err := programs.StartRedis(ctx, b.Tools.RedisServer, b.Dir, programs.NoFile)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := workload.LoadRedis(ctx, s, g, id); err != nil {
		return 0, err
	}
	return s.Memory(ctx)
}
