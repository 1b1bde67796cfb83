package build

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events"
)

// Sample is a part of the events that were added so far. Its Fold and Merge do with them the same as Finish does with all events, so
// that the caller can measure the time. The rows are thrown away.
type Sample struct {
	// Events is the number of events that Fold has folded.
	Events int64

	b    *Builder
	most int64
	rest *runs
}

// maxSample is the greatest number of events of one partition in a sample, so that a sample takes a few megabytes.
const maxSample = 1 << 16

// errEnough ends the reading of a sample.
var errEnough = errors.New("build: the sample has enough")

// Sample returns a sample of about most events, from as few partitions as that takes. The caller must be done with it before the next
// Add.
func (b *Builder) Sample(most int64) *Sample {
	out := prepare(Options{FS: vfs.NewMem(), New: b.o.New})
	out.parts = "" // a directory that exists
	return &Sample{b: b, most: most, rest: &runs{b: out, most: 1 << 30}}
}

// Fold folds the sample.
func (s *Sample) Fold() error {
	if err := s.b.scatter.settle(); err != nil {
		return err
	}
	t := s.b.newTables(s.rest.b)
	for n := range events.NumPartitions {
		if s.Events >= s.most {
			break
		}
		if err := s.fold(uint8(n), t); err != nil {
			return errors.Join(err, t.close())
		}
	}
	return t.close()
}

func (s *Sample) fold(partition uint8, t *tables) error {
	if s.b.scatter.parts[partition].events == 0 {
		return nil
	}
	var parts events.Partitions
	parts.Add(partition)
	p, m, until := s.b.o.New(), &s.b.sampled, s.Events+maxSample
	if err := m.Begin(p, &parts, s.b.log); err != nil {
		return err
	}
	return s.b.foldInto(m, p, partition, t, s.rest, func() error {
		err := s.b.scatter.each(partition, func(ev *events.Event, logTime events.Micros) error {
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
func (s *Sample) Rows() int64 { return s.rest.b.rows.Load() }

// Merge merges those rows of the sample that are not in place. The caller calls it once, after Fold.
func (s *Sample) Merge(ctx context.Context) error {
	if err := s.rest.flush(); err != nil {
		return err
	}
	t := s.b.newTables(s.rest.b)
	err := s.rest.b.mergePiece(ctx, s.rest, piece{}, t)
	return errors.Join(err, t.close())
}
