package replays

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/programs"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// replayRuns is the largest number of runs of a rebuild, because each takes long.
const replayRuns = 3

// The names of the contenders.
const (
	fromArchive = "skein, from the archive"
	fromStream  = "skein, from the stream"
	redisLoads  = "redis, loading the AOF"
)

// MeasureReplay measures how fast projections are rebuilt, how long a round of the auditor takes,
// and how many bytes the log has. Each projection has a log of its own, with events that the
// projection reads.
func MeasureReplay(ctx context.Context, b *measure.Bench) error {
	names := b.Opts.ReplayOf
	logs := replayLogs(b)
	for _, name := range names {
		if !slices.ContainsFunc(logs, func(l *replayLog) bool { return l.projection == name }) {
			return fmt.Errorf("there is no projection %q to replay", name)
		}
	}

	for _, l := range logs {
		if len(names) > 0 && !slices.Contains(names, l.projection) {
			continue
		}
		if err := measureProjection(ctx, b, l); err != nil {
			return fmt.Errorf("%s: %w", l.projection, err)
		}
	}
	return nil
}

// measureProjection makes the log of a projection, and measures its rows.
func measureProjection(ctx context.Context, b *measure.Bench, l *replayLog) (err error) {
	l.dir, err = os.MkdirTemp(b.Dir, "replay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()

	if err := makeLog(ctx, b, l); err != nil {
		return err
	}
	measureLogBytes(b, l)
	if err := measureRebuilds(ctx, b, l); err != nil {
		return err
	}
	if l.follows == nil {
		return nil // the auditor compares what follows from the graph, so it needs a log of follows
	}
	return measureAuditRound(ctx, b, l)
}

// measureLogBytes adds the row of the size of an event in the log.
func measureLogBytes(b *measure.Bench, l *replayLog) {
	const inArchive, inStream = "archive", "stream"
	row := b.AddRow("replay-bytes-"+l.projection, "bytes of "+l.eventText+" in the log", "bytes", fmt.Sprintf("%d events in envelopes of "+
		"%d, ids of 13 digits. Archive: the files of all segments; stream: what the server says that the stream takes.",
		l.eventCount, eventsPerEnvelope))
	n := float64(l.eventCount)
	row.SeriesOf(inArchive).Add(measure.Measurement{Value: float64(l.archiveBytes) / n})
	row.SeriesOf(inStream).Add(measure.Measurement{Value: float64(l.streamBytes) / n})
	row.Compare(inArchive, "", l.targetBytes, true)
	row.Compare(inArchive, inStream, 0, true)
	b.Logf("  %-18s %s bytes in the archive, %s in the stream", row.ID,
		measure.FormatFigure(row.Series[0].Median), measure.FormatFigure(row.Series[1].Median))
}

// measureRebuilds measures rebuilds from the archive and from the stream. For follows it also
// measures how long Redis takes to load the same ones.
func measureRebuilds(ctx context.Context, b *measure.Bench, l *replayLog) error {
	title := l.projection + " rebuilt"
	row := b.AddRow("replay-"+l.projection, title+", reading and decoding included", "events/s", fmt.Sprintf("%d %s, a "+
		"process of its own each time: from the first envelope asked for until all is folded with the bounds of a rebuild, on disk "+
		"and compacted. %s", l.eventCount, l.mixText, l.redisText))
	// The row by processor time is filled by the same measurements, and comes after the other row.
	core := &measure.Row{
		ID: row.ID + "-core", Title: title + ", by processor time", Unit: "events/s",
		Note: "by seconds of one core, of the whole process: the log's server, flushes, compactions and garbage collection included. " +
			"Redis: all that the server has used when it answers.",
	}
	rebuild := func(name string, archived bool) measure.Contender {
		return measure.Contender{Name: name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			r, err := runInOwnProcess(ctx, b, replayJob{
				Work:       workRebuild,
				Log:        l.dir,
				Projection: l.projection,
				Archive:    archived,
				Threshold:  l.threshold,
			})
			if err != nil {
				return measure.Measurement{}, err
			}
			core.SeriesOf(name).Add(measure.Measurement{Value: float64(l.eventCount) / r.ProcessorSeconds})
			return measure.Measurement{Value: float64(l.eventCount) / r.Seconds}, r.checkEventCount(l.eventCount)
		}}
	}

	contenders := []measure.Contender{rebuild(fromArchive, true), rebuild(fromStream, false)}
	if l.follows != nil {
		file := filepath.Join(l.dir, programs.AOFName)
		if err := workload.WriteAOF(l.follows, file); err != nil {
			return err
		}
		defer os.Remove(file) // a large file, which the next rows do not need
		contenders = append(contenders, measure.Contender{Name: redisLoads, Measure: func(ctx context.Context) (measure.Measurement, error) {
			loaded, err := programs.LoadAOF(ctx, b, file, func(ctx context.Context, s *programs.Redis) error {
				return workload.CheckRedisGraph(ctx, s, l.follows)
			})
			if err != nil {
				return measure.Measurement{}, err
			}
			core.SeriesOf(redisLoads).Add(measure.Measurement{Value: float64(l.eventCount) / loaded.Processor.Seconds()})
			return measure.Measurement{Value: float64(l.eventCount) / loaded.Reported.Seconds()}, nil
		}})
	}

	if err := b.MeasureRunsInTurn(ctx, min(b.Opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}

	for _, name := range []string{fromArchive, fromStream} {
		row.Compare(name, "", l.targetRate, false)
		if l.follows != nil {
			row.Compare(name, redisLoads, 5, false)
			core.Compare(name, redisLoads, 0, false)
		} else {
			core.Compare(name, "", 0, false)
		}
	}
	b.Report.Rows = append(b.Report.Rows, core)
	return nil
}

// auditShare is the share of a core that the auditor uses by default.
const auditShare = 0.05

// measureAuditRound measures a full round of the auditor: it audits all shards, and verifies each
// store by comparing it with a second one that is built from the log.
func measureAuditRound(ctx context.Context, b *measure.Bench, l *replayLog) error {
	r, err := runInOwnProcess(ctx, b, replayJob{Work: workAudit, Log: l.dir, Threshold: l.threshold})
	if err != nil {
		return err
	}
	const audits, verification = "audits of all partitions", "verification of all projections"
	row := b.AddRow("replay-round", "a full round of the auditor", "s of one core", fmt.Sprintf("over %d follows, in the stores of "+
		"graph, inbox and counters: every entity audited (%d checks, in %.1f s), with feeds and other sides of a sixteenth of the users "+
		"as in each round of the service, and each of the projections verified by a shadow. At the "+
		"default share of %.2f of a core, half for either, a round takes %.0f s.", l.eventCount, r.Checks, r.Seconds, auditShare,
		max(r.AuditSeconds, r.VerifySeconds)/(auditShare/2)))
	row.SeriesOf(audits).Add(measure.Measurement{Value: r.AuditSeconds})
	row.SeriesOf(verification).Add(measure.Measurement{Value: r.VerifySeconds})
	row.Compare(audits, "", 0, true)
	row.Compare(verification, "", 0, true)
	b.Logf("  %-18s %s s of audits, %s s of shadows", row.ID, measure.FormatFigure(r.AuditSeconds), measure.FormatFigure(r.VerifySeconds))
	return nil
}
