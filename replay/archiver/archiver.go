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

// Options configure an [Archiver].
type Options struct {
	// Log is trimmed, Hub is read, and Archive is written. All are required.
	Log     *eventlog.Log
	Hub     *eventlog.Hub
	Archive *archive.Archive
	// SegmentBytes is how many bytes of the stream are sealed together. Default 64 MiB.
	SegmentBytes int64
	// SegmentAge is the longest time for which an envelope waits until its segment is sealed.
	// Default one hour.
	SegmentAge time.Duration
	// Retention is how long the stream keeps envelopes that are archived. Default 7 days; if
	// negative, the stream is not trimmed.
	Retention time.Duration
	// Cursors returns the positions from which the stores of this process would continue after a
	// crash; nil means that there are no stores.
	Cursors func() []events.Cursor
	// LeaseTTL is how long a lease lasts after its last renewal. Then another process may take it.
	// Default 30 s.
	LeaseTTL time.Duration
	// Pace limits the merging of small segments. Default a tenth of a core.
	Pace replay.Pace
	// Logger receives messages for people; nil discards them.
	Logger *slog.Logger
	// Sealed is called for each sealed segment; it may be nil.
	Sealed func(archive.SealResult)
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
	// pollInterval is how often the archiver looks for envelopes that have become old enough to be
	// trimmed, and for small segments to merge. A process without the lease reloads the manifest as
	// often.
	pollInterval = time.Minute
	// maxReadBytes is how many bytes of the log are read at a time. It bounds the envelopes that
	// are in memory besides those of the writer.
	maxReadBytes = 8 << 20

	// minRetryDelay is the pause after archiving was interrupted. It doubles each time, up to
	// maxRetryDelay.
	minRetryDelay = time.Second
	maxRetryDelay = time.Minute
)

// Archiver archives and trims a log while it runs. Its methods may be called concurrently.
type Archiver struct {
	opts Options
	// requests passes the calls of ArchiveNow to the goroutine of Run.
	requests chan archiveRequest
	// ended is closed when Run returns. From then on, nobody receives from requests.
	ended chan struct{}

	// mu guards the fields below.
	mu     sync.Mutex
	status Status
	// sealFailed is set while the last attempt to seal a segment has failed. sealFailedAt is where
	// the archive ended at that time.
	sealFailed   bool
	sealFailedAt uint64
}

// archiveRequest is a call of ArchiveNow: everything up to the sequence seq must be archived. done
// receives the outcome. It has a buffer of one, because a caller whose context has ended no longer
// receives.
type archiveRequest struct {
	seq  uint64
	done chan error
}

// Status describes what an archiver does.
type Status struct {
	// Running reports whether this process archives. If not, another process has the lease, or this
	// one is about to begin.
	Running bool
	// Waiting is the number of envelopes that were read but not sealed yet.
	Waiting int
	// SealTime is when this process last sealed a segment; zero means never.
	SealTime time.Time
	// Trimmed is the highest sequence that this process has trimmed; 0 means none.
	Trimmed uint64
	// Err is why archiving was last interrupted; nil once it continues. After a segment could not
	// be sealed, Err stays until a segment is sealed: a new attempt begins by collecting events,
	// which does not show that the bucket works again.
	Err error
}

// ErrNotRunning means that this process does not archive: another process has the lease, or the
// archiver has ended.
var ErrNotRunning = errors.New("archiver: this process does not archive the log")

// New returns an archiver. It does nothing until Run is called.
func New(o Options) *Archiver {
	o.setDefaults()
	return &Archiver{opts: o, requests: make(chan archiveRequest), ended: make(chan struct{})}
}

// Status returns what the archiver does now.
func (a *Archiver) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// updateStatus calls change with the status, which change may modify.
func (a *Archiver) updateStatus(change func(*Status)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.status)
}

// recordSealFailure records that a segment could not be sealed.
func (a *Archiver) recordSealFailure() {
	end := a.opts.Archive.End().Seq
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sealFailed = true
	a.sealFailedAt = end
}

// clearError clears the error in the status, unless a segment could not be sealed and the archive
// has not grown since then.
func (a *Archiver) clearError() {
	end := a.opts.Archive.End().Seq

	a.mu.Lock()
	defer a.mu.Unlock()
	hasGrown := end > a.sealFailedAt
	if a.sealFailed && !hasGrown {
		return
	}
	a.sealFailed = false
	a.status.Err = nil
}

// hasSealFailed reports whether the last attempt to seal a segment has failed.
func (a *Archiver) hasSealFailed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sealFailed
}

// ArchiveNow archives everything up to the sequence seq, without waiting for a segment to be full,
// and trims. It returns [ErrNotRunning] if this process does not archive.
func (a *Archiver) ArchiveNow(ctx context.Context, seq uint64) error {
	if !a.Status().Running {
		return ErrNotRunning
	}

	r := archiveRequest{seq: seq, done: make(chan error, 1)}
	select {
	case a.requests <- r:
	case <-a.ended:
		return ErrNotRunning
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

// Run archives until ctx ends and then returns nil. It retries after temporary errors, for example
// if a bucket cannot be reached. It returns an error only if no retry can help: the log is not the
// one that is archived, or the archive is damaged. Then nothing is trimmed any more. Run must be
// called only once.
func (a *Archiver) Run(ctx context.Context) error {
	defer close(a.ended)
	for retryDelay := minRetryDelay; ; {
		began := time.Now()
		err := a.archiveWithLease(ctx)
		if ctx.Err() != nil {
			return nil
		}

		a.updateStatus(func(s *Status) { s.Err = err })
		if isPermanent(err) {
			return fmt.Errorf("archiver: %w", err)
		}
		// If archiving has worked for a while, this is a new problem.
		if time.Since(began) > 2*maxRetryDelay {
			retryDelay = minRetryDelay
		}

		if err != nil {
			a.opts.Logger.Warn("archiving was interrupted", "error", err, "again_in", retryDelay)
		}
		if !a.waitRejectingRequests(ctx, retryDelay) {
			return nil
		}
		retryDelay = min(2*retryDelay, maxRetryDelay)
	}
}

// waitRejectingRequests waits for the duration d, and rejects calls of ArchiveNow in the meantime:
// such a call may have seen Running set just before the archiving ended. It returns false if ctx
// ends.
func (a *Archiver) waitRejectingRequests(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case r := <-a.requests:
			r.done <- ErrNotRunning
		case <-ctx.Done():
			return false
		}
	}
}

// isPermanent reports whether an error would come again, however often the archiver tries.
func isPermanent(err error) bool {
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
