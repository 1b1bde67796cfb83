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
	// Name is the name of the file for people and for the source of the import; empty means the
	// base name of Path.
	Name   string
	Format Format
	// MaxRejects limits how many records may be rejected. If there are more, nothing is published.
	MaxRejects MaxRejects
	// First imports only the first record of each follower and user (or board), owner and pin, or
	// user and item in the file.
	First bool
	// Source is the name of the import in the log; empty means a name made of the file's name,
	// content and columns.
	Source string
	// State and Rejects are the paths of the state file and of the file of rejects; empty means
	// next to the imported file.
	State, Rejects string
	// Restart ignores the state of an earlier import and begins a new one.
	Restart bool
	// DryRun reads the whole file, but publishes and writes nothing.
	DryRun bool
	PublishOptions

	// sourceOfContent is set if Source is made of the content of the file.
	sourceOfContent bool
}

// Progress is how far an import is.
type Progress struct {
	// PhaseProgress is the phase and how much of it is done. A file is checked and then published,
	// in bytes. A Redis is read in keys, and then its facts are published.
	replay.PhaseProgress
	// Elements is the number of elements that were read in the keys of a Redis.
	Elements uint64
	// Record is the number of the last record that was acknowledged.
	Record uint64
	Totals
	// Retrying is the error of the last attempt while a call is retried; nil otherwise.
	Retrying error
	// Slowed is the lag of the projection for which the import waits, or has last waited; zero
	// means that the projections keep up.
	Slowed Lag
}

// Report is the result of an import.
type Report struct {
	// Records is the number of records that were read. Record is the number of the last record that
	// is done.
	Records, Record uint64
	Totals
	// Reasons counts the rejected records by reason.
	Reasons ReasonCounts
	// Sent is the number of events that this run has published.
	Sent uint64
	// OwnSource reports whether no other records can have the same source, because it is made of
	// them, or because the state file says that they had it before. Then events that the log has
	// ignored are known to be in it.
	OwnSource bool
	// Waited is how long calls have waited for projections.
	Waited time.Duration
	// Source, StartedAt and Shape are the same in all runs of the import: its source, its recorded
	// start, and how records are read.
	Source    string
	StartedAt time.Time
	Shape     string
	// Position is a position of the log that contains all imported events.
	Position string
	// Rejects is the path of the file of rejects; empty means that there are none.
	Rejects string
	// Unpublished reports whether nothing was published, because it was a dry run or because too
	// many records were rejected. Events then counts those that would have been published.
	Unpublished bool
	// Sample and SampleRejects are the first events and rejects of a dry run.
	Sample        []*skeinv1.Event
	SampleRejects []Reject
}

// DefaultPatience is for how long a call is retried if the service does not answer.
const DefaultPatience = 5 * time.Minute

// Times and sizes.
const (
	// saveInterval is how often the state is saved. After a crash, the events since the last save
	// are sent again.
	saveInterval = time.Second
	// maxCallEvents and maxCallBytes limit a call. 1000 events of the largest kind stay below the
	// 768 KiB that a call may have, except pins: with all their fields they have about 1120 bytes.
	maxCallEvents = events.MaxEnvelopeEvents
	maxCallBytes  = events.MaxEnvelopeBytes - 1<<10
	// eventOverhead is how many bytes the encoding of a call adds to an event at most: a tag and a
	// length.
	eventOverhead = 1 + 2
	// maxCallRecords limits the records of a call, which may all be rejected or skipped.
	maxCallRecords = 100_000
	// sampleSize is how many events and rejects a dry run shows.
	sampleSize = 10
	// queuedCalls is how many calls are prepared while another one is made. The next call is then
	// ready when the service has answered.
	queuedCalls = 2
	// defaultCallTimeout is long because the service itself answers with an error much sooner if
	// the log does not answer.
	defaultCallTimeout = 30 * time.Second
)

// call is one call of Publish, and the records that are done when it is.
type call struct {
	events []*skeinv1.Event
	// size is an upper limit of the size of the events in the encoding of a call, in bytes.
	size int
	// records has the record of each event, in the form of a reject, in case the service rejects
	// the event.
	records []Reject
	// rejects are the rejected records up to lastRecord. totals counts all records of the call.
	rejects    []Reject
	totals     Totals
	lastRecord uint64
	// progress is how much of the input had been read when the call was complete.
	progress replay.PhaseProgress
}

// importRun is one run of an import, which may continue an interrupted one.
type importRun struct {
	Options
	state    *state
	rejects  *rejectsFile
	records  Records
	report   Report
	lastSave time.Time
	lagState lagState
	// isContinued is set if this run continues an interrupted one, which may have sent the next
	// records already.
	isContinued bool
	// acknowledged is set once the log has acknowledged a call of this run.
	acknowledged bool
}

// ErrSourceUsed means that an import that begins has a source of which the log has later events, so
// that the log would ignore records.
var ErrSourceUsed = errors.New("another import has used the source")

// Run imports a file. It reads the whole file before it publishes anything. If the file can be read
// in two ways, Run fails; if it has too many bad records, Run returns [ErrRejected] and a report.
// Nothing is published in these cases. An import may be interrupted at any time; the next run
// continues it.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.SetDefaults()
	shownPath := cmp.Or(o.Name, o.Path)
	setDefault(&o.Name, filepath.Base(o.Path))
	setDefault(&o.State, o.Path+".skein-import.json")
	setDefault(&o.Rejects, o.Path+".rejects.tsv")

	before, err := os.Stat(o.Path)
	if err != nil {
		return nil, err
	}
	digest, err := hashFile(o.Path)
	if err != nil {
		return nil, err
	}

	// An import that continues must decide with the start of its first run. With another one, it
	// would be another import.
	start := StartOf(o.Now())
	var old *state
	if !o.Restart && !o.DryRun {
		old, err = loadState(o.State)
		if err != nil {
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
	s, err := in.findShape(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shownPath, err)
	}
	if o.Source == "" {
		// The columns are part of the source. With other columns and the same source, all records
		// would be ignored as repeats.
		names := xxh3.HashString(fmt.Sprintf("%s\n%s\n%s\n%t", digest, o.Kind, s, o.First))
		o.Source = SourceOf(o.Name, fmt.Sprintf("%016x", names))
		o.sourceOfContent = true
	}

	// Check all records, and stop if too many are bad.
	report, err := checkFile(ctx, o, s, start)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shownPath, err)
	}
	if err := o.MaxRejects.Check(report.Rejected, report.Records, report.Events > 0); err != nil {
		// An import that continues has its file of rejects already. It also contains the records
		// that the service has rejected.
		if !o.DryRun && old == nil && report.Rejected > 0 {
			report.Rejects = o.Rejects
			err = errors.Join(err, writeRejects(ctx, o, s, start))
		}
		return report, fmt.Errorf("%w: %w", err, ErrRejected)
	}
	if o.DryRun {
		return report, nil
	}

	// The file is read once more to publish it. If it has changed since the first reading, the
	// checks say nothing about it.
	if err := checkUnchanged(o.Path, before); err != nil {
		return nil, err
	}

	origin := Origin{Digest: digest, Shape: s.String(), StartedAt: start}
	var records *fileRecords
	report, err = RunRecords(ctx, o, origin, func(source string, start time.Time) (Records, error) {
		records, err = newFileRecords(o, s, source, start)
		return records, err
	})
	if records != nil {
		err = errors.Join(err, records.Close(), checkUnchanged(o.Path, before))
	}
	return report, err
}

// StartOf returns the start of an import that begins at the time now. It is rounded down to a
// second. Otherwise, a service whose clock is slightly behind would replace the start by its own
// time.
func StartOf(now time.Time) time.Time {
	return now.UTC().Truncate(time.Second)
}

// checkUnchanged returns an error if a file is not as it was before.
func checkUnchanged(path string, before os.FileInfo) error {
	now, err := os.Stat(path)
	if err != nil {
		return err
	}
	if now.Size() != before.Size() || !now.ModTime().Equal(before.ModTime()) {
		return fmt.Errorf("%s was changed while it was imported: what was published may be neither the old content nor the new", path)
	}
	return nil
}

// openState loads the state of an interrupted import or begins a new one, and opens the file of
// rejects.
func (r *importRun) openState() error {
	if !r.Restart {
		old, err := loadState(r.State)
		if err != nil {
			return err
		}
		if old != nil {
			interrupted := old.LogID == r.state.LogID && !old.Complete
			r.isContinued = interrupted && !old.Repeated
			notice, err := old.prepareResume(r.state, r.State)
			if err != nil {
				return err
			}
			r.Notice(notice)
			r.state = old
		}
	}

	// The start must be on disk before an event has it as its time. Otherwise, the next run after a
	// crash would send the same records with another time.
	if err := r.state.save(r.State); err != nil {
		return fmt.Errorf("cannot keep the state of the import (--state places it): %w", err)
	}
	r.lastSave = time.Now()

	var err error
	r.rejects, err = openRejects(r.Rejects, r.state.RecordsDone)
	if err != nil {
		return fmt.Errorf("cannot keep rejects (--rejects places them): %w", err)
	}
	return nil
}

// readRecords combines records into calls. It skips the records up to done, which an earlier run
// has completed.
func (r *importRun) readRecords(ctx context.Context, done uint64, calls chan<- *call) error {
	next := &call{}
	send := func() error {
		next.progress = r.records.Progress()
		select {
		case calls <- next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next = &call{}
		return nil
	}
	// If another import has used the source, the first record shows it. So the first call contains
	// only that record, and nothing is imported in that case.
	isFirstCall := !r.DryRun && !r.isContinued && !r.hasOwnSource()

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
		last = record.Number
		if last <= done {
			continue
		}

		size := encodedSize(record.Events)
		isFull := len(next.events)+len(record.Events) > maxCallEvents ||
			next.size+size > maxCallBytes || records >= maxCallRecords
		isFirstCallComplete := isFirstCall && len(next.events) > 0
		if isFull || isFirstCallComplete {
			if err := send(); err != nil {
				return err
			}
			records = 0
			isFirstCall = false
		}
		next.addRecord(&record, size)
	}
}

// encodedSize returns an upper limit of the size of events in the encoding of a call.
func encodedSize(evs []*skeinv1.Event) int {
	size := 0
	for _, ev := range evs {
		size += eventOverhead + proto.Size(ev)
	}
	return size
}

// addRecord adds a record to the call. size is the encoded size of its events.
func (c *call) addRecord(r *Record, size int) {
	c.lastRecord = r.Number
	if r.Clamped {
		c.totals.Clamped++
	}
	switch {
	case r.RejectedBy != nil:
		c.rejects = append(c.rejects, Reject{r.Number, r.RejectedBy.Error(), r.Line})
		c.totals.Rejected++
	case r.Repeat:
		c.totals.Skipped++
	default:
		c.size += size
		for _, ev := range r.Events {
			c.events = append(c.events, ev)
			c.records = append(c.records, Reject{Record: r.Number, Line: r.Line})
		}
	}
}

// publishCalls makes the calls, one after the other: readers of the log would ignore a call that
// another one has overtaken.
func (r *importRun) publishCalls(ctx context.Context, calls <-chan *call) error {
	for c := range calls {
		if len(c.events) > 0 {
			if err := r.waitForProjections(ctx, c.progress); err != nil {
				return err
			}
			if err := r.sendCall(ctx, c); err != nil {
				return err
			}
		}

		// The rejects come before the state, which says that their records are done.
		if err := r.rejects.write(c.rejects); err != nil {
			return fmt.Errorf("cannot keep rejects: %w", err)
		}

		r.countCall(c)
		if time.Since(r.lastSave) >= saveInterval {
			if err := r.saveState(false); err != nil {
				return err
			}
		}
	}
	return nil
}

// sendCall makes one call. Records whose events the service rejects become rejects.
func (r *importRun) sendCall(ctx context.Context, c *call) error {
	req := &skeinv1.PublishRequest{Events: c.events, AllowPartial: true}
	retried := false
	res, err := r.publishRetrying(ctx, req, func(err error) {
		retried = true
		p := r.progress(c.progress)
		p.Retrying = err
		r.Observe(p)
	})
	if err != nil {
		return fmt.Errorf("after row %d: %w", r.state.RecordsDone, err)
	}

	for _, rejection := range res.GetRejections() {
		i := int(rejection.GetIndex())
		if i < 0 || i >= len(c.records) {
			return fmt.Errorf("the service refused event %d of %d", i, len(c.records))
		}
		c.records[i].Reason = rejection.GetMessage()
		c.rejects = append(c.rejects, c.records[i])
		c.totals.Rejected++
	}

	repeats := uint64(len(res.GetRepeatedIndexes()))
	switch {
	case retried || r.isContinued:
		// This import may have sent the events before, so the log is right to know them.
		repeats = 0
	case repeats > 0 && !r.acknowledged && !r.hasOwnSource():
		return fmt.Errorf("%w %q: the log has its rows up to %d or later, so it ignores those of this file; nothing was imported; "+
			"import with another --source", ErrSourceUsed, r.state.Source, c.lastRecord)
	}
	r.acknowledged = true
	c.totals.Events = uint64(res.GetAcceptedCount()) - repeats
	c.totals.Ignored = repeats
	if res.GetPosition() != "" {
		r.state.Position = res.GetPosition()
	}
	return nil
}

// hasOwnSource reports whether no other records can have the same source, so that events that the
// log ignores are known to be in it.
func (r *importRun) hasOwnSource() bool {
	return r.sourceOfContent || r.state.Repeated
}

// countCall adds a call to the state. Its records are in the log or in the file of rejects now.
func (r *importRun) countCall(c *call) {
	s := r.state
	s.RecordsDone = max(s.RecordsDone, c.lastRecord)
	s.Events += c.totals.Events
	s.Ignored += c.totals.Ignored
	s.Rejected += c.totals.Rejected
	s.Skipped += c.totals.Skipped
	s.Clamped += c.totals.Clamped
	for i := range c.rejects {
		s.Reasons.Add(c.rejects[i].Reason, c.rejects[i].Record, c.rejects[i].Line)
	}
	r.report.Sent += c.totals.Events + c.totals.Ignored
	r.Observe(r.progress(c.progress))
}

// progress returns the progress of the import. at says how much of the input was read.
func (r *importRun) progress(at replay.PhaseProgress) Progress {
	return Progress{
		PhaseProgress: at,
		Record:        r.state.RecordsDone,
		Totals:        r.state.Totals,
		Slowed:        r.lagState.waitedFor,
	}
}

// saveState writes the state file. The rejects are synced first, because the state says that their
// records are done.
func (r *importRun) saveState(complete bool) error {
	r.state.Complete = complete
	if err := r.rejects.sync(); err != nil {
		return fmt.Errorf("cannot keep rejects: %w", err)
	}
	if err := r.state.save(r.State); err != nil {
		return fmt.Errorf("cannot keep the state of the import: %w", err)
	}
	r.lastSave = time.Now()
	return nil
}

// completeReport fills in what the report takes from the state.
func (r *importRun) completeReport() *Report {
	p := &r.report
	p.Record = r.state.RecordsDone
	p.Totals = r.state.Totals
	p.Reasons = r.state.Reasons
	p.Source = r.state.Source
	p.StartedAt = r.state.StartedAt
	p.Waited = r.lagState.waited
	p.OwnSource = r.hasOwnSource()
	p.Shape = r.state.Shape
	p.Position = r.state.Position
	if p.Rejected > 0 {
		p.Rejects = r.Rejects
	}
	return p
}
