// Package paced builds a store from a log, at a pace, and estimates the time that is left.
//
// A build reads the log, folds each partition, and merges rows. The time for reading follows from the part that is read. The time for
// the rest depends on the projection, the events and the machine, so it is measured: during the reading, the build folds and merges a
// sample of the events so far. It takes a new sample whenever the events have doubled, and at the end.
package paced

import (
	"context"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/build"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/worker"
)

// Options of a build.
type Options struct {
	build.Options
	// Pace limits the build, to leave time for a service in the same process.
	Pace replay.Pace
	// Progress gets the progress; nil disables it.
	Progress *replay.Progress
	// Head is the last sequence of the log that will be added, Log the size of the log up to it.
	Head uint64
	Log  replay.LogSize
	// Worker finishes the build. If it is nil, this process does.
	Worker *worker.Command
	// Check is called after every [replay.DiskPeriod] bytes of the log, and after every few thousand folded events. Its error ends the build.
	Check func() error
	// After estimates how long the caller's work after the build takes, for this many rows in the store; nil means there is none.
	After func(ctx context.Context, rows int64) time.Duration
}

// Build is a [build.Builder] with a pace. Finish rests by itself; after Add the caller rests.
type Build struct {
	*build.Builder
	o Options
	// seq is the last sequence that was added. events and bytes count the log as Log does; total is the whole amount in the unit of the
	// progress.
	seq, events, bytes, total uint64
	// unlooked is the number of bytes added since the last check.
	unlooked int
	// due is the part of the log, from 0 to 1, at which the next sample is taken.
	due float64
	// merge and after are the latest estimates of how long writing and the caller's work after the build take.
	merge, after time.Duration
	// rows are those of a store that a worker has made.
	rows int64
	// writing begins the last phase.
	writing sync.Once
}

const (
	// firstSample is the part of the log after which the first sample is taken.
	firstSample = 1.0 / 64
	// sampled: one in so many events is in a sample. All samples together are two hundredths of the work.
	sampled = 128
	// messageBytes is about the size of a message of the stream without its events.
	messageBytes = 64
)

// New begins a build.
func New(o Options) (b *Build, err error) {
	if o.After == nil {
		o.After = func(context.Context, int64) time.Duration { return 0 }
	}
	b = &Build{o: o, due: firstSample}
	o.Options = worker.Paced(o.Options, o.Pace, b.reported)
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
	b.total = total
	o.Progress.StartPhase(replay.Reading, unit, total)
	o.Progress.SetAfterPhase(replay.Unknown)
	return b, nil
}

// Add adds envelopes, which must follow those of the last call in the log.
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
	}
	done := b.seq
	switch {
	case b.o.Log.Events > 0:
		done = b.events
	case b.o.Log.Bytes > 0:
		done = b.bytes
	}
	b.total = max(b.total, done) // the log may have grown since its size was asked
	b.o.Progress.SetTotal(b.total)
	b.o.Progress.SetDone(done)
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

// After returns the latest estimate of how long the work after the build takes.
func (b *Build) After() time.Duration { return b.after }

// sample folds and merges a sample of the events so far, which are this part of all events, and derives the estimates.
func (b *Build) sample(ctx context.Context, part float64) error {
	s := b.Sample(b.Scattered()/sampled + 1)
	began := time.Now()
	if err := s.Fold(); err != nil {
		return err
	}
	folded := time.Now()
	if err := s.Merge(ctx); err != nil {
		return err
	}
	if s.Events == 0 {
		return ctx.Err()
	}
	all := float64(b.Scattered()) / part / float64(s.Events)
	paced := func(worked time.Duration) time.Duration {
		return time.Duration(all * float64(worked+b.o.Pace.Pause(worked)))
	}
	workers := time.Duration(b.Workers(part))
	b.merge = paced(time.Since(folded)) / workers
	fold := paced(folded.Sub(began)) / workers
	b.after = b.o.After(ctx, int64(all*float64(s.Rows())))
	b.o.Progress.SetAfterPhase(fold + b.merge + b.after)
	return ctx.Err()
}

// Finish folds and merges the events, and makes the store. It takes one last sample first, because the kinds of events are not spread
// evenly over a log: imports come one kind after the other.
func (b *Build) Finish(ctx context.Context) error {
	if b.o.Progress != nil {
		if err := b.sample(ctx, 1); err != nil {
			return err
		}
	}
	b.o.Progress.StartPhase(replay.Folding, "events", uint64(b.Scattered()))
	b.o.Progress.SetAfterPhase(b.merge + b.after)
	if b.o.Worker == nil {
		return b.Builder.Finish(ctx)
	}
	h, err := b.HandOver()
	if err == nil {
		b.rows, err = b.o.Worker.Finish(ctx, h, b.o.Pace.Share, b.reported)
	}
	return err
}

// reported notes the progress since Finish began.
func (b *Build) reported(at replay.PhaseProgress) error {
	if at.Phase == replay.Folding {
		b.o.Progress.SetDone(at.Done)
		return b.o.Check()
	}
	b.writing.Do(func() {
		b.o.Progress.StartPhase(at.Phase, at.Unit, at.Total)
		b.o.Progress.SetAfterPhase(b.after)
	})
	b.o.Progress.SetTotal(at.Total)
	b.o.Progress.SetDone(at.Done)
	return nil
}

// Rows returns how many rows the store has that Finish has made.
func (b *Build) Rows() int64 { return b.rows + b.Builder.Rows() }
