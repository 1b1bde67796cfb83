package importer

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// Record is what an import takes whole or rejects whole.
type Record struct {
	// Number rises from record to record. It is the offset of the record's events.
	Number uint64
	// Events are what the record says, each of another kind, with source, offset and time. They are good ones.
	Events []*skeinv1.Event
	// Bad says why the record cannot be taken; nil means it can.
	Bad error
	// Repeat reports that the record says what an earlier one said, and does not count.
	Repeat bool
	// Clamped reports that the record got another time than it has, since that was in the future.
	Clamped bool
	// Early is the time of the record as it has it, where that is a number and long ago, and may be none; empty means it is not.
	Early string
	// Line is the record as it stands, for the rejects.
	Line string
}

// Records are what an import reads. They are the same, in the same order, whenever the import continues.
type Records interface {
	// Next returns the next record, [io.EOF] after the last. It is called by one goroutine.
	Next() (Record, error)
	// Extent returns how many of how many bytes were read; by any goroutine.
	Extent() (read, size int64)
}

// Origin is what must be the same when an import continues, beside its kind and source.
type Origin struct {
	// Digest is a hash of all records.
	Digest string
	// Shape says how records are read, for people.
	Shape string
	// First is the first record as it is understood, for people; empty means it is not said.
	First string
	// StartedAt is when the import began; zero: now.
	StartedAt time.Time
}

// RunRecords imports records of any origin. Of the options, Path names the origin for people; State, Rejects and Source must be
// given. What open returns gives its events the source and, where they have no time, the start that it is called with: those
// of the import that continues. The import may be interrupted at any time, and run again.
func RunRecords(
	ctx context.Context, o Options, of Origin, open func(source string, start time.Time) (Records, error),
) (*Report, error) {
	def(&o.Patience, DefaultPatience)
	def(&o.CallTimeout, defaultCallTimeout)
	if o.Observe == nil {
		o.Observe = func(Progress) {}
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if of.StartedAt.IsZero() {
		// To the second: a service whose clock is a little behind would cut a time of now to its own.
		of.StartedAt = o.Now().UTC().Truncate(time.Second)
	}
	r := &run{Options: o, state: &state{
		Version: stateVersion, Kind: o.Kind, File: filepath.Base(o.Path), Digest: of.Digest, Shape: of.Shape, First: o.First,
		LogID: o.LogID, Source: o.Source, StartedAt: of.StartedAt,
	}}
	r.Notice("reading " + of.Shape)
	if of.First != "" {
		r.Notice("first row: " + of.First)
	}
	if err := r.openState(); err != nil {
		return nil, err
	}
	var err error
	if r.records, err = open(r.state.Source, r.state.StartedAt); err != nil {
		return nil, err
	}
	calls, done := make(chan *call, openCalls), r.state.RecordsDone
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(calls)
		return r.read(gctx, done, calls)
	})
	g.Go(func() error { return r.publish(gctx, calls) })
	err = g.Wait()
	if r.rejects != nil {
		// Also when the import was interrupted: the next run continues from here.
		err = errors.Join(err, r.save(err == nil), r.rejects.close())
	}
	return r.finish(), err
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
