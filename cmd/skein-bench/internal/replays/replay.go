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

// replayRuns is how often at most a rebuild is measured.
const replayRuns = 3

// What a log is replayed from.
const (
	fromArchive, fromStream = "skein, from the archive", "skein, from the stream"
	redisLoads              = "redis, loading the AOF"
)

// Replay measures how fast projections are built again, verified and audited, the bytes of the log, and how long a cut-over
// stops the fold. Each projection has a log of its own, of events that it reads.
func Replay(ctx context.Context, b *measure.Bench) error {
	of, logs := b.Opts.ReplayOf, replayLogs(b)
	for _, name := range of {
		if !slices.ContainsFunc(logs, func(l *replayLog) bool { return l.projection == name }) {
			return fmt.Errorf("there is no projection %q to replay", name)
		}
	}
	for _, l := range logs {
		if len(of) > 0 && !slices.Contains(of, l.projection) {
			continue
		}
		if err := replayOf(ctx, b, l); err != nil {
			return fmt.Errorf("%s: %w", l.projection, err)
		}
	}
	if len(of) > 0 {
		return nil
	}
	return replayCutOver(ctx, b)
}

// replayOf makes a log and measures with it.
func replayOf(ctx context.Context, b *measure.Bench, l *replayLog) (err error) {
	if l.dir, err = os.MkdirTemp(b.Dir, "replay-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if err := makeLog(ctx, b, l); err != nil {
		return err
	}
	replayBytes(b, l)
	if err := replayRebuild(ctx, b, l); err != nil {
		return err
	}
	if err := replayRead(ctx, b, l); err != nil {
		return err
	}
	if err := replayVerify(ctx, b, l); err != nil {
		return err
	}
	if l.follows == nil {
		return nil
	}
	return replayRound(ctx, b, l)
}

// replayBytes says what an event takes in the log.
func replayBytes(b *measure.Bench, l *replayLog) {
	const inArchive, inStream = "archive", "stream"
	row := b.Row("replay-bytes-"+l.projection, "bytes of "+l.what+" in the log", "bytes", fmt.Sprintf("%d events in envelopes of "+
		"%d, ids of 13 digits. Archive: the files of all segments; stream: what the server says that the stream takes.",
		l.events, replayTogether))
	n := float64(l.events)
	row.SeriesOf(inArchive).Add(measure.Measurement{Value: float64(l.archiveBytes) / n})
	row.SeriesOf(inStream).Add(measure.Measurement{Value: float64(l.streamBytes) / n})
	row.Compare(inArchive, "", l.bytes, true)
	row.Compare(inArchive, inStream, 0, true)
	b.Say("  %-18s %s bytes in the archive, %s in the stream", row.ID,
		measure.Figure(row.Series[0].Median), measure.Figure(row.Series[1].Median))
}

// replayRebuild measures rebuilds, and their memory.
func replayRebuild(ctx context.Context, b *measure.Bench, l *replayLog) error {
	title := l.projection + " rebuilt"
	row := b.Row("replay-"+l.projection, title+", reading and decoding included", "events/s", fmt.Sprintf("%d %s, a "+
		"process of its own each time: from the first envelope asked for until all is folded with the bounds of a rebuild, on disk "+
		"and compacted. %s", l.events, l.mix, l.peer))
	folding := &measure.Row{
		ID: row.ID + "-folded", Title: title + ", before the compaction", Unit: "events/s",
		Note: "the same measurements, until the last event is folded.",
	}
	core := &measure.Row{
		ID: row.ID + "-core", Title: title + ", by processor time", Unit: "events/s",
		Note: "by seconds of one core, of the whole process: the log's server, flushes, compactions and garbage collection included. " +
			"Redis: all that the server has used when it answers.",
	}
	memory := &measure.Row{
		ID: row.ID + "-memory", Title: title + ": greatest memory", Unit: "bytes",
		Note: "the greatest resident memory of the process, in which the log's server runs too, unless the archive is read. Redis: when " +
			"it has loaded the file.",
	}
	rebuild := func(name string, archived bool) measure.Contender {
		return measure.Contender{Name: name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			r, err := do(ctx, b, replayJob{
				Work: workRebuild, Log: l.dir, Projection: l.projection, Archive: archived, Threshold: l.threshold,
			})
			if err != nil {
				return measure.Measurement{}, err
			}
			folding.SeriesOf(name).Add(measure.Measurement{Value: float64(l.events) / r.Folding})
			core.SeriesOf(name).Add(measure.Measurement{Value: float64(l.events) / r.Processor})
			memory.SeriesOf(name).Add(measure.Measurement{Value: r.Memory})
			return measure.Measurement{Value: float64(l.events) / r.Seconds}, l.holds(r)
		}}
	}
	contenders := []measure.Contender{rebuild(fromArchive, true), rebuild(fromStream, false)}
	if l.follows != nil {
		file := filepath.Join(l.dir, programs.AOFName)
		if err := workload.WriteAOF(l.follows, file); err != nil {
			return err
		}
		defer os.Remove(file)
		contenders = append(contenders, measure.Contender{Name: redisLoads, Measure: func(ctx context.Context) (measure.Measurement, error) {
			loaded, err := programs.LoadAOF(ctx, b, file, func(ctx context.Context, s *programs.Redis) error {
				return workload.RedisHolds(ctx, s, l.follows)
			})
			if err != nil {
				return measure.Measurement{}, err
			}
			core.SeriesOf(redisLoads).Add(measure.Measurement{Value: float64(l.events) / loaded.Used.Seconds()})
			memory.SeriesOf(redisLoads).Add(measure.Measurement{Value: loaded.Memory})
			return measure.Measurement{Value: float64(l.events) / loaded.Took.Seconds()}, nil
		}})
	}
	if err := b.AlternateTimes(ctx, min(b.Opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}
	for _, name := range []string{fromArchive, fromStream} {
		row.Compare(name, "", l.rate, false)
		if l.follows != nil {
			row.Compare(name, redisLoads, 5, false)
			core.Compare(name, redisLoads, 0, false)
			memory.Compare(name, redisLoads, 0, true)
		} else {
			core.Compare(name, "", 0, false)
			memory.Compare(name, "", 0, true)
		}
		folding.Compare(name, "", 0, false)
	}
	b.Report.Rows = append(b.Report.Rows, folding, core, memory)
	return nil
}

// replayRead measures what of a rebuild is reading and decoding.
func replayRead(ctx context.Context, b *measure.Bench, l *replayLog) error {
	const archived, stream = "archive", "stream"
	row := b.Row("replay-"+l.projection+"-read", l.projection+": reading and decoding alone", "events/s", "the same events, of "+
		"which none is folded.")
	memory := &measure.Row{ID: row.ID + "-memory", Title: row.Title + ": greatest memory", Unit: "bytes", Note: "as above."}
	read := func(name string, job replayJob) measure.Contender {
		job.Work, job.Log, job.Projection = workRead, l.dir, l.projection
		return measure.Contender{Name: name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			r, err := do(ctx, b, job)
			if err != nil {
				return measure.Measurement{}, err
			}
			memory.SeriesOf(name).Add(measure.Measurement{Value: r.Memory})
			return measure.Measurement{Value: float64(l.events) / r.Seconds}, l.holds(r)
		}}
	}
	contenders := []measure.Contender{read(archived, replayJob{Archive: true}), read(stream, replayJob{})}
	if err := b.AlternateTimes(ctx, min(b.Opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}
	row.Compare(archived, stream, 0, false)
	for _, c := range contenders {
		memory.Compare(c.Name, "", 0, true)
	}
	b.Report.Rows = append(b.Report.Rows, memory)
	if !l.mixed {
		return nil
	}
	return replaySkip(ctx, b, l)
}

// replaySkip measures what the graph, which reads no plays, saves in a log that is full of them.
func replaySkip(ctx context.Context, b *measure.Bench, l *replayLog) error {
	const skipping, whole = "archive, without plays and likes", "archive, all classes"
	row := b.Row("replay-skip", "reading for the graph in a log of other events", "events/s", "the log of counters, by all of its "+
		"events: what need not be read counts as read. The graph reads neither plays nor likes, and opens no segment of that class.")
	read := func(name string, all bool) measure.Contender {
		return measure.Contender{Name: name, Measure: func(ctx context.Context) (measure.Measurement, error) {
			r, err := do(ctx, b, replayJob{Work: workRead, Log: l.dir, Projection: "graph", Archive: true, All: all})
			return measure.Measurement{Value: float64(l.events) / r.Seconds}, err
		}}
	}
	contenders := []measure.Contender{read(skipping, false), read(whole, true)}
	if err := b.AlternateTimes(ctx, min(b.Opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}
	row.Compare(skipping, whole, 0, false)
	return nil
}

// replayVerify measures a verification that nothing holds back.
func replayVerify(ctx context.Context, b *measure.Bench, l *replayLog) error {
	r, err := do(ctx, b, replayJob{Work: workVerify, Log: l.dir, Projection: l.projection, Threshold: l.threshold})
	if err != nil {
		return err
	}
	l.verified = r
	row := b.Row("replay-"+l.projection+"-verify", l.projection+" verified", "events/s", fmt.Sprintf("the same %d events: from "+
		"opening the shadow until all of its rows have been compared with those of the store, from the stream, a share of 1, once. It took "+
		"%.1f s, and %.1f s of processor time.", l.events, r.Seconds, r.Processor))
	row.SeriesOf(measure.MySelf).Add(measure.Measurement{Value: float64(l.events) / r.Seconds})
	row.Compare(measure.MySelf, "", 0, false)
	b.Say("  %-18s %s events/s", row.ID, measure.Figure(row.Series[0].Median))
	return nil
}

// auditShare is the part of a core that the auditor takes if nothing else is said.
const auditShare = 0.05

// replayRound measures a full round of the auditor over the follows.
func replayRound(ctx context.Context, b *measure.Bench, l *replayLog) error {
	r, err := do(ctx, b, replayJob{Work: workAudit, Log: l.dir, Threshold: l.threshold})
	if err != nil {
		return err
	}
	const audits, shadows = "audits of all partitions", "verification of all projections"
	each := r.Shadows
	row := b.Row("replay-round", "a full round of the auditor", "s of one core", fmt.Sprintf("over %d follows, in the stores of "+
		"graph, inbox and counters: every entity audited (%d checks, in %.1f s), with feeds and other sides of a sixteenth of the users "+
		"as in each round of the service, and each of the projections verified by a shadow. At the "+
		"default share of %.2f of a core, half for either, a round takes %.0f s.", l.events, r.Checks, r.Seconds, auditShare,
		max(r.Audits, each)/(auditShare/2)))
	row.SeriesOf(audits).Add(measure.Measurement{Value: r.Audits})
	row.SeriesOf(shadows).Add(measure.Measurement{Value: each})
	row.Compare(audits, "", 0, true)
	row.Compare(shadows, "", 0, true)
	b.Say("  %-18s %s s of audits, %s s of shadows", row.ID, measure.Figure(r.Audits), measure.Figure(each))
	return nil
}
