package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay"
)

// ErrRejected means that more records of a file are bad than are allowed.
var ErrRejected = errors.New("nothing was published")

// checkFile reads a whole file as an import does, but publishes nothing. It also tells people how
// the file is read.
func checkFile(ctx context.Context, o Options, s *shape, start time.Time) (*Report, error) {
	o.Notice("reading " + s.String())
	if s.comments > 0 {
		o.Notice(fmt.Sprintf("skipping %d lines before the first row that begin with #", s.comments))
	}
	if err := noticeFirstRecord(o, s, start); err != nil {
		return nil, err
	}

	report := &Report{Source: o.Source, StartedAt: start, Shape: s.String(), Unpublished: true}
	var earliestTime, latestTime events.Micros
	err := eachFileRecord(ctx, o, s, start, func(r *Record) error {
		report.Records = r.Number
		report.Record = r.Number
		if r.Clamped {
			report.Clamped++
		}
		switch {
		case r.RejectedBy != nil:
			report.Rejected++
			report.Reasons.Add(r.RejectedBy.Error(), r.Number, r.Line)
			if o.DryRun && len(report.SampleRejects) < sampleSize {
				report.SampleRejects = append(report.SampleRejects, Reject{Record: r.Number, Reason: r.RejectedBy.Error(), Line: r.Line})
			}
			return nil
		case r.Repeat:
			report.Skipped++
			return nil
		}

		// All events of a record have its time.
		at := microsOf(r.Events[0].GetOccurredAt().AsTime())
		if report.Events == 0 {
			earliestTime = at
			latestTime = at
		}
		earliestTime = min(earliestTime, at)
		latestTime = max(latestTime, at)
		report.Events += uint64(len(r.Events))
		for _, ev := range r.Events {
			if o.DryRun && len(report.Sample) < sampleSize {
				report.Sample = append(report.Sample, ev)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if report.Records == 0 {
		return nil, errNoRecords
	}
	// A wrong unit of the times shows in their range.
	if s.hasTime() && report.Events > 0 {
		o.Notice(fmt.Sprintf("times from %s to %s", formatTime(earliestTime), formatTime(latestTime)))
	}
	return report, nil
}

// noticeFirstRecord tells people what the first record means.
func noticeFirstRecord(o Options, s *shape, start time.Time) error {
	records, err := newFileRecords(o, s, o.Source, start)
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }() // it was only read

	first, err := records.reader.nextRecord()
	if errors.Is(err, io.EOF) {
		return errNoRecords
	}
	if err != nil {
		return err
	}
	o.Notice("first row: " + records.describe(&first))
	return nil
}

// eachFileRecord calls do with each record of a file, even if it is bad. It reports the progress of
// a check.
func eachFileRecord(ctx context.Context, o Options, s *shape, start time.Time, do func(*Record) error) error {
	records, err := newFileRecords(o, s, o.Source, start)
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }() // it was only read

	for {
		r, err := records.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.Number%observeEvery == 0 {
			o.Observe(Progress{PhaseProgress: records.file.progress(replay.Checking)})
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
		if err := do(&r); err != nil {
			return err
		}
	}
}

// writeRejects writes the rejected records of a file from which nothing is published.
func writeRejects(ctx context.Context, o Options, s *shape, start time.Time) error {
	rejects, err := openRejects(o.Rejects, 0)
	if err != nil {
		return fmt.Errorf("cannot keep rejects (--rejects places them): %w", err)
	}
	err = eachFileRecord(ctx, o, s, start, func(r *Record) error {
		if r.RejectedBy == nil {
			return nil
		}
		return rejects.write([]Reject{{Record: r.Number, Reason: r.RejectedBy.Error(), Line: r.Line}})
	})
	return errors.Join(err, rejects.sync(), rejects.close())
}
