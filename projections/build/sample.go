package build

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
)

// Sample is a part of the events that were added so far. Fold and Merge do with them what Finish
// does with all events, so that the caller can measure how long that takes. The rows are discarded.
type Sample struct {
	// Events is the number of events that Fold has folded.
	Events int64

	builder *Builder
	// maxEvents is about how many events Fold folds.
	maxEvents int64
	// rest has the rows that are not in place. Its Builder has its files in memory.
	rest *runSet
}

// maxSample is the greatest number of events of one partition in a sample, which keeps a sample to
// a few megabytes.
const maxSample = 1 << 16

// errEnough ends the reading of a partition's events.
var errEnough = errors.New("build: the sample has enough")

// Sample returns a sample of about most events, taken from as few partitions as possible. The
// caller must be done with it before the next Add.
func (b *Builder) Sample(most int64) *Sample {
	out := newBuilder(Options{FS: vfs.NewMem(), New: b.options.New})
	out.tempDir = "" // a directory that exists
	return &Sample{builder: b, maxEvents: most, rest: &runSet{builder: out, maxBytes: 1 << 30}}
}

// Fold folds the sample.
func (s *Sample) Fold() error {
	if err := s.builder.scatter.waitEncoded(); err != nil {
		return err
	}
	t := s.builder.newTables(s.rest.builder)
	for n := range events.NumPartitions {
		if s.Events >= s.maxEvents {
			break
		}
		if err := s.fold(uint8(n), t); err != nil {
			return errors.Join(err, t.close())
		}
	}
	return t.close()
}

// fold folds events of one partition.
func (s *Sample) fold(partition uint8, t *tableWriter) error {
	if s.builder.scatter.parts[partition].eventCount == 0 {
		return nil
	}
	var parts events.Partitions
	parts.Add(partition)
	p := s.builder.options.New()
	m := &s.builder.sampleMemory
	if err := m.Begin(p, &parts, s.builder.log); err != nil {
		return err
	}

	until := s.Events + maxSample
	return s.builder.foldInto(m, p, partition, t, s.rest, func() error {
		err := s.builder.scatter.eachEvent(partition, func(ev *events.Event, logTime events.Micros) error {
			if s.Events == until {
				return errEnough
			}
			s.Events++
			return m.Fold(ev, logTime)
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
}

// Rows returns the number of rows of the sample, once Merge has returned.
func (s *Sample) Rows() int64 { return s.rest.builder.rows.Load() }

// Merge merges those rows of the sample that are not in place. The caller calls it once, after
// Fold.
func (s *Sample) Merge(ctx context.Context) error {
	if err := s.rest.flush(); err != nil {
		return err
	}
	t := s.builder.newTables(s.rest.builder)
	err := s.rest.builder.mergePiece(ctx, s.rest, keyRange{}, t)
	return errors.Join(err, t.close())
}
