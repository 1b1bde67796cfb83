package importer

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
)

// Record is the unit of an import, which is accepted or rejected as a whole.
type Record struct {
	// Number is the offset of the record's events. It increases from record to record.
	Number uint64
	// Events are the facts of the record. They are valid, each of a different kind, and have
	// source, offset and time.
	Events []*skeinv1.Event
	// RejectedBy says why the record is rejected; nil means that it is not.
	RejectedBy error
	// Repeat is set if an earlier record had the same fact, so that this record is skipped.
	Repeat bool
	// Clamped is set if the time of the record was in the future and was replaced.
	Clamped bool
	// Line is the record as it was read, or its beginning. It is kept with rejects.
	Line string
}

// Records is the input of an import. It must return the same records in the same order whenever the
// import continues.
type Records interface {
	// Next returns the next record, or [io.EOF] after the last one. Only one goroutine calls it.
	Next() (Record, error)
	// Progress returns how much of the input was read. Any goroutine may call it.
	Progress() replay.PhaseProgress
}

// PublishOptions says to which log an import publishes, and how. All kinds of imports have these
// options.
type PublishOptions struct {
	// LogID identifies the log. An import into another log does not continue an old state.
	LogID string
	// Publish calls Publish once. The importer never makes two calls at the same time.
	Publish PublishFunc
	// Patience is for how long a call or a command is retried if the service, or a Redis, does not
	// answer. Default 5 min.
	Patience time.Duration
	// CallTimeout is the time limit of one attempt of Publish. Default 30 s.
	CallTimeout time.Duration
	// Lag returns the lag of the slowest projection. Calls wait while it is more than MaxLag. If
	// Lag is nil or MaxLag is 0, they do not wait.
	Lag    LagFunc
	MaxLag time.Duration
	// Observe is called with the progress, by one goroutine at a time; it may be nil.
	Observe func(Progress)
	// Notice is called with remarks for people before anything is published: how the input is read,
	// and how the import begins or continues. It may be nil.
	Notice func(string)
	// Now returns the current time; nil means the clock of the machine.
	Now func() time.Time
}

// SetDefaults sets the defaults of fields that are not set.
func (p *PublishOptions) SetDefaults() {
	setDefault(&p.Patience, DefaultPatience)
	setDefault(&p.CallTimeout, defaultCallTimeout)
	if p.Observe == nil {
		p.Observe = func(Progress) {}
	}
	if p.Notice == nil {
		p.Notice = func(string) {}
	}
	if p.Now == nil {
		p.Now = time.Now
	}
}

// Origin has those properties, besides its kind and source, that must be the same when an import
// continues.
type Origin struct {
	// Digest is a hash of all records.
	Digest string
	// Shape describes how records are read, for people.
	Shape string
	// StartedAt is when the import began; zero means that it begins now.
	StartedAt time.Time
}

// RunRecords imports records from any origin. Of the options, Path names the origin for people;
// State, Rejects and Source are required. It calls open with the source and the start of the
// import, which are those of the first run if the import continues. The events of the returned
// records must have this source, and this start if they have no time of their own. The import may
// be interrupted at any time; the next run continues it.
func RunRecords(
	ctx context.Context, o Options, origin Origin, open func(source string, start time.Time) (Records, error),
) (*Report, error) {
	o.SetDefaults()
	if origin.StartedAt.IsZero() {
		origin.StartedAt = StartOf(o.Now())
	}
	r := &importRun{Options: o, state: &state{
		Version:   stateVersion,
		Kind:      o.Kind,
		File:      cmp.Or(o.Name, filepath.Base(o.Path)),
		Digest:    origin.Digest,
		Shape:     origin.Shape,
		First:     o.First,
		LogID:     o.LogID,
		Source:    o.Source,
		StartedAt: origin.StartedAt,
	}}
	if err := r.openState(); err != nil {
		return nil, err
	}

	var err error
	r.records, err = open(r.state.Source, r.state.StartedAt)
	if err != nil {
		return nil, err
	}

	// One goroutine reads records and prepares calls while the other makes them. done is read
	// before, because the second goroutine changes the state.
	calls := make(chan *call, queuedCalls)
	done := r.state.RecordsDone
	goroutines, groupCtx := errgroup.WithContext(ctx)
	goroutines.Go(func() error {
		defer close(calls)
		return r.readRecords(groupCtx, done, calls)
	})
	goroutines.Go(func() error { return r.publishCalls(groupCtx, calls) })
	err = goroutines.Wait()
	// Save also if the import was interrupted, because the next run continues from here.
	err = errors.Join(err, r.saveState(err == nil), r.rejects.close())
	if errors.Is(err, ErrSourceUsed) {
		// Nothing was imported. If a state stayed, the next run would take the ignored records for
		// its own.
		err = errors.Join(err, os.Remove(r.State))
	}
	return r.completeReport(), err
}

// setDefault sets a field that has its zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
