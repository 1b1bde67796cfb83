package redis

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
	"github.com/skein-feed/skein/replay/importer"
	"github.com/skein-feed/skein/replay/internal/recordfile"
)

// Options say which Redis is imported, and how.
type Options struct {
	// URL is the address of the Redis: redis://user:password@host:port/database, or rediss://.
	URL string
	// Mapping gives the meaning of its keys.
	Mapping *Mapping
	// Name names the import for people and in its source. It is the name of the mapping file.
	Name string
	// State is the directory in which the import keeps facts that it has read or published.
	State string
	// Commands is the most commands per second that Redis gets; 0 means no limit.
	Commands float64
	// PageSize is the number of members that one command reads. Default 1000.
	PageSize int
	// Restart forgets everything that earlier runs have read and published.
	Restart bool
	importer.Publishing
}

// Report is what an import did.
type Report struct {
	KeyCounts
	// Found is the number of distinct facts in Redis, New the number of those that no earlier run has found, Published the number that the
	// service has accepted.
	Found, New, Published uint64
	// Clamped is the number of new facts with a time after the start of the run, by at most a day. They got the start as their time.
	Clamped uint64
	// Gone is the number of facts from earlier runs that Redis no longer has. The log keeps them.
	Gone uint64
	// Rejected is the number of elements and keys that could not be imported, Rejects the file that has them, if there are any.
	Rejected uint64
	Rejects  string
	// Reasons say why, each with the first element.
	Reasons importer.Reasons
	// Held is how long commands have waited for the limit, Waited how long calls have waited for projections.
	Held, Waited time.Duration
	// Refused is the number of facts that the service has refused, RefusedFile the file that has them.
	Refused     uint64
	RefusedFile string
	Source      string
	Run         int
	StartedAt   time.Time
	// Position is a position that contains all imported facts.
	Position string
	// Sample has the first events and rejects of a dry run.
	Sample        []*skeinv1.Event
	SampleRejects []string
}

const (
	defaultPageSize = 1000
	// saveEvery is the time between two saves, which bounds the reading to repeat after a crash.
	saveEvery  = 30 * time.Second
	sampleSize = 10
)

// run is one run of an import.
type run struct {
	Options
	from   keyspace
	server string
	// held returns how long commands have waited for the limit; nil means there is no limit.
	held   func() time.Duration
	state  *state
	report Report
	// maxRecords is the most records that are sorted in memory; 0 means the default.
	maxRecords int
}

func (o *Options) complete() error {
	o.SetDefaults()
	if o.PageSize == 0 {
		o.PageSize = defaultPageSize
	}
	if o.PageSize < 1 || o.PageSize > 100_000 {
		return fmt.Errorf("--page must be 1 to 100000, not %d", o.PageSize)
	}
	if o.Commands < 0 {
		return fmt.Errorf("--commands must be at least 0 a second, not %v", o.Commands)
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
			o.Observe(importer.Progress{PhaseProgress: replay.PhaseProgress{Phase: replay.Reading, Unit: "keys"}, Retrying: err})
		}
	}
	return r, func() { _ = s.close() }, nil // nothing was written to Redis
}

// Run reads a Redis and publishes the facts that no earlier run with the same state has published. It may be interrupted at any time; the
// next run continues.
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

// openState loads the state, or begins a new one.
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
	start := importer.StartOf(r.Now())
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
	// The start must be on disk before an event has it as its time, and the source before the log has it: a run after a crash must use
	// the same ones.
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

// begin turns the state into that of a new run. The known facts stay.
func (s *state) begin(r *run, start time.Time) {
	if !start.After(s.StartedAt) {
		start = s.StartedAt.Add(time.Microsecond) // facts without a time must be later than those of the last run
	}
	*s = state{
		Version: s.Version, LogID: s.LogID, Source: s.Source, Known: s.Known, KnownSize: s.KnownSize, Offset: s.Offset,
		Position: s.Position, NextFile: s.NextFile,
		Phase: phaseReading, Run: s.Run + 1, StartedAt: start, Mapping: r.Mapping.digest, Server: r.server,
		Keys: newKeyCounts(r.Mapping),
	}
}

// sourceOf returns the source of an import. Readers of the log ignore offsets of a source that they have seen, so a state that begins
// anew must have a new source.
func sourceOf(name, logID string, now time.Time) string {
	hash := xxh3.HashString(fmt.Sprintf("%s\n%s\n%d", name, logID, now.UnixNano()))
	return importer.SourceOf(name, fmt.Sprintf("%016x", hash))
}

// start returns the start of the run.
func (r *run) start() events.Micros { return events.Micros(r.state.StartedAt.UnixMicro()) }

// read scans Redis, and sorts its facts and rejects into files.
func (r *run) read(ctx context.Context) error {
	id, err := r.from.runID(ctx)
	if err != nil {
		return err
	}
	s := r.state
	switch {
	case s.RunID != "" && s.RunID != id:
		r.Notice("Redis was started again since: all keys are read again")
		s.Cursor, s.Keys = 0, newKeyCounts(r.Mapping)
	case id == "" && s.Cursor != 0:
		r.Notice("the server does not say whether it was started again since (INFO has no run_id): all keys are read again")
		s.Cursor, s.Keys = 0, newKeyCounts(r.Mapping)
	}
	s.RunID = id
	total, err := r.from.size(ctx)
	if err != nil {
		return err
	}
	sorted := &recordfile.Sorter{Dir: r.State, Files: s.Files, Number: s.NextFile, MaxRecords: r.maxRecords}
	var buf []byte
	rd := &reading{
		from: r.from, mapping: r.Mapping, start: r.start(), counts: &s.Keys,
		fact: func(f *fact) error {
			buf = f.append(buf[:0])
			return sorted.Add(buf)
		},
		reject: func(rej *reject) error {
			buf = rej.append(buf[:0])
			return sorted.Add(buf)
		},
	}
	// The records are flushed before the cursor is saved: the state on disk must never have a cursor without all records before it.
	saved := r.Now()
	save := func(cursor uint64) error {
		if err := sorted.Flush(); err != nil {
			return fmt.Errorf("cannot keep what was read (--state places it): %w", err)
		}
		s.Cursor, s.Files, s.NextFile = cursor, sorted.Files, sorted.Number
		saved = r.Now()
		return r.save()
	}
	for cursor := s.Cursor; ; {
		if cursor, err = rd.step(ctx, cursor); err != nil {
			return err
		}
		r.Observe(s.Keys.progress(total))
		if cursor == 0 {
			return save(0)
		}
		if r.Now().Sub(saved) >= saveEvery || sorted.HalfFull() {
			if err := save(cursor); err != nil {
				return err
			}
		}
	}
}

// publish publishes the new facts. After an interruption it continues.
func (r *run) publish(ctx context.Context) error {
	s := r.state
	records, err := r.openNew()
	if err != nil {
		return err
	}
	defer func() { _ = records.from.Close() }() // it was only read
	report, err := importer.RunRecords(ctx, importer.Options{
		Kind: "redis", Path: r.Name, Source: s.Source, State: filepath.Join(r.State, s.publishState()),
		Rejects: filepath.Join(r.State, refusedName), Publishing: r.Publishing,
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

// conclude adds the published facts to the known ones, once all of them are in the log. The state is saved after the new file is
// complete, and only then the old files are removed.
func (r *run) conclude() error {
	s := r.state
	name := fmt.Sprintf("known-%04d", s.Run)
	var paths []string
	for _, file := range []string{s.Known, s.New} {
		if file != "" {
			paths = append(paths, filepath.Join(r.State, file))
		}
	}
	all, err := recordfile.Merge(paths)
	if err != nil {
		return err
	}
	defer func() { _ = all.Close() }() // it was only read
	w, err := recordfile.Create(filepath.Join(r.State, name))
	if err != nil {
		return err
	}
	if err := recordfile.WriteAll(w, all); err != nil {
		return err
	}
	s.Phase, s.Known, s.KnownSize, s.Offset = phaseDone, name, w.Count, s.Offset+s.NewSize
	s.New, s.Files = "", nil
	if err := r.save(); err != nil {
		return err
	}
	return s.sweep(r.State)
}

// heldBack returns how long commands have waited for the limit.
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

// DryRun reads a Redis and reports what a run would do. It publishes nothing, and keeps no state.
func DryRun(ctx context.Context, o Options) (*Report, error) {
	r, end, err := dial(o)
	if err != nil {
		return nil, err
	}
	defer end()
	return r.dryRun(ctx)
}

func (r *run) dryRun(ctx context.Context) (*Report, error) {
	start := importer.StartOf(r.Now())
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
		r.Observe(p.progress(total))
	}
	p.Held = r.heldBack()
	return p, nil
}
