package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/archive"
	"github.com/skein-feed/skein/events/eventlog"
	"github.com/skein-feed/skein/replay"
)

// Options are what an archiver is made of.
type Options struct {
	// Log is trimmed, Hub read, Archive written. All required.
	Log     *eventlog.Log
	Hub     *eventlog.Hub
	Archive *archive.Archive
	// SegmentBytes of the stream are sealed together. Default 64 MiB.
	SegmentBytes int64
	// SegmentAge is how long an envelope waits for its segment to be sealed, at most. Default one hour.
	SegmentAge time.Duration
	// Retention is how long the stream keeps what is archived. Default 7 days; negative: it keeps all.
	Retention time.Duration
	// Cursors returns where the stores of this process would continue after a crash. Nil: there are none.
	Cursors func() []events.Cursor
	// LeaseTTL is after how long another process may take over from one that is gone. Default 30 s.
	LeaseTTL time.Duration
	// Pace bounds what merging small segments costs. Default: a tenth of a core.
	Pace replay.Pace
	// Logger gets what a person must see. Default: nothing.
	Logger *slog.Logger
	// Sealed is called for each sealed segment; nil disables it.
	Sealed func(archive.Sealed)
}

func (o *Options) setDefaults() {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.SegmentAge <= 0 {
		o.SegmentAge = time.Hour
	}
	if o.Retention == 0 {
		o.Retention = 7 * 24 * time.Hour
	}
	if o.LeaseTTL <= 0 {
		o.LeaseTTL = 30 * time.Second
	}
	if o.Pace.Share <= 0 {
		o.Pace.Share = 0.1
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

const (
	// lookEvery is the interval at which the archiver trims what has become old enough. A process without the lease reloads the manifest
	// as often.
	lookEvery = time.Minute
	readBytes = 8 << 20

	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Archiver archives and trims a log while it runs. Its methods are safe for concurrent use.
type Archiver struct {
	opt Options
	// asked passes the calls of Now to the goroutine of Run.
	asked chan request

	mu     sync.Mutex
	status Status
	// stuck is set while the last attempt to seal a segment has failed; stuckAt is where the archive ended then.
	stuck   bool
	stuckAt uint64
}

// request asks for everything up to a sequence to be archived.
type request struct {
	seq  uint64
	done chan error
}

// Status is what an archiver does.
type Status struct {
	// Running reports whether this process archives; false: another one has the lease, or it is about to begin.
	Running bool
	// Waiting envelopes are read and not sealed yet.
	Waiting int
	// SealTime is when this process last sealed a segment; zero: it has not.
	SealTime time.Time
	// Trimmed is the highest sequence that this process has trimmed; 0 means it has not.
	Trimmed uint64
	// Err is why it last could not continue; nil once it did. After a segment could not be sealed, that takes until one is: a new attempt
	// gathers events for a while first, which proves nothing.
	Err error
}

// ErrNotRunning is returned when another process has the lease, or the archiver has ended.
var ErrNotRunning = errors.New("archiver: this process does not archive the log")

// New returns an archiver. It does nothing before Run.
func New(o Options) *Archiver {
	o.setDefaults()
	return &Archiver{opt: o, asked: make(chan request)}
}

// Status says what the archiver does.
func (a *Archiver) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

func (a *Archiver) note(change func(*Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.status)
}

// noteStuck records that a segment could not be sealed.
func (a *Archiver) noteStuck() {
	end := a.opt.Archive.End().Seq
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stuck, a.stuckAt = true, end
}

// noteContinued clears the error, unless a segment could not be sealed and the archive has not grown since.
func (a *Archiver) noteContinued() {
	end := a.opt.Archive.End().Seq
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stuck && end <= a.stuckAt {
		return
	}
	a.stuck, a.status.Err = false, nil
}

func (a *Archiver) isStuck() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stuck
}

// Now archives everything up to a sequence of the log, without waiting for more, and trims what may be trimmed. It fails with
// [ErrNotRunning] when this process does not archive.
func (a *Archiver) Now(ctx context.Context, seq uint64) error {
	if !a.Status().Running {
		return ErrNotRunning
	}
	r := request{seq: seq, done: make(chan error, 1)}
	select {
	case a.asked <- r:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Run archives until the context ends, then returns nil. It retries after temporary errors, as when a bucket cannot be
// reached. It returns only an error that no retry overcomes: the log is not the one that is archived, or the archive
// is damaged. Nothing is trimmed from then on.
func (a *Archiver) Run(ctx context.Context) error {
	defer a.note(func(s *Status) { s.Running = false })
	for retry := firstRetry; ; {
		began := time.Now()
		err := a.hold(ctx)
		a.note(func(s *Status) { s.Running = false })
		if ctx.Err() != nil {
			return nil
		}
		a.note(func(s *Status) { s.Err = err })
		if hopeless(err) {
			return fmt.Errorf("archiver: %w", err)
		}
		if time.Since(began) > 2*lastRetry {
			retry = firstRetry
		}
		if err != nil {
			a.opt.Logger.Warn("archiving was interrupted", "error", err, "again_in", retry)
		}
		if !a.wait(ctx, retry) {
			return nil
		}
		retry = min(2*retry, lastRetry)
	}
}

// wait waits, and refuses calls of Now meanwhile. It returns false if the context ends.
func (a *Archiver) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case r := <-a.asked:
			r.done <- ErrNotRunning
		case <-ctx.Done():
			return false
		}
	}
}

// hopeless reports whether an error will come again however often the work is tried.
func hopeless(err error) bool {
	for _, target := range []error{
		events.ErrOtherLog, events.ErrOtherEpoch, events.ErrLogShorter, events.ErrRewritten, events.ErrTrimmed, events.ErrNoLog,
		events.ErrClosed, archive.ErrDamaged, archive.ErrVersion,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
