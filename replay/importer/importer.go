package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/zeebo/xxh3"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/replay"
)

// Options say which file is imported, and how.
type Options struct {
	Kind Kind
	Path string
	// Name is the name of the file for people and for the source of the import; empty means that of Path.
	Name   string
	Format Format
	// MaxRejects is the number of records that may be rejected. If more are, nothing is published.
	MaxRejects MaxRejects
	// First takes only the first record of each follower and user (or board), owner and pin, or user and item in the file.
	First bool
	// Source names the import in the log; empty means a name made of the file's name, content and columns.
	Source string
	// State and Rejects are the paths of the state file and of the file of rejects; empty means beside the imported file.
	State, Rejects string
	// Restart forgets the state of an earlier import.
	Restart bool
	// DryRun reads the whole file, but publishes and writes nothing.
	DryRun bool
	Publishing

	// sourceOfContent is set when Source is made of the content of the file.
	sourceOfContent bool
}

// Progress is the progress of an import.
type Progress struct {
	// PhaseProgress has the phase. A file is checked, then published, in bytes. A Redis is read in keys, then facts are published.
	replay.PhaseProgress
	// Elements is the number of elements that were read in the keys of a Redis.
	Elements uint64
	// Record is the number of the last record that was acknowledged.
	Record uint64
	Totals
	// Retrying is the error of the last attempt while a call is retried; otherwise nil.
	Retrying error
	// Slowed is the lag of the projection for which the import waits, or has waited last; zero means that projections keep up.
	Slowed Lag
}

// Report is the result of an import.
type Report struct {
	// Records is the number of records that were read, Record the number of the last one that is done.
	Records, Record uint64
	Totals
	// Reasons say why records were rejected.
	Reasons Reasons
	// Sent is the number of events that this run has published.
	Sent uint64
	// OwnSource reports that no other records can have the source: it is made of them, or a state file says that they had it before. Then
	// ignored events are in the log.
	OwnSource bool
	// Waited is how long calls have waited for projections.
	Waited time.Duration
	// Source, StartedAt and Shape are the same in all runs of the import: its source, its recorded start, and how records are read.
	Source    string
	StartedAt time.Time
	Shape     string
	// Position is a position that contains all imported events.
	Position string
	// Rejects is the file of rejects; empty means there are none.
	Rejects string
	// Unpublished reports whether nothing was published: in a dry run, or because too many records were rejected. Events are then those that
	// would have been.
	Unpublished bool
	// Sample has the first events and rejects of a dry run.
	Sample        []*skeinv1.Event
	SampleRejects []Reject
}

// DefaultPatience is how long a call is retried while the service does not answer.
const DefaultPatience = 5 * time.Minute

// Times and sizes of the work.
const (
	// saveEvery is the time between two saves of the state. It bounds the events that are sent again after a crash.
	saveEvery = time.Second
	// callEvents and callBytes bound a call. 1000 of the largest events stay below the 768 KiB of a call, except pins: with all
	// their fields they have some 1120 bytes.
	callEvents = events.MaxEnvelopeEvents
	callBytes  = events.MaxEnvelopeBytes - 1<<10
	// perEvent is the most bytes that the encoding of a call adds to an event: a tag and a length.
	perEvent = 1 + 2
	// callRecords bounds a call whose records are all rejected or skipped.
	callRecords = 100_000
	sampleSize  = 10
	openCalls   = 2
	// defaultCallTimeout is long: if the log does not answer, the service returns an error much sooner.
	defaultCallTimeout = 30 * time.Second
)

// call is one call of Publish, with the records that it completes.
type call struct {
	events []*skeinv1.Event
	// size is an upper bound of the size of the events in the encoding of a call, in bytes.
	size int
	// records has the record of each event, in the form of a reject, for the case that the service refuses the event.
	records []Reject
	// rejects are the rejected records up to lastRecord, with what all records up to it add to the totals.
	rejects    []Reject
	gained     Totals
	lastRecord uint64
	// at is the progress when these records were read.
	at replay.PhaseProgress
}

// run is one import under way.
type run struct {
	Options
	state   *state
	rejects *rejects
	records Records
	report  Report
	saved   time.Time
	pacing  pacing
	// continues reports that this run continues an interrupted one, which may have sent the next records before.
	continues bool
	// acknowledged reports that the log has acknowledged a call of this run.
	acknowledged bool
}

// ErrSourceUsed is returned when the log has later events of the source of an import that begins, so that it would ignore records.
var ErrSourceUsed = errors.New("another import has used the source")

// Run imports a file. Nothing is published before the whole file was read, and nothing if it can be read in two ways or has too many bad
// records: then Run returns [ErrRejected] with a report. An import may be interrupted at any time; the next run continues.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.SetDefaults()
	shownPath := cmp.Or(o.Name, o.Path)
	def(&o.Name, filepath.Base(o.Path))
	def(&o.State, o.Path+".skein-import.json")
	def(&o.Rejects, o.Path+".rejects.tsv")
	before, err := os.Stat(o.Path)
	if err != nil {
		return nil, err
	}
	digest, err := digestFile(o.Path)
	if err != nil {
		return nil, err
	}

	// An import that continues decides by its first start, or it would be another import.
	start := StartOf(o.Now())
	var old *state
	if !o.Restart && !o.DryRun {
		if old, err = loadState(o.State); err != nil {
			return nil, err
		}
		if old != nil && old.Digest == digest {
			start = old.StartedAt
		}
	}
	in, err := newInspection(o, microsOf(start))
	if err != nil {
		return nil, err
	}
	s, err := in.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shownPath, err)
	}
	if o.Source == "" {
		// The columns are part of the source. With other columns and the same source, all records would be ignored as repeats.
		names := xxh3.HashString(fmt.Sprintf("%s\n%s\n%s\n%t", digest, o.Kind, s, o.First))
		o.Source = SourceOf(o.Name, fmt.Sprintf("%016x", names))
		o.sourceOfContent = true
	}

	report, err := check(ctx, o, s, start)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shownPath, err)
	}
	if err := o.MaxRejects.Check(report.Rejected, report.Events, report.Records); err != nil {
		// An import that continues has its file of rejects, with those of the service.
		if !o.DryRun && old == nil && report.Rejected > 0 {
			report.Rejects = o.Rejects
			err = errors.Join(err, writeRejects(ctx, o, s, start))
		}
		return report, fmt.Errorf("%w: %w", err, ErrRejected)
	}
	if o.DryRun {
		return report, nil
	}
	if err := unchanged(o.Path, before); err != nil {
		return nil, err
	}

	of := Origin{Digest: digest, Shape: s.String(), StartedAt: start}
	var records *fileRecords
	report, err = RunRecords(ctx, o, of, func(source string, start time.Time) (Records, error) {
		records, err = newFileRecords(o, s, source, start)
		return records, err
	})
	if records != nil {
		err = errors.Join(err, records.Close(), unchanged(o.Path, before))
	}
	return report, err
}

// StartOf returns the start of an import that begins now. It is rounded down to a second, because a service whose clock is slightly behind
// would clamp the present time to its own.
func StartOf(now time.Time) time.Time { return now.UTC().Truncate(time.Second) }

// unchanged returns an error if a file is not as it was before.
func unchanged(path string, before os.FileInfo) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%s was changed while it was imported: what was published may be neither the old content nor the new", path)
	}
	return nil
}

// openState loads the state of an interrupted import, or begins a new one.
func (r *run) openState() error {
	if !r.Restart {
		old, err := loadState(r.State)
		if err != nil {
			return err
		}
		if old != nil {
			interrupted := old.LogID == r.state.LogID && !old.Complete
			r.continues = interrupted && !old.Repeated
			notice, err := old.resume(r.state, r.State)
			if err != nil {
				return err
			}
			r.Notice(notice)
			r.state = old
		}
	}
	// The start must be on disk before an event has it as its time. Otherwise a run after a crash would send the same records with
	// another time.
	if err := r.state.save(r.State); err != nil {
		return fmt.Errorf("cannot keep the state of the import (--state places it): %w", err)
	}
	r.saved = time.Now()
	var err error
	if r.rejects, err = openRejects(r.Rejects, r.state.RecordsDone); err != nil {
		return fmt.Errorf("cannot keep rejects (--rejects places them): %w", err)
	}
	return nil
}

// read turns records into calls, and skips the records that an earlier run has done.
func (r *run) read(ctx context.Context, done uint64, calls chan<- *call) error {
	next := &call{}
	send := func() error {
		next.at = r.records.Progress()
		select {
		case calls <- next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next = &call{}
		return nil
	}
	// A source that another import has used is noticed with the first record. The first call has no other, so that nothing is imported then.
	probing := !r.DryRun && !r.continues && !r.hasOwnSource()

	last := uint64(0)
	for records := 0; ; records++ {
		record, err := r.records.Next()
		if errors.Is(err, io.EOF) {
			r.report.Records = last
			return send()
		}
		if err != nil {
			return fmt.Errorf("%s: after row %d: %w", r.Path, last, err)
		}
		if last = record.Number; last <= done {
			continue
		}
		size := sizeOf(record.Events)
		full := len(next.events)+len(record.Events) > callEvents || next.size+size > callBytes || records >= callRecords
		if full || probing && len(next.events) > 0 {
			if err := send(); err != nil {
				return err
			}
			records, probing = 0, false
		}
		next.add(&record, size)
	}
}

func sizeOf(evs []*skeinv1.Event) int {
	size := 0
	for _, ev := range evs {
		size += perEvent + proto.Size(ev)
	}
	return size
}

func (c *call) add(r *Record, size int) {
	c.lastRecord = r.Number
	if r.Clamped {
		c.gained.Clamped++
	}
	switch {
	case r.Bad != nil:
		c.rejects = append(c.rejects, Reject{r.Number, r.Bad.Error(), r.Line})
		c.gained.Rejected++
	case r.Repeat:
		c.gained.Skipped++
	default:
		c.size += size
		for _, ev := range r.Events {
			c.events = append(c.events, ev)
			c.records = append(c.records, Reject{Record: r.Number, Line: r.Line})
		}
	}
}

// publish makes the calls, one after the other: readers of the log would ignore a call that another one has overtaken.
func (r *run) publish(ctx context.Context, calls <-chan *call) error {
	for c := range calls {
		if len(c.events) > 0 {
			if err := r.pace(ctx, c.at); err != nil {
				return err
			}
			if err := r.send(ctx, c); err != nil {
				return err
			}
		}
		if err := r.rejects.write(c.rejects); err != nil {
			return fmt.Errorf("cannot keep rejects: %w", err)
		}
		r.done(c)
		if time.Since(r.saved) >= saveEvery {
			if err := r.save(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// send makes one call. Records of events that the service refuses become rejects.
func (r *run) send(ctx context.Context, c *call) error {
	req := &skeinv1.PublishRequest{Events: c.events, AllowPartial: true}
	retried := false
	res, err := r.retrying(ctx, req, func(err error) {
		retried = true
		p := r.progress(c.at)
		p.Retrying = err
		r.Observe(p)
	})
	if err != nil {
		return fmt.Errorf("after row %d: %w", r.state.RecordsDone, err)
	}
	for _, refused := range res.GetRejections() {
		i := int(refused.GetIndex())
		if i < 0 || i >= len(c.records) {
			return fmt.Errorf("the service refused event %d of %d", i, len(c.records))
		}
		c.records[i].Reason = refused.GetMessage()
		c.rejects = append(c.rejects, c.records[i])
		c.gained.Rejected++
	}
	repeats := uint64(len(res.GetRepeatedIndexes()))
	switch {
	case retried || r.continues:
		repeats = 0 // this import has sent them before
	case repeats > 0 && !r.acknowledged && !r.hasOwnSource():
		return fmt.Errorf("%w %q: the log has its rows up to %d or later, so it ignores those of this file; nothing was imported; "+
			"import with another --source", ErrSourceUsed, r.state.Source, c.lastRecord)
	}
	r.acknowledged = true
	c.gained.Events, c.gained.Ignored = uint64(res.GetAcceptedCount())-repeats, repeats
	if res.GetPosition() != "" {
		r.state.Position = res.GetPosition()
	}
	return nil
}

// hasOwnSource reports that no other records can have the source, so that ignored events are known to be in the log.
func (r *run) hasOwnSource() bool { return r.sourceOfContent || r.state.Repeated }

// done counts the records of a call, which are in the log or in the file of rejects.
func (r *run) done(c *call) {
	s := r.state
	s.RecordsDone = max(s.RecordsDone, c.lastRecord)
	s.Events += c.gained.Events
	s.Ignored += c.gained.Ignored
	s.Rejected += c.gained.Rejected
	s.Skipped += c.gained.Skipped
	s.Clamped += c.gained.Clamped
	for i := range c.rejects {
		s.Reasons.Add(c.rejects[i].Reason, c.rejects[i].Record, c.rejects[i].Line)
	}
	r.report.Sent += c.gained.Events + c.gained.Ignored
	r.Observe(r.progress(c.at))
}

func (r *run) progress(at replay.PhaseProgress) Progress {
	return Progress{PhaseProgress: at, Record: r.state.RecordsDone, Totals: r.state.Totals, Slowed: r.pacing.slowed}
}

// save writes the state. The rejects are synced first: the state says that their records are done.
func (r *run) save(complete bool) error {
	r.state.Complete = complete
	if err := r.rejects.sync(); err != nil {
		return fmt.Errorf("cannot keep rejects: %w", err)
	}
	if err := r.state.save(r.State); err != nil {
		return fmt.Errorf("cannot keep the state of the import: %w", err)
	}
	r.saved = time.Now()
	return nil
}

func (r *run) finish() *Report {
	p := &r.report
	p.Record = r.state.RecordsDone
	p.Totals, p.Reasons, p.Source, p.StartedAt = r.state.Totals, r.state.Reasons, r.state.Source, r.state.StartedAt
	p.Waited, p.OwnSource = r.pacing.waited, r.hasOwnSource()
	p.Shape, p.Position = r.state.Shape, r.state.Position
	if p.Rejected > 0 {
		p.Rejects = r.Rejects
	}
	return p
}
