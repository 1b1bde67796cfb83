// Package paced builds a store from a log at a limited pace and estimates the remaining time.
//
// A build reads the log, folds each partition, and merges rows. How long the reading takes follows
// from the part that has been read. How long the other steps take depends on the projection, the
// events and the machine, so it is measured: during the reading, the build folds and merges a
// sample of the events read so far. It takes a new sample whenever the number of events has
// doubled, and a last one at the end.
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
	// Progress is updated as the build proceeds; it may be nil.
	Progress *replay.Progress
	// Head is the last sequence of the log that will be added.
	Head uint64
	// Log is the size of the log up to Head.
	Log replay.LogSize
	// Worker starts the process that finishes the build. If Worker is nil, this process finishes
	// it.
	Worker *worker.Command
	// Check is called after every [replay.DiskPeriod] bytes of the log, and after every few
	// thousand folded events. If it returns an error, the build fails.
	Check func() error
	// After estimates how long the caller will work after the build, if the store has this many
	// rows; nil means not at all.
	After func(ctx context.Context, rows int64) time.Duration
}

// Build is a [build.Builder] with a pace. Finish rests by itself, but Add does not: its caller
// rests after each call.
type Build struct {
	*build.Builder
	opts Options
	// addedSeq is the last sequence that was added. addedEvents and addedBytes are what was added
	// so far, counted like opts.Log.
	addedSeq, addedEvents, addedBytes uint64
	// total is the size of the whole log in the unit of the progress.
	total uint64
	// uncheckedBytes is how many bytes of the log were added since the last call of Check.
	uncheckedBytes int
	// nextSampleAt is the part of the log, from 0 to 1, after which the next sample is taken.
	nextSampleAt float64
	// A build with a key is saved after the part nextSaveAt of the log, or when unsavedBytes, which
	// were added since it was last saved, are many.
	nextSaveAt   float64
	unsavedBytes int
	// mergeTime is the latest estimate of how long the merge takes, and timeAfterBuild that of the
	// caller's work after the build.
	mergeTime, timeAfterBuild time.Duration
	// workerRows is the number of rows in the store if a worker has made it.
	workerRows int64
	// startWriting starts the last phase of the progress.
	startWriting sync.Once
}

const (
	// firstSampleAt is the part of the log after which the first sample is taken.
	firstSampleAt = 1.0 / 64
	// eventsPerSample says how large a sample is: it has one of this many events. Samples are taken
	// after 1/64, 1/32, … and all of the log, so that all of them together have about one in 50 of
	// the events.
	eventsPerSample = 128
	// messageOverhead is about how many bytes a message of the stream has in addition to its
	// events. The size of the log includes them.
	messageOverhead = 64
	// savePart is the part of the log after which a build with a key is saved, and saveBytes is the
	// number of bytes of the log, whichever comes first. After an interruption, at most so much is
	// read again. Each save waits until the disk has the events.
	savePart  = 0.1
	saveBytes = 1 << 30
)

// New begins a build. The caller must call Close in any case.
func New(o Options) (b *Build, err error) {
	if o.After == nil {
		o.After = func(context.Context, int64) time.Duration { return 0 }
	}
	b = &Build{opts: o, nextSampleAt: firstSampleAt, nextSaveAt: savePart}
	o.Options = worker.Throttled(o.Options, o.Pace, b.setProgress)
	b.Builder, err = build.New(o.Options)
	if err != nil {
		return nil, err
	}

	// Events measure the work best. Envelopes, which are always known, measure it worst.
	unit := "envelopes"
	b.total = o.Head
	switch {
	case o.Log.Events > 0:
		unit = "events"
		b.total = o.Log.Events
	case o.Log.Bytes > 0:
		unit = "bytes"
		b.total = o.Log.Bytes
	}
	o.Progress.StartPhase(replay.Reading, unit, b.total)
	o.Progress.SetAfterPhase(replay.Unknown)

	// How many events and bytes an interrupted build has added is estimated from their sequences.
	if seq := b.Cursor().Seq; seq > 0 {
		part := float64(seq) / float64(max(seq, o.Head))
		b.addedSeq = seq
		b.addedEvents = uint64(part * float64(o.Log.Events))
		b.addedBytes = uint64(part * float64(o.Log.Bytes))
		b.nextSaveAt += part
	}
	return b, nil
}

// Add adds envelopes. They must follow those of the last call in the log.
func (b *Build) Add(ctx context.Context, envs []*events.Envelope) error {
	if err := b.Builder.Add(envs); err != nil {
		return err
	}
	for _, env := range envs {
		b.addedSeq = env.Seq()
		b.addedBytes += uint64(env.Bytes) + messageOverhead
		b.uncheckedBytes += env.Bytes
		b.unsavedBytes += env.Bytes
		for i := range env.Events {
			if b.opts.Log.Kinds.Has(env.Events[i].Kind) {
				b.addedEvents++
			}
		}
	}

	done := b.addedSeq
	switch {
	case b.opts.Log.Events > 0:
		done = b.addedEvents
	case b.opts.Log.Bytes > 0:
		done = b.addedBytes
	}
	// The log may have grown since its size was read.
	b.total = max(b.total, done)
	b.opts.Progress.SetTotal(b.total)
	b.opts.Progress.SetDone(done)

	readPart := float64(done) / float64(b.total)
	if readPart >= b.nextSampleAt && b.opts.Progress != nil {
		b.nextSampleAt = 2 * readPart
		if err := b.takeSample(ctx, readPart); err != nil {
			return err
		}
	}

	if b.opts.Key != "" && (readPart >= b.nextSaveAt || b.unsavedBytes >= saveBytes) {
		b.nextSaveAt = readPart + savePart
		b.unsavedBytes = 0
		if err := b.Save(); err != nil {
			return err
		}
	}

	if b.uncheckedBytes < replay.DiskPeriod {
		return nil
	}
	b.uncheckedBytes = 0
	return b.opts.Check()
}

// After returns the latest estimate of how long the caller's work after the build takes.
func (b *Build) After() time.Duration { return b.timeAfterBuild }

// takeSample folds and merges a sample of the events so far and derives the estimates. readPart is
// the part of the log that was read, from 0 to 1.
func (b *Build) takeSample(ctx context.Context, readPart float64) error {
	s := b.Sample(b.ScatteredEvents()/eventsPerSample + 1)
	foldStart := time.Now()
	if err := s.Fold(); err != nil {
		return err
	}
	mergeStart := time.Now()
	if err := s.Merge(ctx); err != nil {
		return err
	}
	if s.Events == 0 {
		return ctx.Err()
	}

	// scale is how many times as large as the sample the whole log is.
	scale := float64(b.ScatteredEvents()) / readPart / float64(s.Events)
	scaledWithRests := func(worked time.Duration) time.Duration {
		return time.Duration(scale * float64(worked+b.opts.Pace.Pause(worked)))
	}
	workers := time.Duration(b.Workers())
	b.mergeTime = scaledWithRests(time.Since(mergeStart)) / workers
	foldTime := scaledWithRests(mergeStart.Sub(foldStart)) / workers
	b.timeAfterBuild = b.opts.After(ctx, int64(scale*float64(s.Rows())))
	b.opts.Progress.SetAfterPhase(foldTime + b.mergeTime + b.timeAfterBuild)
	return ctx.Err()
}

// Finish folds and merges the events, which makes the store. It takes a last sample first, because
// the kinds of events are not spread evenly over a log: imports come one kind after the other.
func (b *Build) Finish(ctx context.Context) error {
	if b.opts.Progress != nil && !b.HasAllEvents() {
		if err := b.takeSample(ctx, 1); err != nil {
			return err
		}
	}

	b.opts.Progress.StartPhase(replay.Folding, "events", uint64(b.ScatteredEvents()))
	b.opts.Progress.SetAfterPhase(b.mergeTime + b.timeAfterBuild)
	if b.opts.Worker == nil {
		return b.Builder.Finish(ctx)
	}

	h, err := b.HandOver()
	if err != nil {
		return err
	}
	b.workerRows, err = b.opts.Worker.Finish(ctx, h, b.opts.Pace.Share, b.setProgress)
	return err
}

// setProgress passes on the progress of the phases that Finish performs, in this process or in a
// worker. It also checks the disk.
func (b *Build) setProgress(at replay.PhaseProgress) error {
	if at.Phase == replay.Folding {
		b.opts.Progress.SetDone(at.Done)
		return b.opts.Check()
	}
	b.startWriting.Do(func() {
		b.opts.Progress.StartPhase(at.Phase, at.Unit, at.Total)
		b.opts.Progress.SetAfterPhase(b.timeAfterBuild)
	})
	b.opts.Progress.SetTotal(at.Total)
	b.opts.Progress.SetDone(at.Done)
	return nil
}

// Rows returns the number of rows in the store that Finish has made.
func (b *Build) Rows() int64 { return b.workerRows + b.Builder.Rows() }
