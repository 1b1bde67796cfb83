package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay/importer"
)

// Options say what is imported and how.
type Options struct {
	// URL is the address of the Redis: redis://user:password@host:port/database, or rediss://.
	URL string
	// Mapping says what its keys mean.
	Mapping *Mapping
	// Name names the import for people and in its source: the name of the mapping file.
	Name string
	// State is the directory in which the import keeps what it has read and published.
	State string
	// Commands is how many commands a second Redis gets at most; 0 means as many as it answers.
	Commands float64
	// PageSize is how many members one command asks for. Default 1000.
	PageSize int
	// Restart forgets what earlier runs read and published.
	Restart bool
	// LogID names the log, so that an import into another one begins anew.
	LogID string
	// Publish makes the calls, one at a time. They wait while Lag says that a projection is more than MaxLag behind.
	Publish importer.PublishFunc
	Lag     importer.LagFunc
	MaxLag  time.Duration
	// Patience is for how long a call is tried again while Redis or the service does not answer. Default 5 min.
	Patience time.Duration
	// CallTimeout is how long one call of Publish may take before it is tried again. Default 30 s.
	CallTimeout time.Duration
	// Observe is told how far the import is, from one goroutine at a time; nil disables it.
	Observe func(Progress)
	// Notice is told what is remarkable; nil disables it.
	Notice func(string)
	// Now tells the time; nil means the clock.
	Now func() time.Time
}

// Progress is how far an import is.
type Progress struct {
	// Keys of Total were scanned, and had so many elements. Total is what the server says it has.
	Keys, Total, Elements uint64
	// Facts of New were published; New is 0 while keys are read.
	Published, New uint64
	// Retrying is the error of the last attempt while something is tried again; nil means all is well.
	Retrying error
	// Slowed is the lag of the projection that publishing waits for, or waited for lately; zero: they keep up.
	Slowed importer.Lag
}

// Report is what an import did.
type Report struct {
	KeyCounts
	// Found is how many different facts Redis has, New how many of them no earlier run had, Published how many the service
	// accepted.
	Found, New, Published uint64
	// Clamped of the new facts had a time after the start of the run, by at most a day, and got that instead.
	Clamped uint64
	// Gone is how many facts of earlier runs Redis no longer has. The log keeps them.
	Gone uint64
	// Rejected is how many elements and keys could not be taken; Rejects is the file that has them, if there are any.
	Rejected uint64
	Rejects  string
	// Reasons say why, each with the first element.
	Reasons importer.Reasons
	// Held is for how long commands waited because of the limit, Waited for how long calls waited for projections.
	Held, Waited time.Duration
	// Refused is how many facts the service refused, and RefusedFile has them.
	Refused     uint64
	RefusedFile string
	Source      string
	Run         int
	StartedAt   time.Time
	// Position contains all that was imported.
	Position string
	// Sample has the first events and rejects of a dry run.
	Sample        []*skeinv1.Event
	SampleRejects []string
}

const (
	defaultPageSize = 1000
	defaultTimeout  = 30 * time.Second
	// saveEvery bounds what is read again after a crash.
	saveEvery  = 30 * time.Second
	sampleSize = 10
)

// run is one run of an import.
type run struct {
	Options
	from   keyspace
	server string
	// held reports for how long commands waited for the limit; nil means there is none.
	held   func() time.Duration
	state  *state
	report Report
	// maxRecords bounds what is sorted in memory; 0 means the default.
	maxRecords int
}

func (o *Options) complete() error {
	if o.Patience == 0 {
		o.Patience = importer.DefaultPatience
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = defaultTimeout
	}
	if o.PageSize == 0 {
		o.PageSize = defaultPageSize
	}
	if o.PageSize < 1 || o.PageSize > 100_000 {
		return fmt.Errorf("--page must be 1 to 100000, not %d", o.PageSize)
	}
	if o.Commands < 0 {
		return fmt.Errorf("--commands must be at least 0 a second, not %v", o.Commands)
	}
	if o.Observe == nil {
		o.Observe = func(Progress) {}
	}
	if o.Notice == nil {
		o.Notice = func(string) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// dial makes a run of options, and a function that ends it.
func dial(o Options) (*run, func(), error) {
	if err := o.complete(); err != nil {
		return nil, nil, err
	}
	s, err := newServer(&o)
	if err != nil {
		return nil, nil, err
	}
	r := &run{Options: o, from: s, server: s.name(), held: func() time.Duration { return s.held }}
	if o.Commands > 0 {
		o.Notice(fmt.Sprintf("Redis is asked at most %.6g commands a second (--commands)", o.Commands))
	}
	s.waiting = func(err error) {
		if err != nil {
			o.Observe(Progress{Retrying: err})
		}
	}
	return r, func() { _ = s.close() }, nil // nothing is written to Redis
}

// Run reads a Redis and publishes what no earlier run with the same state has published. It may be interrupted at any time,
// and run again.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, end, err := dial(o)
	if err != nil {
		return nil, err
	}
	defer end()
	return r.run(ctx)
}

func (r *run) run(ctx context.Context) (*Report, error) {
	unlock, err := lock(r.State)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.openState(); err != nil {
		return nil, err
	}
	if r.state.Phase == phaseReading {
		if err := r.read(ctx); err != nil {
			return r.finish(), err
		}
		if err := r.selectNew(); err != nil {
			return r.finish(), err
		}
	}
	if err := r.publish(ctx); err != nil {
		return r.finish(), err
	}
	return r.finish(), r.conclude()
}

// openState finds out where to begin.
func (r *run) openState() error {
	old, err := loadState(r.State)
	if err != nil && !r.Restart {
		return err
	}
	if r.Restart {
		old = nil
	}
	if old != nil && old.LogID != r.LogID {
		r.Notice("earlier runs went to another log: everything is published to this one")
		old = nil
	}
	// To the second: a service whose clock is a little behind would cut a time of now to its own.
	start := r.Now().UTC().Truncate(time.Second)
	began := func(s *state) string { return s.StartedAt.Format(time.DateTime) }
	switch {
	case old == nil:
		old = &state{Version: stateVersion, LogID: r.LogID, Source: sourceOf(r.Name, r.LogID, r.Now())}
		old.begin(r, start)
	case old.Phase == phaseDone:
		r.Notice(fmt.Sprintf("run %d: %d facts were published before; what Redis has beside them is published now",
			old.Run+1, old.KnownSize))
		old.begin(r, start)
	case old.Phase == phasePublishing:
		r.Notice(fmt.Sprintf("going on with publishing what the run that began %s has found", began(old)))
		if old.Mapping != r.Mapping.digest {
			r.Notice("the mapping changed since: run the import again to read by it")
		}
	case old.Mapping != r.Mapping.digest || old.Server != r.server:
		r.Notice("the mapping or the Redis changed while it was read: it is read anew")
		old.Run--
		old.begin(r, start)
	default:
		r.Notice(fmt.Sprintf("going on after %d keys with the run that began %s", old.Keys.Scanned, began(old)))
	}
	r.state = old
	// The start must be on disk before an event carries it, and the source before the log has it.
	if err := r.save(); err != nil {
		return err
	}
	return r.state.sweep(r.State)
}

func (r *run) save() error {
	if err := r.state.save(r.State); err != nil {
		return fmt.Errorf("cannot keep the state of the import (--state places it): %w", err)
	}
	return nil
}

// begin makes the state that of a new run. What is known stays.
func (s *state) begin(r *run, start time.Time) {
	if !start.After(s.StartedAt) {
		start = s.StartedAt.Add(time.Microsecond) // what this run finds without a time is later than what the last one found
	}
	*s = state{
		Version: s.Version, LogID: s.LogID, Source: s.Source, Known: s.Known, KnownSize: s.KnownSize, Offset: s.Offset,
		Position: s.Position, NextFile: s.NextFile,
		Phase: phaseReading, Run: s.Run + 1, StartedAt: start, Mapping: r.Mapping.digest, Server: r.server,
		Keys: newKeyCounts(r.Mapping),
	}
}

// sourceOf names an import. The log ignores offsets of a source that it has seen, so a state that begins anew must have
// another one.
func sourceOf(name, logID string, now time.Time) string {
	hash := xxh3.HashString(fmt.Sprintf("%s\n%s\n%d", name, logID, now.UnixNano()))
	return importer.SourceOf(name, fmt.Sprintf("%016x", hash))
}

// start is the start of the run.
func (r *run) start() events.Micros { return events.Micros(r.state.StartedAt.UnixMicro()) }

// read scans Redis and sorts what it says into files.
func (r *run) read(ctx context.Context) error {
	id, err := r.from.runID(ctx)
	if err != nil {
		return err
	}
	s := r.state
	if s.RunID != "" && s.RunID != id {
		r.Notice("Redis was started again since: all keys are read again")
		s.Cursor, s.Keys = 0, newKeyCounts(r.Mapping)
	}
	s.RunID = id
	total, err := r.from.size(ctx)
	if err != nil {
		return err
	}
	sorted := &sorter{dir: r.State, files: s.Files, number: s.NextFile, maxRecords: r.maxRecords}
	var buf []byte
	rd := &reading{
		from: r.from, mapping: r.Mapping, start: r.start(), counts: &s.Keys,
		fact: func(f *fact) error {
			buf = f.append(buf[:0])
			return sorted.add(buf)
		},
		reject: func(rej *reject) error {
			buf = rej.append(buf[:0])
			return sorted.add(buf)
		},
	}
	// The state on disk names a cursor only together with the files that have all that was found before it.
	saved := r.Now()
	save := func(cursor uint64) error {
		if err := sorted.flush(); err != nil {
			return fmt.Errorf("cannot keep what was read (--state places it): %w", err)
		}
		s.Cursor, s.Files, s.NextFile = cursor, sorted.files, sorted.number
		saved = r.Now()
		return r.save()
	}
	for cursor := s.Cursor; ; {
		if cursor, err = rd.step(ctx, cursor); err != nil {
			return err
		}
		r.Observe(Progress{Keys: s.Keys.Scanned, Total: uint64(total), Elements: s.Keys.elements()})
		if cursor == 0 {
			return save(0)
		}
		if r.Now().Sub(saved) >= saveEvery || len(sorted.ends) > sorted.bound()/2 {
			if err := save(cursor); err != nil {
				return err
			}
		}
	}
}

// publish publishes the new facts, from where it was interrupted.
func (r *run) publish(ctx context.Context) error {
	s := r.state
	records, err := r.openNew()
	if err != nil {
		return err
	}
	defer func() { _ = records.from.Close() }() // it was only read
	report, err := importer.RunRecords(ctx, importer.Options{
		Kind: "redis", Path: r.Name, Source: s.Source, State: filepath.Join(r.State, s.publishState()),
		Rejects: filepath.Join(r.State, refusedName), LogID: r.LogID, Publish: r.Publish, Patience: r.Patience,
		CallTimeout: r.CallTimeout, Lag: r.Lag, MaxLag: r.MaxLag,
		Observe: func(p importer.Progress) {
			done := uint64(0)
			if p.Record > s.Offset {
				done = p.Record - s.Offset
			}
			r.Observe(Progress{
				Keys: s.Keys.Scanned, Total: s.Keys.Scanned, Elements: s.Keys.elements(), Published: done, New: s.NewSize,
				Retrying: p.Retrying, Slowed: p.Slowed,
			})
		},
	}, importer.Origin{Digest: s.Digest, Shape: s.New, StartedAt: s.StartedAt}, func(string, time.Time) (importer.Records, error) {
		return records, nil
	})
	if report != nil {
		r.report.Published, r.report.Refused, r.report.Clamped = report.Events, report.Rejected, report.Clamped
		r.report.RefusedFile, r.report.Waited = report.Rejects, report.Waited
		for _, why := range report.Reasons {
			why.Reason, why.FirstRecord = "refused by the service: "+why.Reason, 0
			r.report.Reasons = append(r.report.Reasons, why)
		}
		if report.Position != "" {
			s.Position = report.Position
		}
	}
	return err
}

// conclude makes what was published known, when all of it is in the log.
func (r *run) conclude() error {
	s := r.state
	name := fmt.Sprintf("known-%04d", s.Run)
	var paths []string
	for _, file := range []string{s.Known, s.New} {
		if file != "" {
			paths = append(paths, filepath.Join(r.State, file))
		}
	}
	all, err := mergeFiles(paths)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }() // it was only read
	w, err := newRecordWriter(filepath.Join(r.State, name))
	if err != nil {
		return err
	}
	if err := writeAll(w, all); err != nil {
		return err
	}
	s.Phase, s.Known, s.KnownSize, s.Offset = phaseDone, name, w.count, s.Offset+s.NewSize
	s.New, s.Files = "", nil
	if err := r.save(); err != nil {
		return err
	}
	return s.sweep(r.State)
}

// heldBack is for how long commands waited because of the limit.
func (r *run) heldBack() time.Duration {
	if r.held == nil {
		return 0
	}
	return r.held()
}

// finish completes the report.
func (r *run) finish() *Report {
	p, s := &r.report, r.state
	p.KeyCounts, p.Found, p.New, p.Gone, p.Rejected = s.Keys, s.Found, s.NewSize, s.Gone, s.Rejected
	p.Source, p.Run, p.StartedAt, p.Position = s.Source, s.Run, s.StartedAt, s.Position
	if p.Rejected > 0 {
		p.Rejects = filepath.Join(r.State, rejectsName)
	}
	p.Reasons = append(slices.Clone(s.Reasons), p.Reasons...)
	p.Held = r.heldBack()
	return p
}

// DryRun reads a Redis, and publishes and writes nothing.
func DryRun(ctx context.Context, o Options) (*Report, error) {
	r, end, err := dial(o)
	if err != nil {
		return nil, err
	}
	defer end()
	return r.dryRun(ctx)
}

func (r *run) dryRun(ctx context.Context) (*Report, error) {
	start := r.Now().UTC().Truncate(time.Second)
	p := &r.report
	p.KeyCounts, p.StartedAt = newKeyCounts(r.Mapping), start
	total, err := r.from.size(ctx)
	if err != nil {
		return p, err
	}
	rd := &reading{
		from: r.from, mapping: r.Mapping, start: events.Micros(start.UnixMicro()), counts: &p.KeyCounts,
		fact: func(f *fact) error {
			p.Found++
			if len(p.Sample) < sampleSize {
				p.Sample = append(p.Sample, f.event("dry-run", p.Found, events.Micros(start.UnixMicro())))
			}
			return nil
		},
		reject: func(rej *reject) error {
			p.Rejected++
			rej.count(&p.Reasons)
			if len(p.SampleRejects) < sampleSize {
				p.SampleRejects = append(p.SampleRejects, rej.String())
			}
			return nil
		},
	}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		if cursor, err = rd.step(ctx, cursor); err != nil {
			return p, err
		}
		r.Observe(Progress{Keys: p.Scanned, Total: uint64(total), Elements: p.elements()})
	}
	p.Held = r.heldBack()
	return p, nil
}

// removeAll removes a directory of this process's own.
func removeAll(dir string, err *error) {
	if rerr := os.RemoveAll(dir); *err == nil && rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
		*err = rerr
	}
}
