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
	// Number is the offset of the record's events. It rises from record to record.
	Number uint64
	// Events are the facts of the record, valid, each of a different kind, with source, offset and time.
	Events []*skeinv1.Event
	// Bad is the reason why the record is rejected; nil means that it is not.
	Bad error
	// Repeat reports whether an earlier record said the same, so that this one does not count.
	Repeat bool
	// Clamped reports whether the time of the record was in the future, and was replaced.
	Clamped bool
	// Line is the record as it was read, or its beginning, for the rejects.
	Line string
}

// Records is the input of an import. It must give the same records in the same order whenever the import continues.
type Records interface {
	// Next returns the next record, or [io.EOF] after the last. One goroutine calls it.
	Next() (Record, error)
	// Progress returns how much of the input was read. Any goroutine may call it.
	Progress() replay.PhaseProgress
}

// Publishing says to which log an import publishes, and how. All importers have it in common.
type Publishing struct {
	// LogID identifies the log. An import into another log does not continue an old state.
	LogID string
	// Publish makes one call. The importer makes one call at a time.
	Publish PublishFunc
	// Patience is how long a call or a command is retried while the service, or a Redis, does not answer. Default 5 min.
	Patience time.Duration
	// CallTimeout is how long one attempt of Publish may take. Default 30 s.
	CallTimeout time.Duration
	// Lag returns the lag of the slowest projection. Calls wait while it is more than MaxLag. A nil Lag or a MaxLag of 0 disables this.
	Lag    LagFunc
	MaxLag time.Duration
	// Observe is called with the progress, from one goroutine at a time; nil disables it.
	Observe func(Progress)
	// Notice is called with remarks for people before anything is published: how the input is read, and how the import begins or continues.
	// nil disables it.
	Notice func(string)
	// Now returns the time; nil means the clock.
	Now func() time.Time
}

// SetDefaults replaces what is not set.
func (p *Publishing) SetDefaults() {
	def(&p.Patience, DefaultPatience)
	def(&p.CallTimeout, defaultCallTimeout)
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

// Origin has the properties that must be the same when an import continues, beside its kind and source.
type Origin struct {
	// Digest is a hash of all records.
	Digest string
	// Shape describes how records are read, for people.
	Shape string
	// StartedAt is when the import began; zero means now.
	StartedAt time.Time
}

// RunRecords imports records of any origin. Among the options, Path names the origin for people; State, Rejects and Source are
// required. It calls open with the source and the start of the import, which are those of the first run if the import continues. The
// events of the returned records must have this source, and this start if they have no time of their own. The import may be interrupted
// at any time; the next run continues.
func RunRecords(
	ctx context.Context, o Options, of Origin, open func(source string, start time.Time) (Records, error),
) (*Report, error) {
	o.SetDefaults()
	if of.StartedAt.IsZero() {
		of.StartedAt = StartOf(o.Now())
	}
	r := &run{Options: o, state: &state{
		Version: stateVersion, Kind: o.Kind, File: cmp.Or(o.Name, filepath.Base(o.Path)), Digest: of.Digest, Shape: of.Shape, First: o.First,
		LogID: o.LogID, Source: o.Source, StartedAt: of.StartedAt,
	}}
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
	// An interrupted import saves too: the next run continues from here.
	err = errors.Join(err, r.save(err == nil), r.rejects.close())
	if errors.Is(err, ErrSourceUsed) {
		// Nothing was imported. With a state, the next run would take the ignored records for its own.
		err = errors.Join(err, os.Remove(r.State))
	}
	return r.finish(), err
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
