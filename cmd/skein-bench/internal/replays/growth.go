package replays

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/projections/all"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// These are the targets with ten million follows.
const (
	// maxStartSeconds is the time from the start of the service until it is ready.
	maxStartSeconds = 1
	// maxIdleBytes is the resident memory of an idle service.
	maxIdleBytes = 150e6
	// maxGrowth is the ratio of the time of an operation with the most follows to its time with the
	// fewest.
	maxGrowth = 1.5
	// maxBytesDense is the size of the graph store on disk per follow.
	maxBytesDense = 25
)

// idleTime is how long a service is idle before its memory is read. It is longer than the two
// minutes after which Go collects garbage even if nothing is allocated.
const idleTime = 130 * time.Second

// growthSize is one of the numbers of follows whose costs are compared.
type growthSize struct {
	log growthLog
	// name is the name of the series.
	name string
	// data is the data directory of the service: the log, its archive and the stores.
	data string
	// costs is the part of the report about this size.
	costs *measure.Growth
}

// growthRows has the rows of this group, but for those of operations.
type growthRows struct{ build, bytes, start, ready, idle *measure.Row }

// MeasureGrowth measures the costs that depend on the number of follows: those of building,
// starting and keeping a service, and those of operations.
func MeasureGrowth(ctx context.Context, b *measure.Bench) (err error) {
	sizes := slices.Sorted(slices.Values(b.Opts.Growth))
	var all []*growthSize
	defer func() {
		for _, g := range all {
			err = errors.Join(err, os.RemoveAll(g.data))
		}
	}()

	rows := newGrowthRows(b)
	for _, n := range sizes {
		l := newGrowthLog(n)
		g := &growthSize{
			log:   l,
			name:  measure.FormatFigure(float64(n)) + " follows",
			costs: &measure.Growth{Follows: n, Users: l.users, Stores: map[string]measure.GrownStore{}},
		}
		g.data, err = os.MkdirTemp(b.Dir, "growth-")
		if err != nil {
			return err
		}
		all = append(all, g)
		b.Report.Growth = append(b.Report.Growth, g.costs)
		if err := measureSize(ctx, b, g, rows); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}

	if !b.Opts.GrowthAlone {
		if err := measureIdleMemory(ctx, b, all[len(all)-1], rows); err != nil {
			return err
		}
	}
	if err := measureOperations(ctx, b, all); err != nil {
		return err
	}

	largest := all[len(all)-1].name
	rows.bytes.Compare(largest, "", maxBytesDense, true)
	rows.build.Compare(largest, all[0].name, 0, false)
	if !b.Opts.GrowthAlone {
		rows.start.Compare(largest, "", maxStartSeconds, true)
		rows.ready.Compare(largest, "", 0, true)
		rows.idle.Compare(audited, "", maxIdleBytes, true)
		rows.idle.Compare(unaudited, "", maxIdleBytes, true)
	}
	return nil
}

// newGrowthRows adds the rows to the report. With GrowthAlone no service is started, so there are
// only rows about the graph store.
func newGrowthRows(b *measure.Bench) (r growthRows) {
	r.build = b.AddRow("growth-build", "growth: the graph built from an archive", "follows/s", "as a rebuild does, compacted, in a process of "+
		"its own, once. Everybody follows 10 users, by a power law.")
	r.bytes = b.AddRow("growth-bytes", "growth: bytes a follow, compacted", "bytes", "the graph store; ids of 13 digits.")
	if b.Opts.GrowthAlone {
		return r
	}
	r.start = b.AddRow("growth-start", "growth: from the start of `skein serve` to ready", "s", "with all four stores of these follows, built "+
		"beforehand and closed in order; files in the cache of the system. From the start of the process until /readyz says yes, asked "+
		"every 10 ms. The stream is empty, the log in the archive: a service that stopped under traffic reads its last 15 minutes of "+
		"events, too.")
	r.ready = b.AddRow("growth-ready-memory", "growth: resident memory when ready", "bytes", "")
	r.idle = b.AddRow("growth-memory", "growth: resident memory of an idle service", "bytes", fmt.Sprintf("of the largest number of follows, %v "+
		"after it was ready, without calls, after a collection.", idleFor(b)))
	return r
}

// idleFor returns how long a service is idle before its memory is read.
func idleFor(b *measure.Bench) time.Duration {
	if b.Opts.Quick {
		return idleTime / 1000
	}
	return idleTime
}

// measureSize makes the data directory of a size, and measures everything but operations.
func measureSize(ctx context.Context, b *measure.Bench, g *growthSize, rows growthRows) error {
	b.Logf("an archive of %s", g.name)
	if err := g.log.archive(ctx, g.data); err != nil {
		return err
	}
	archived, err := measure.TreeBytes(filepath.Join(g.data, "archive"))
	if err != nil {
		return err
	}
	n := float64(g.log.n)
	g.costs.ArchiveBytesPerFollow = float64(archived) / n

	// Build a store of each projection that the service needs.
	names := []string{"graph"}
	if !b.Opts.GrowthAlone {
		names = nil
		for _, p := range all.All(all.Settings{}) {
			names = append(names, p.Name())
		}
	}
	for _, name := range names {
		job := newRebuildJob(b, g.data, name)
		job.Into = filepath.Join(g.data, "stores") // where the service looks for its stores
		r, err := runInOwnProcess(ctx, b, job)
		if err != nil {
			return err
		}
		size, err := measure.TreeBytes(filepath.Join(g.data, "stores", name))
		if err != nil {
			return err
		}
		// The other projections read only some kinds of events, or none of these.
		if name == "graph" {
			if err := r.checkEventCount(g.log.n); err != nil {
				return err
			}
		}
		built := measure.GrownStore{BytesPerFollow: float64(size) / n, FollowsPerSecond: n / r.Seconds, Memory: r.Memory}
		g.costs.Stores[name] = built
		b.Logf("  %s built in %s s, with %s bytes of memory: %s bytes a follow", name, measure.FormatFigure(r.Seconds), measure.FormatFigure(r.Memory),
			measure.FormatFigure(built.BytesPerFollow))
	}

	rows.build.SeriesOf(g.name).Add(measure.Measurement{Value: g.costs.Stores["graph"].FollowsPerSecond})
	rows.bytes.SeriesOf(g.name).Add(measure.Measurement{Value: g.costs.Stores["graph"].BytesPerFollow})
	b.Logf("  %s bytes a follow in the archive", measure.FormatFigure(g.costs.ArchiveBytesPerFollow))
	if b.Opts.GrowthAlone {
		return nil
	}
	return measureStarts(ctx, b, g, rows)
}

// measureStarts starts the service several times, and measures how long it takes until it is ready
// and its memory then.
func measureStarts(ctx context.Context, b *measure.Bench, g *growthSize, rows growthRows) error {
	// The time of a start must not contain that of a build.
	if _, err := programs.BuildSkein(ctx, b); err != nil {
		return err
	}

	for range b.Opts.Runs {
		begin := time.Now()
		s, err := startWithGrowth(ctx, b, g)
		if err != nil {
			return err
		}
		took := time.Since(begin).Seconds()
		memory, err := s.ResidentBytes(ctx)
		err = errors.Join(err, checkProbe(ctx, s, g.log), s.Stop())
		if err != nil {
			return err
		}
		rows.start.SeriesOf(g.name).Add(measure.Measurement{Value: took})
		rows.ready.SeriesOf(g.name).Add(measure.Measurement{Value: memory})
		b.Logf("  %-18s ready in %s s with %s bytes of memory", rows.start.ID, measure.FormatFigure(took), measure.FormatFigure(memory))
	}

	g.costs.StartSeconds = rows.start.SeriesOf(g.name).Median
	g.costs.ReadyBytes = rows.ready.SeriesOf(g.name).Median
	return nil
}

// startWithGrowth starts the service on the data directory of a size, and waits until it is ready.
func startWithGrowth(ctx context.Context, b *measure.Bench, g *growthSize, flags ...string) (*programs.Skein, error) {
	return programs.StartSkeinWithData(ctx, b, g.data, filepath.Join(g.data, "port"), flags...)
}

// The names of the series of idle services. An auditor compares stores in the background.
const audited, unaudited = "as by default", "without an auditor"

// measureIdleMemory measures the memory of a service that is idle for some time, with an auditor
// and without one.
func measureIdleMemory(ctx context.Context, b *measure.Bench, g *growthSize, rows growthRows) (err error) {
	for _, idle := range []struct {
		name  string
		flags []string
		found *float64
	}{
		{audited, nil, &g.costs.IdleBytes},
		{unaudited, []string{"--audit-share", "0"}, &g.costs.UnauditedBytes},
	} {
		s, err := startWithGrowth(ctx, b, g, idle.flags...)
		if err != nil {
			return err
		}
		err = s.StayIdle(ctx, idleFor(b))
		if err == nil {
			*idle.found, err = s.ResidentBytes(ctx)
		}
		if err := errors.Join(err, s.Stop()); err != nil {
			return err
		}
		rows.idle.SeriesOf(idle.name).Add(measure.Measurement{Value: *idle.found})
		b.Logf("  %-18s %s: %s bytes", rows.idle.ID, idle.name, measure.FormatFigure(*idle.found))
	}
	return nil
}

// checkProbe returns an error unless the service has the followers of a probe, one of the users
// whom the operations are about.
func checkProbe(ctx context.Context, s *programs.Skein, l growthLog) error {
	client := skeinv1connect.NewGraphServiceClient(http.DefaultClient, "http://"+s.Addr.String())
	res, err := client.BatchGetFollowCounts(ctx, connect.NewRequest(&skeinv1.BatchGetFollowCountsRequest{
		UserIds: []string{workload.UserID(l.probeFollowee(0))},
	}))
	if err != nil {
		return err
	}
	count := res.Msg.GetUsers()[0].GetFollowerCount()
	if count != probes/2 {
		return fmt.Errorf("a probe has %d followers", count)
	}
	return nil
}
