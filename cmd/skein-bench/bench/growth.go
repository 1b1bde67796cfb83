package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/inbox"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// Bounds of the design, for ten million follows.
const (
	maxStartSeconds, maxIdleBytes = 1, 150e6
	maxGrowth                     = 1.5
	maxBytesDense                 = 25
)

// idleTime is how long a service that is ready is left alone before its memory is read: longer than the two minutes after which
// Go collects where nothing is allocated.
const idleTime = 130 * time.Second

// Growth is what a number of follows costs. Plots are made of these.
type Growth struct {
	Follows int `json:"follows"`
	Users   int `json:"users"`
	// Micros is what an operation takes, by its name: medians.
	Micros map[string]float64 `json:"us,omitempty"`
	// BytesPerFollow is the compacted graph store, ArchiveBytesPerFollow the archive.
	BytesPerFollow        float64 `json:"bytes_per_follow"`
	ArchiveBytesPerFollow float64 `json:"archive_bytes_per_follow"`
	// OtherBytesPerFollow are those of the other stores, by name.
	OtherBytesPerFollow map[string]float64 `json:"other_bytes_per_follow,omitempty"`
	// BuildSeconds is how long the graph was built from the archive.
	BuildSeconds float64 `json:"build_s"`
	// StartSeconds is from the start of the process until it is ready; the memories are resident.
	StartSeconds float64 `json:"start_s,omitempty"`
	ReadyBytes   float64 `json:"ready_bytes,omitempty"`
	// IdleBytes is after a while in which nobody asks, UnauditedBytes that of a service without an auditor.
	IdleBytes      float64 `json:"idle_bytes,omitempty"`
	UnauditedBytes float64 `json:"idle_bytes_without_auditor,omitempty"`
}

// grown is a data directory of some size.
type grown struct {
	log   growthLog
	name  string
	data  string
	found *Growth
}

// growthRows are the rows of what is not an operation.
type growthRows struct{ build, bytes, start, ready, idle *Row }

// growth measures what the number of follows changes.
func (b *bench) growth(ctx context.Context) (err error) {
	sizes := slices.Sorted(slices.Values(b.opts.Growth))
	var all []*grown
	defer func() {
		for _, g := range all {
			err = errors.Join(err, os.RemoveAll(g.data))
		}
	}()
	rows := b.growthRows()
	for _, n := range sizes {
		l := newGrowthLog(n)
		g := &grown{log: l, name: figure(float64(n)) + " follows", found: &Growth{Follows: n, Users: l.users}}
		if g.data, err = os.MkdirTemp(b.dir, "growth-"); err != nil {
			return err
		}
		all = append(all, g)
		b.report.Growth = append(b.report.Growth, g.found)
		if err := b.grow(ctx, g, rows); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	if !b.opts.GrowthAlone {
		if err := b.growthIdle(ctx, all[len(all)-1], rows); err != nil {
			return err
		}
	}
	if err := b.growthOperations(ctx, all); err != nil {
		return err
	}
	largest := all[len(all)-1].name
	rows.bytes.compare(largest, "", maxBytesDense, true)
	rows.build.compare(largest, all[0].name, 0, false)
	if !b.opts.GrowthAlone {
		rows.start.compare(largest, "", maxStartSeconds, true)
		rows.ready.compare(largest, "", 0, true)
		rows.idle.compare(audited, "", maxIdleBytes, true)
		rows.idle.compare(unaudited, "", maxIdleBytes, true)
	}
	return nil
}

func (b *bench) growthRows() (r growthRows) {
	r.build = b.row("growth-build", "growth: the graph built from an archive", "follows/s", "as a rebuild does, compacted, in a process of "+
		"its own, once. Everybody follows 10 users, by a power law.")
	r.bytes = b.row("growth-bytes", "growth: bytes a follow, compacted", "bytes", "the graph store; ids of 13 digits.")
	if b.opts.GrowthAlone {
		return r
	}
	r.start = b.row("growth-start", "growth: from the start of `skein serve` to ready", "s", "with all four stores of these follows, built "+
		"beforehand and closed in order; files in the cache of the system. From the start of the process until /readyz says yes, asked "+
		"every 10 ms. The stream is empty, the log in the archive: a service that stopped under traffic reads its last 15 minutes of "+
		"events, too.")
	r.ready = b.row("growth-ready-memory", "growth: resident memory when ready", "bytes", "")
	r.idle = b.row("growth-memory", "growth: resident memory of an idle service", "bytes", fmt.Sprintf("of the largest number of follows, %v "+
		"after it was ready, in which nobody asks and Go has collected.", b.idleTime()))
	return r
}

func (b *bench) idleTime() time.Duration {
	if b.opts.Quick {
		return idleTime / 1000
	}
	return idleTime
}

// grow makes the data directory of a size and measures all but operations.
func (b *bench) grow(ctx context.Context, g *grown, rows growthRows) error {
	b.say("an archive of %s", g.name)
	if err := g.log.archive(ctx, g.data); err != nil {
		return err
	}
	archived, err := treeBytes(filepath.Join(g.data, "archive"))
	if err != nil {
		return err
	}
	n := float64(g.log.n)
	g.found.ArchiveBytesPerFollow = float64(archived) / n
	names := []string{"graph"}
	if !b.opts.GrowthAlone {
		names = nil
		for _, p := range all.All(all.Settings{}) {
			names = append(names, p.Name())
		}
	}
	for _, name := range names {
		r, err := b.job(ctx, replayJob{
			Work: workRebuild, Log: g.data, Into: filepath.Join(g.data, "stores"), Projection: name, Archive: true,
			Threshold: inbox.DefaultSettings().Threshold, Memory: b.opts.RebuildMemory,
		})
		if err != nil {
			return err
		}
		size, err := treeBytes(filepath.Join(g.data, "stores", name))
		if err != nil {
			return err
		}
		b.say("  %s built in %s s, with %s bytes of memory: %s bytes a follow", name, figure(r.Seconds), figure(r.Memory),
			figure(float64(size)/n))
		if name != "graph" {
			if g.found.OtherBytesPerFollow == nil {
				g.found.OtherBytesPerFollow = map[string]float64{}
			}
			g.found.OtherBytesPerFollow[name] = float64(size) / n
			continue
		}
		g.found.BytesPerFollow = float64(size) / n
		if r.Events != g.log.n {
			return fmt.Errorf("%d events were read", r.Events)
		}
		g.found.BuildSeconds = r.Seconds
		rows.build.series(g.name).add(measurement{value: n / r.Seconds})
	}
	rows.bytes.series(g.name).add(measurement{value: g.found.BytesPerFollow})
	b.say("  %-18s %s bytes a follow, %s in the archive", rows.bytes.ID, figure(g.found.BytesPerFollow), figure(g.found.ArchiveBytesPerFollow))
	if b.opts.GrowthAlone {
		return nil
	}
	return b.growthStarts(ctx, g, rows)
}

// growthStarts starts the service some times.
func (b *bench) growthStarts(ctx context.Context, g *grown, rows growthRows) error {
	for range b.opts.Runs {
		begin := time.Now()
		s, err := b.serveGrown(ctx, g)
		if err != nil {
			return err
		}
		took := time.Since(begin).Seconds()
		memory, err := s.memory(ctx)
		err = errors.Join(err, s.hasProbes(ctx, g.log), s.stop())
		if err != nil {
			return err
		}
		rows.start.series(g.name).add(measurement{value: took})
		rows.ready.series(g.name).add(measurement{value: memory})
		b.say("  %-18s ready in %s s with %s bytes of memory", rows.start.ID, figure(took), figure(memory))
	}
	g.found.StartSeconds = rows.start.series(g.name).Median
	g.found.ReadyBytes = rows.ready.series(g.name).Median
	return nil
}

func (b *bench) serveGrown(ctx context.Context, g *grown, flags ...string) (*skeinServer, error) {
	return b.serveSkein(ctx, g.data, filepath.Join(g.data, "port"), flags...)
}

// An idle service as it is by default, and one that does nothing at all.
const audited, unaudited = "as by default", "without an auditor"

// growthIdle leaves a service alone for a while.
func (b *bench) growthIdle(ctx context.Context, g *grown, rows growthRows) (err error) {
	for _, idle := range []struct {
		name  string
		flags []string
		found *float64
	}{
		{audited, nil, &g.found.IdleBytes},
		{unaudited, []string{"--audit-share", "0"}, &g.found.UnauditedBytes},
	} {
		s, err := b.serveGrown(ctx, g, idle.flags...)
		if err != nil {
			return err
		}
		err = s.alone(ctx, b.idleTime())
		if err == nil {
			*idle.found, err = s.memory(ctx)
		}
		if err := errors.Join(err, s.stop()); err != nil {
			return err
		}
		rows.idle.series(idle.name).add(measurement{value: *idle.found})
		b.say("  %-18s %s: %s bytes", rows.idle.ID, idle.name, figure(*idle.found))
	}
	return nil
}

// alone waits for a time, in which the process must not end.
func (p *process) alone(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.done:
		return fmt.Errorf("%s has ended: %w", p.name, p.err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hasProbes fails unless the service knows the followers of a probe.
func (s *skeinServer) hasProbes(ctx context.Context, l growthLog) error {
	client := skeinv1connect.NewGraphServiceClient(http.DefaultClient, "http://"+s.addr.String())
	res, err := client.BatchGetFollowCounts(ctx, connect.NewRequest(&skeinv1.BatchGetFollowCountsRequest{
		UserIds: []string{userID(l.probed(0))},
	}))
	if err == nil && res.Msg.GetUsers()[0].GetFollowerCount() != probes/2 {
		err = fmt.Errorf("a probe has %d followers", res.Msg.GetUsers()[0].GetFollowerCount())
	}
	return err
}

// treeBytes is the size of all files below a directory.
func treeBytes(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
