// Package paced builds a store from a log, at a pace, and says how far that is and how long it takes.
//
// A build reads the log, folds each partition, and merges rows. The time that the reading takes is known from what was read. How long the
// rest takes depends on the projection, the events and the machine, so it is tried: while the log is read, a sample of what was read is
// folded and merged, again whenever that has doubled, and at the end.
package paced

import (
	"context"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/worker"
)

// Options of a build.
type Options struct {
	build.Options
	// Pace leaves the rest of the time to what serves.
	Pace replay.Pace
	// Progress is told; nil disables it.
	Progress *replay.Progress
	// Head is the last sequence of the log that is added, Log how much there is up to it.
	Head uint64
	Log  replay.LogSize
	// Worker finishes the build. If it is nil, this process does.
	Worker *worker.Command
	// Check is called now and then, and before each partition. Its error ends the build.
	Check func() error
	// After returns how long what follows the build takes, for so many rows of the store; nil means nothing follows.
	After func(ctx context.Context, rows int64) time.Duration
}

// Build is a [build.Builder] with a pace. The caller rests after Add.
type Build struct {
	*build.Builder
	o Options
	// seq is the last sequence that was added, events and bytes are what Log counts, total is how much of that there is.
	seq, events, bytes, total uint64
	// unlooked bytes were added since the last check.
	unlooked int
	// due is the part of the log at which the next sample is taken.
	due float64
	// merge and after are how long these take, as far as known.
	merge, after time.Duration
	// merged is when the last rows were merged.
	merged time.Time
	// rows are those of a store that a worker has made.
	rows int64
}

const (
	// firstSample is the part of the log after which the first sample is taken.
	firstSample = 1.0 / 64
	// sampled is the part of the events that are a sample: all samples together are two hundredths of the work.
	sampled = 128
	// messageBytes are about those that a message of the stream has beside its events.
	messageBytes = 64
)

// New begins a build.
func New(o Options) (b *Build, err error) {
	if o.After == nil {
		o.After = func(context.Context, int64) time.Duration { return 0 }
	}
	b = &Build{o: o, due: firstSample}
	o.Around, o.Folded, o.Merging = b.around, o.Progress.Add, b.merging
	if b.Builder, err = build.New(o.Options); err != nil {
		return nil, err
	}
	unit, total := "envelopes", o.Head
	switch {
	case o.Log.Events > 0:
		unit, total = "events", o.Log.Events
	case o.Log.Bytes > 0:
		unit, total = "bytes", o.Log.Bytes
	}
	partitions := events.NumPartitions
	if o.Partitions != nil {
		partitions = o.Partitions.Len()
	}
	b.total = total
	o.Progress.StartBuild(partitions)
	o.Progress.Start(unit, total)
	o.Progress.Ahead(replay.Unknown)
	return b, nil
}

// Add adds envelopes that follow on the last.
func (b *Build) Add(ctx context.Context, envs []*events.Envelope) error {
	if err := b.Builder.Add(envs); err != nil {
		return err
	}
	for _, env := range envs {
		b.seq = env.Seq()
		b.bytes += uint64(env.Bytes) + messageBytes
		b.unlooked += env.Bytes
		for i := range env.Events {
			if b.o.Log.Kinds.Has(env.Events[i].Kind) {
				b.events++
			}
		}
		b.o.Progress.Read(len(env.Events), env.Bytes)
	}
	done := b.seq
	switch {
	case b.o.Log.Events > 0:
		done = b.events
	case b.o.Log.Bytes > 0:
		done = b.bytes
	}
	b.total = max(b.total, done) // what is known of the log is of a moment ago
	b.o.Progress.Total(b.total)
	b.o.Progress.Set(done)
	if part := float64(done) / float64(b.total); part >= b.due && b.o.Progress != nil {
		b.due = 2 * part
		if err := b.sample(ctx, part); err != nil {
			return err
		}
	}
	if b.unlooked < replay.DiskPeriod {
		return nil
	}
	b.unlooked = 0
	return b.o.Check()
}

// After returns how long what follows the build takes, as far as known.
func (b *Build) After() time.Duration { return b.after }

// sample folds and merges a sample of what was added, which is such a part of all.
func (b *Build) sample(ctx context.Context, part float64) error {
	s := b.Sample(b.Scattered()/sampled + 1)
	began := time.Now()
	if err := s.Fold(); err != nil {
		return err
	}
	folded := time.Now()
	if err := s.Merge(); err != nil {
		return err
	}
	if s.Events == 0 {
		return ctx.Err()
	}
	all := float64(b.Scattered()) / part / float64(s.Events)
	paced := func(worked time.Duration) time.Duration {
		return time.Duration(all * float64(worked+b.o.Pace.Pause(worked)))
	}
	b.merge = paced(time.Since(folded))
	fold := paced(folded.Sub(began)) / time.Duration(b.Workers(part))
	b.after = b.o.After(ctx, int64(all*float64(s.Rows())))
	b.o.Progress.Ahead(fold + b.merge + b.after)
	return ctx.Err()
}

// Finish folds and merges what was added, and makes the store. The last sample has events of all of the log: imports come one kind after
// the other.
func (b *Build) Finish(ctx context.Context) error {
	if b.o.Progress != nil {
		if err := b.sample(ctx, 1); err != nil {
			return err
		}
	}
	b.o.Progress.Start("events", uint64(b.Scattered()))
	b.o.Progress.Ahead(b.merge + b.after)
	if b.o.Worker == nil {
		return b.Builder.Finish(ctx)
	}
	h, err := b.HandOver()
	if err == nil {
		b.rows, err = b.o.Worker.Finish(ctx, h, b.o.Pace.Share, b.reported)
	}
	return err
}

// reported notes what a worker has done, which rests by itself.
func (b *Build) reported(r worker.Report) error {
	b.o.Progress.Add(r.Events)
	switch {
	case r.Merging:
		b.mergedRows(r.Rows, r.All)
	case r.Partition:
		b.o.Progress.Folded()
		return b.o.Check()
	}
	return nil
}

// Rows returns how many rows the store has that Finish has made.
func (b *Build) Rows() int64 { return b.rows + b.Builder.Rows() }

// around folds a partition.
func (b *Build) around(ctx context.Context, fold func() error) error {
	if err := b.o.Check(); err != nil {
		return err
	}
	began := time.Now()
	if err := fold(); err != nil {
		return err
	}
	b.o.Progress.Folded()
	return b.o.Pace.Rest(ctx, time.Since(began))
}

// merging is called while rows are merged.
func (b *Build) merging(ctx context.Context, rows, all int64) error {
	b.mergedRows(rows, all)
	if rows == 0 {
		b.merged = time.Now()
		return nil
	}
	err := b.o.Pace.Rest(ctx, time.Since(b.merged))
	b.merged = time.Now()
	return err
}

// mergedRows notes that so many of all rows are merged.
func (b *Build) mergedRows(rows, all int64) {
	if rows == 0 {
		b.o.Progress.Start("rows", uint64(all))
		b.o.Progress.Ahead(b.after)
	}
	b.o.Progress.Set(uint64(rows))
}
