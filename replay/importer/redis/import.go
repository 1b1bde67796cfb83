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
	// Mapping says what the keys of the Redis mean.
	Mapping *Mapping
	// Name is the name of the import for people and in its source: that of the mapping file.
	Name string
	// State is the directory in which the import stores the facts that it has read or published.
	State string
	// Commands limits how many commands per second are sent to the Redis; 0 does not limit.
	Commands float64
	// PageSize is how many members one command reads. Default 1000.
	PageSize int
	// Restart ignores everything that earlier runs have read and published.
	Restart bool
	importer.PublishOptions
}

// Report describes what a run of an import has done.
type Report struct {
	KeyCounts
	// Found is the number of distinct facts in Redis. New is the number of those that no earlier
	// run has published. Published is the number that the service has accepted.
	Found, New, Published uint64
	// Clamped is the number of new facts with a time after the start of the run, by up to a day.
	// They got the start as their time.
	Clamped uint64
	// NoLongerInRedis is the number of facts from earlier runs that Redis no longer has. The log
	// keeps them.
	NoLongerInRedis uint64
	// Rejected is the number of elements and keys that could not be imported. Rejects is the file
	// that contains them, if there are any.
	Rejected uint64
	Rejects  string
	// Reasons counts the rejected elements and keys, and then the refused facts, by reason.
	Reasons importer.ReasonCounts
	// ThrottleTime is how long commands have waited for the limit. Waited is how long calls have
	// waited for projections.
	ThrottleTime, Waited time.Duration
	// Refused is the number of facts that the service has rejected. RefusedFile is the file that
	// contains them.
	Refused     uint64
	RefusedFile string
	Source      string
	Run         int
	StartedAt   time.Time
	// Position is a position of the log that contains all imported facts.
	Position string
	// Sample and SampleRejects are the first events and rejects of a dry run.
	Sample        []*skeinv1.Event
	SampleRejects []string
}

const (
	// defaultPageSize is large enough that round trips take little of the time, and small enough
	// that no command blocks the Redis for long.
	defaultPageSize = 1000
	// saveInterval is how often the state is saved while Redis is read. After a crash, what was
	// read since the last save is read again.
	saveInterval = 30 * time.Second
	// sampleSize is how many events and rejects a dry run shows.
	sampleSize = 10
)

// importRun is one run of an import.
type importRun struct {
	Options
	keyspace   keyspace
	serverName string
	// limitWait returns how long commands have waited for the limit; nil means that there is no
	// limit.
	limitWait func() time.Duration
	state     *state
	report    Report
	// maxRecords is how many records are sorted in memory at a time; 0 means the default.
	maxRecords int
}

// setDefaultsAndCheck sets the defaults, and returns an error for the first invalid option.
func (o *Options) setDefaultsAndCheck() error {
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

// openRedis connects to the Redis of the options. It returns a run, and a function that closes the
// connection.
func openRedis(o Options) (*importRun, func(), error) {
	if err := o.setDefaultsAndCheck(); err != nil {
		return nil, nil, err
	}

	s, err := newServer(&o)
	if err != nil {
		return nil, nil, err
	}
	r := &importRun{Options: o, keyspace: s, serverName: s.name(), limitWait: func() time.Duration { return s.limitWait }}
	if o.Commands > 0 {
		o.Notice(fmt.Sprintf("Redis is asked at most %.6g commands a second (--commands)", o.Commands))
	}
	s.onRetry = func(err error) {
		if err != nil {
			o.Observe(importer.Progress{PhaseProgress: replay.PhaseProgress{Phase: replay.Reading, Unit: "keys"}, Retrying: err})
		}
	}
	return r, func() { _ = s.close() }, nil // nothing was written to Redis
}

// Run reads a Redis and publishes the facts that no earlier run with the same state has published.
// It may be interrupted at any time; the next run continues it.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, end, err := openRedis(o)
	if err != nil {
		return nil, err
	}
	defer end()
	return r.readAndPublish(ctx)
}

// readAndPublish performs the phases of the run that are not done yet.
func (r *importRun) readAndPublish(ctx context.Context) (*Report, error) {
	unlock, err := lockStateDir(r.State)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.openState(); err != nil {
		return nil, err
	}

	if r.state.Phase == phaseReading {
		if err := r.readRedis(ctx); err != nil {
			return r.completeReport(), err
		}
		if err := r.selectNew(); err != nil {
			return r.completeReport(), err
		}
	}
	if err := r.publishNewFacts(ctx); err != nil {
		return r.completeReport(), err
	}
	return r.completeReport(), r.markKnown()
}

// openState loads the state of the earlier runs, or begins a new one, and decides what this run
// does.
func (r *importRun) openState() error {
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
	formatStart := func(s *state) string { return s.StartedAt.Format(time.DateTime) }
	switch {
	case old == nil:
		old = &state{Version: stateVersion, LogID: r.LogID, Source: sourceOf(r.Name, r.LogID, r.Now())}
		old.beginRun(r, start)
	case old.Phase == phaseDone:
		r.Notice(fmt.Sprintf("run %d: %d facts were published before; what Redis has beside them is published now",
			old.Run+1, old.KnownSize))
		old.beginRun(r, start)
	case old.Phase == phasePublishing:
		r.Notice(fmt.Sprintf("going on with publishing what the run that began %s has found", formatStart(old)))
		if old.Mapping != r.Mapping.digest {
			r.Notice("the mapping changed since: run the import again to read by it")
		}
	case old.Mapping != r.Mapping.digest || old.Server != r.serverName:
		r.Notice("the mapping or the Redis changed while it was read: it is read anew")
		old.Run--
		old.beginRun(r, start)
	default:
		r.Notice(fmt.Sprintf("going on after %d keys with the run that began %s", old.Keys.Scanned, formatStart(old)))
	}
	r.state = old
	// The start must be on disk before an event has it as its time, and the source before the log
	// has it: the next run after a crash must use the same ones.
	if err := r.save(); err != nil {
		return err
	}
	return r.state.removeUnnamedFiles(r.State)
}

// save writes the state.
func (r *importRun) save() error {
	if err := r.state.save(r.State); err != nil {
		return fmt.Errorf("cannot keep the state of the import (--state places it): %w", err)
	}
	return nil
}

// beginRun turns the state into the state of a new run. It keeps the known facts.
func (s *state) beginRun(r *importRun, start time.Time) {
	if !start.After(s.StartedAt) {
		// Facts without a time must be later than those of the last run.
		start = s.StartedAt.Add(time.Microsecond)
	}
	*s = state{
		// These stay the same.
		Version:   s.Version,
		LogID:     s.LogID,
		Source:    s.Source,
		Known:     s.Known,
		KnownSize: s.KnownSize,
		Offset:    s.Offset,
		Position:  s.Position,
		NextFile:  s.NextFile,

		Phase:     phaseReading,
		Run:       s.Run + 1,
		StartedAt: start,
		Mapping:   r.Mapping.digest,
		Server:    r.serverName,
		Keys:      newKeyCounts(r.Mapping),
	}
}

// sourceOf returns the source of an import whose state begins now. It is different each time:
// readers of the log ignore offsets of a source that they have seen before, and a new state begins
// with offset 1.
func sourceOf(name, logID string, now time.Time) string {
	hash := xxh3.HashString(fmt.Sprintf("%s\n%s\n%d", name, logID, now.UnixNano()))
	return importer.SourceOf(name, fmt.Sprintf("%016x", hash))
}

// start returns the start of the run.
func (r *importRun) start() events.Micros { return events.Micros(r.state.StartedAt.UnixMicro()) }

// readRedis scans Redis, and sorts its facts and rejects into files.
func (r *importRun) readRedis(ctx context.Context) error {
	id, err := r.keyspace.runID(ctx)
	if err != nil {
		return err
	}

	// A cursor is valid only until the server is restarted. The records that were read before stay:
	// the sort removes those that are read twice.
	s := r.state
	switch {
	case s.RunID != "" && s.RunID != id:
		r.Notice("Redis was started again since: all keys are read again")
		s.Cursor = 0
		s.Keys = newKeyCounts(r.Mapping)
	case id == "" && s.Cursor != 0:
		r.Notice("the server does not say whether it was started again since (INFO has no run_id): all keys are read again")
		s.Cursor = 0
		s.Keys = newKeyCounts(r.Mapping)
	}
	s.RunID = id

	total, err := r.keyspace.size(ctx)
	if err != nil {
		return err
	}

	sorted := &recordfile.Sorter{Dir: r.State, Files: s.Files, Number: s.NextFile, MaxRecords: r.maxRecords}
	var buf []byte
	rd := &keyReader{
		keyspace: r.keyspace,
		mapping:  r.Mapping,
		start:    r.start(),
		counts:   &s.Keys,
		fact: func(f *fact) error {
			buf = f.appendTo(buf[:0])
			return sorted.Add(buf)
		},
		reject: func(rej *reject) error {
			buf = rej.appendTo(buf[:0])
			return sorted.Add(buf)
		},
	}

	// The records are flushed before the cursor is saved: the state on disk must never have a
	// cursor without all the records from before it.
	lastSave := r.Now()
	save := func(cursor uint64) error {
		if err := sorted.Flush(); err != nil {
			return fmt.Errorf("cannot keep what was read (--state places it): %w", err)
		}
		s.Cursor = cursor
		s.Files = sorted.Files
		s.NextFile = sorted.Number
		lastSave = r.Now()
		return r.save()
	}

	cursor := s.Cursor
	for {
		cursor, err = rd.readStep(ctx, cursor)
		if err != nil {
			return err
		}
		r.Observe(s.Keys.progress(total))
		if cursor == 0 {
			return save(0)
		}
		// Save as well when the memory is half full, because a save writes a sorted file anyway.
		// Then the sorter hardly ever has to write one by itself, between two saves.
		if r.Now().Sub(lastSave) >= saveInterval || sorted.IsHalfFull() {
			if err := save(cursor); err != nil {
				return err
			}
		}
	}
}

// publishNewFacts publishes the new facts. If the run was interrupted while it published, it
// continues.
func (r *importRun) publishNewFacts(ctx context.Context) error {
	s := r.state
	records, err := r.openNewFacts()
	if err != nil {
		return err
	}
	defer func() { _ = records.from.Close() }() // it was only read

	options := importer.Options{
		Kind:           "redis",
		Path:           r.Name,
		Source:         s.Source,
		State:          filepath.Join(r.State, s.publishStateName()),
		Rejects:        filepath.Join(r.State, refusedName),
		PublishOptions: r.PublishOptions,
	}
	origin := importer.Origin{Digest: s.Digest, Shape: s.New, StartedAt: s.StartedAt}
	report, err := importer.RunRecords(ctx, options, origin, func(string, time.Time) (importer.Records, error) {
		return records, nil
	})
	if report != nil {
		r.report.Published = report.Events
		r.report.Refused = report.Rejected
		r.report.Clamped = report.Clamped
		r.report.RefusedFile = report.Rejects
		r.report.Waited = report.Waited
		for _, count := range report.Reasons {
			count.Reason = "refused by the service: " + count.Reason
			count.FirstRecord = 0 // the number of a fact means nothing to the user
			r.report.Reasons = append(r.report.Reasons, count)
		}
		if report.Position != "" {
			s.Position = report.Position
		}
	}
	return err
}

// markKnown adds the published facts to the known ones, when all of them are in the log. The state
// is saved when the new file is complete, and only then are the old files removed.
func (r *importRun) markKnown() error {
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

	s.Phase = phaseDone
	s.Known = name
	s.KnownSize = w.Count
	s.Offset += s.NewSize
	s.New = ""
	s.Files = nil
	if err := r.save(); err != nil {
		return err
	}
	return s.removeUnnamedFiles(r.State)
}

// waitedForLimit returns how long commands have waited for the limit.
func (r *importRun) waitedForLimit() time.Duration {
	if r.limitWait == nil {
		return 0
	}
	return r.limitWait()
}

// completeReport fills in what the report takes from the state.
func (r *importRun) completeReport() *Report {
	p := &r.report
	s := r.state
	p.KeyCounts = s.Keys
	p.Found = s.Found
	p.New = s.NewSize
	p.NoLongerInRedis = s.NotFound
	p.Rejected = s.Rejected
	p.Source = s.Source
	p.Run = s.Run
	p.StartedAt = s.StartedAt
	p.Position = s.Position
	if p.Rejected > 0 {
		p.Rejects = filepath.Join(r.State, rejectsName)
	}
	p.Reasons = append(slices.Clone(s.Reasons), p.Reasons...)
	p.ThrottleTime = r.waitedForLimit()
	return p
}

// DryRun reads a Redis and reports what a run would do. It publishes nothing and stores no state.
func DryRun(ctx context.Context, o Options) (*Report, error) {
	r, end, err := openRedis(o)
	if err != nil {
		return nil, err
	}
	defer end()
	return r.dryRun(ctx)
}

func (r *importRun) dryRun(ctx context.Context) (*Report, error) {
	start := importer.StartOf(r.Now())
	p := &r.report
	p.KeyCounts = newKeyCounts(r.Mapping)
	p.StartedAt = start
	total, err := r.keyspace.size(ctx)
	if err != nil {
		return p, err
	}

	rd := &keyReader{
		keyspace: r.keyspace,
		mapping:  r.Mapping,
		start:    events.Micros(start.UnixMicro()),
		counts:   &p.KeyCounts,
		fact: func(f *fact) error {
			p.Found++
			if len(p.Sample) < sampleSize {
				p.Sample = append(p.Sample, f.event("dry-run", p.Found, events.Micros(start.UnixMicro())))
			}
			return nil
		},
		reject: func(rej *reject) error {
			p.Rejected++
			rej.countIn(&p.Reasons)
			if len(p.SampleRejects) < sampleSize {
				p.SampleRejects = append(p.SampleRejects, rej.String())
			}
			return nil
		},
	}

	err = rd.readAll(ctx, func() { r.Observe(p.progress(total)) })
	if err != nil {
		return p, err
	}
	p.ThrottleTime = r.waitedForLimit()
	return p, nil
}
