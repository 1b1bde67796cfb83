package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// replayRuns is how often at most a rebuild is measured.
const replayRuns = 3

// What a log is replayed from.
const (
	fromArchive, fromStream = "skein, from the archive", "skein, from the stream"
	redisLoads              = "redis, loading the AOF"
)

// replay measures how fast projections are built again, verified and audited, the bytes of the log, and how long a cut-over
// stops the fold. Each projection has a log of its own, of events that it reads.
func (b *bench) replay(ctx context.Context) error {
	of, logs := b.opts.ReplayOf, b.replayLogs()
	for _, name := range of {
		if !slices.ContainsFunc(logs, func(l *replayLog) bool { return l.projection == name }) {
			return fmt.Errorf("there is no projection %q to replay", name)
		}
	}
	for _, l := range logs {
		if len(of) > 0 && !slices.Contains(of, l.projection) {
			continue
		}
		if err := b.replayOf(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", l.projection, err)
		}
	}
	if len(of) > 0 {
		return nil
	}
	return b.replayCutOver(ctx)
}

// replayOf makes a log and measures with it.
func (b *bench) replayOf(ctx context.Context, l *replayLog) (err error) {
	if l.dir, err = os.MkdirTemp(b.dir, "replay-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()
	if err := b.makeLog(ctx, l); err != nil {
		return err
	}
	b.replayBytes(l)
	if err := b.replayRebuild(ctx, l); err != nil {
		return err
	}
	if err := b.replayRead(ctx, l); err != nil {
		return err
	}
	if err := b.replayVerify(ctx, l); err != nil {
		return err
	}
	if l.follows == nil {
		return nil
	}
	return b.replayRound(ctx, l)
}

// replayBytes tells what an event takes in the log.
func (b *bench) replayBytes(l *replayLog) {
	const inArchive, inStream = "archive", "stream"
	row := b.row("replay-bytes-"+l.projection, "bytes of "+l.what+" in the log", "bytes", fmt.Sprintf("%d events in envelopes of "+
		"%d, ids of 13 digits. Archive: the files of all segments; stream: what the server says that the stream takes.",
		l.events, replayTogether))
	n := float64(l.events)
	row.series(inArchive).add(measurement{value: float64(l.archiveBytes) / n})
	row.series(inStream).add(measurement{value: float64(l.streamBytes) / n})
	row.compare(inArchive, "", l.bytes, true)
	row.compare(inArchive, inStream, 0, true)
	b.say("  %-18s %s bytes in the archive, %s in the stream", row.ID, figure(row.Series[0].Median), figure(row.Series[1].Median))
}

// replayRebuild measures rebuilds, and their memory.
func (b *bench) replayRebuild(ctx context.Context, l *replayLog) error {
	title := l.projection + " rebuilt"
	row := b.row("replay-"+l.projection, title+", reading and decoding included", "events/s", fmt.Sprintf("%d %s, a "+
		"process of its own each time: from the first envelope asked for until all is folded with the bounds of a rebuild, on disk "+
		"and compacted. %s", l.events, l.mix, l.peer))
	folding := &Row{ID: row.ID + "-folded", Title: title + ", before the compaction", Unit: "events/s", Note: "the same measurements, " +
		"until the last event is folded."}
	core := &Row{ID: row.ID + "-core", Title: title + ", by processor time", Unit: "events/s", Note: "by seconds of one core, of " +
		"the whole process: the log's server, flushes, compactions and garbage collection included. Redis: all that the server has " +
		"used when it answers."}
	memory := &Row{ID: row.ID + "-memory", Title: title + ": greatest memory", Unit: "bytes", Note: "the greatest resident memory of " +
		"the process, in which the log's server runs too, unless the archive is read. Redis: when it has " +
		"loaded the file."}
	rebuild := func(name string, archived bool) contender {
		return contender{name, func(ctx context.Context) (measurement, error) {
			r, err := b.job(ctx, replayJob{
				Work: workRebuild, Log: l.dir, Projection: l.projection, Archive: archived, Threshold: l.threshold,
			})
			if err != nil {
				return measurement{}, err
			}
			folding.series(name).add(measurement{value: float64(l.events) / r.Folding})
			core.series(name).add(measurement{value: float64(l.events) / r.Processor})
			memory.series(name).add(measurement{value: r.Memory})
			return measurement{value: float64(l.events) / r.Seconds}, l.holds(r)
		}}
	}
	contenders := []contender{rebuild(fromArchive, true), rebuild(fromStream, false)}
	if l.follows != nil {
		file := filepath.Join(l.dir, aofName)
		if err := l.follows.writeAOF(file); err != nil {
			return err
		}
		defer os.Remove(file)
		contenders = append(contenders, contender{redisLoads, func(ctx context.Context) (measurement, error) {
			loaded, err := b.loadAOF(ctx, file, l.follows)
			if err != nil {
				return measurement{}, err
			}
			core.series(redisLoads).add(measurement{value: float64(l.events) / loaded.used.Seconds()})
			memory.series(redisLoads).add(measurement{value: loaded.memory})
			return measurement{value: float64(l.events) / loaded.took.Seconds()}, nil
		}})
	}
	if err := b.alternateTimes(ctx, min(b.opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}
	for _, name := range []string{fromArchive, fromStream} {
		row.compare(name, "", l.rate, false)
		if l.follows != nil {
			row.compare(name, redisLoads, 5, false)
			core.compare(name, redisLoads, 0, false)
			memory.compare(name, redisLoads, 0, true)
		} else {
			core.compare(name, "", 0, false)
			memory.compare(name, "", 0, true)
		}
		folding.compare(name, "", 0, false)
	}
	b.report.Rows = append(b.report.Rows, folding, core, memory)
	return nil
}

// replayRead measures what of a rebuild is reading and decoding.
func (b *bench) replayRead(ctx context.Context, l *replayLog) error {
	const archived, stream = "archive", "stream"
	row := b.row("replay-"+l.projection+"-read", l.projection+": reading and decoding alone", "events/s", "the same events, of "+
		"which none is folded.")
	memory := &Row{ID: row.ID + "-memory", Title: row.Title + ": greatest memory", Unit: "bytes", Note: "as above."}
	read := func(name string, job replayJob) contender {
		job.Work, job.Log, job.Projection = workRead, l.dir, l.projection
		return contender{name, func(ctx context.Context) (measurement, error) {
			r, err := b.job(ctx, job)
			if err != nil {
				return measurement{}, err
			}
			memory.series(name).add(measurement{value: r.Memory})
			return measurement{value: float64(l.events) / r.Seconds}, l.holds(r)
		}}
	}
	contenders := []contender{read(archived, replayJob{Archive: true}), read(stream, replayJob{})}
	if err := b.alternateTimes(ctx, min(b.opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}
	row.compare(archived, stream, 0, false)
	for _, c := range contenders {
		memory.compare(c.name, "", 0, true)
	}
	b.report.Rows = append(b.report.Rows, memory)
	if !l.mixed {
		return nil
	}
	return b.replaySkip(ctx, l)
}

// replaySkip measures what the graph, which reads no plays, saves in a log that is full of them.
func (b *bench) replaySkip(ctx context.Context, l *replayLog) error {
	const skipping, whole = "archive, without plays and likes", "archive, all classes"
	row := b.row("replay-skip", "reading for the graph in a log of other events", "events/s", "the log of counters, by all of its "+
		"events: what need not be read counts as read. The graph reads neither plays nor likes, and opens no segment of that class.")
	read := func(name string, all bool) contender {
		return contender{name, func(ctx context.Context) (measurement, error) {
			r, err := b.job(ctx, replayJob{Work: workRead, Log: l.dir, Projection: "graph", Archive: true, All: all})
			return measurement{value: float64(l.events) / r.Seconds}, err
		}}
	}
	contenders := []contender{read(skipping, false), read(whole, true)}
	if err := b.alternateTimes(ctx, min(b.opts.Runs, replayRuns), row, contenders...); err != nil {
		return err
	}
	row.compare(skipping, whole, 0, false)
	return nil
}

// replayVerify measures a verification that nothing holds back.
func (b *bench) replayVerify(ctx context.Context, l *replayLog) error {
	r, err := b.job(ctx, replayJob{Work: workVerify, Log: l.dir, Projection: l.projection, Threshold: l.threshold})
	if err != nil {
		return err
	}
	l.verified = r
	row := b.row("replay-"+l.projection+"-verify", l.projection+" verified", "events/s", fmt.Sprintf("the same %d events: from "+
		"opening the shadow until all of its rows have been compared with those of the store, from the stream, a share of 1, once. It took "+
		"%.1f s, and %.1f s of processor time.", l.events, r.Seconds, r.Processor))
	row.series(mySelf).add(measurement{value: float64(l.events) / r.Seconds})
	row.compare(mySelf, "", 0, false)
	b.say("  %-18s %s events/s", row.ID, figure(row.Series[0].Median))
	return nil
}

// auditShare is the part of a core that the auditor takes if nothing else is said.
const auditShare = 0.05

// replayRound measures a full round of the auditor over the follows.
func (b *bench) replayRound(ctx context.Context, l *replayLog) error {
	r, err := b.job(ctx, replayJob{Work: workAudit, Log: l.dir, Threshold: l.threshold})
	if err != nil {
		return err
	}
	const audits, shadows = "audits of all partitions", "verification of all projections"
	each := r.Shadows
	row := b.row("replay-round", "a full round of the auditor", "s of one core", fmt.Sprintf("over %d follows, in the stores of "+
		"graph, inbox and counters: every entity audited (%d checks, in %.1f s), and each of the projections verified by a shadow. At the "+
		"default share of %.2f of a core, half for either, a round takes %.0f s.", l.events, r.Checks, r.Seconds, auditShare,
		max(r.Audits, each)/(auditShare/2)))
	row.series(audits).add(measurement{value: r.Audits})
	row.series(shadows).add(measurement{value: each})
	row.compare(audits, "", 0, true)
	row.compare(shadows, "", 0, true)
	b.say("  %-18s %s s of audits, %s s of shadows", row.ID, figure(r.Audits), figure(each))
	return nil
}
