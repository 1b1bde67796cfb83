package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// DefaultEvery is the default time between two scheduled snapshots.
const DefaultEvery = time.Hour

// Options say which snapshots a [Scheduler] takes, and how many of them it keeps.
type Options struct {
	Bucket bucket.Bucket
	// Stores returns the live stores of the process, one per projection.
	Stores func() []Store
	// FS is the file system of the stores; nil means the disk.
	FS store.FS
	// Scratch is a directory on that file system. Copies of the stores are in it while they are
	// uploaded. The scheduler creates and removes it.
	Scratch string
	// Every is how often Run takes a snapshot; 0 means [DefaultEvery].
	Every time.Duration
	// Keep is how many scheduled snapshots of each projection are kept; 0 keeps all.
	Keep int
	// CheckLog returns an error if the log is known to have lost envelopes. No snapshot is taken
	// then, because the stores may have folded envelopes that a later fold would not find. It may
	// be nil.
	CheckLog func(ctx context.Context) error
	// ErasureState returns what the manifests say about erasures. It is called before the stores
	// are copied; if it fails, no snapshot is taken. nil means that the process is not a node of a
	// cluster.
	ErasureState func(ctx context.Context) (*ErasureState, error)
	// Pace limits how fast files are hashed and read.
	Pace replay.Pace
	// Logger receives messages for people; nil discards them.
	Logger *slog.Logger
}

// Scheduler takes snapshots of the stores of a process, on request and on a schedule, one snapshot
// at a time.
type Scheduler struct {
	opts Options
	sums checksumCache
	// takeMu is held while a snapshot is taken: two would use the same scratch directory.
	takeMu sync.Mutex

	// mu guards stats.
	mu    sync.Mutex
	stats Stats
}

// Stats are the counts for the metrics.
type Stats struct {
	// Taken and Failed count the snapshots that were requested or due. A snapshot of several stores
	// counts once.
	Taken, Failed uint64
	// Uploaded is how many bytes were uploaded.
	Uploaded uint64
	// Last is when this process began its last successful snapshot; zero means that there was none.
	// Took is how long that snapshot took, and Bytes is its size.
	Last  time.Time
	Took  time.Duration
	Bytes int64
	// Error is the error of the last snapshot; nil means that it succeeded.
	Error error
}

// New returns a Scheduler. It takes scheduled snapshots only while Run runs.
func New(o Options) *Scheduler {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scheduler{opts: o}
}

// Stats returns the counts since New.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Report describes a snapshot that was taken, of one or more stores.
type Report struct {
	Name     string
	Taken    []ProjectionReport
	Duration time.Duration
}

// Bytes returns the size of the snapshot, and how many bytes were uploaded because the bucket did
// not have them.
func (r Report) Bytes() (all, uploaded int64) {
	for _, t := range r.Taken {
		all += t.Manifest.Bytes()
		uploaded += t.Uploaded
	}
	return all, uploaded
}

// String describes the snapshot to people.
func (r Report) String() string {
	var parts []string
	for _, t := range r.Taken {
		parts = append(parts, fmt.Sprintf("%s at sequence %d, %d bytes (%d new)", t.Manifest.Projection,
			t.Manifest.Cursor.Seq, t.Manifest.Bytes(), t.Uploaded))
	}
	if len(parts) == 0 {
		parts = []string{"nothing is folded yet"}
	}
	return fmt.Sprintf("snapshot %s in %s: %s", r.Name, roundDuration(r.Duration), strings.Join(parts, "; "))
}

// Take takes a snapshot of the stores of the projections in of; if of is empty, of all stores. An
// empty name is replaced by one made of the present time. Take waits while another snapshot is
// taken or removed, by this process or by another one that uses the same bucket.
func (s *Scheduler) Take(ctx context.Context, name string, of []string, p *replay.Progress) (r Report, err error) {
	err = RetryWhileBusy(ctx, func() (err error) {
		r, err = s.takeOnce(ctx, name, of, p, false)
		return err
	})
	return r, err
}

// TakeNow takes a snapshot of all stores like Take, but as a scheduled snapshot, which pruning may
// remove.
func (s *Scheduler) TakeNow(ctx context.Context, p *replay.Progress) (r Report, err error) {
	err = RetryWhileBusy(ctx, func() (err error) {
		r, err = s.takeOnce(ctx, "", nil, p, true)
		return err
	})
	return r, err
}

// takeOnce takes a snapshot, or returns [ErrBusy]. If it is scheduled, takeOnce also prunes.
func (s *Scheduler) takeOnce(ctx context.Context, name string, of []string, p *replay.Progress, scheduled bool) (r Report, err error) {
	if !s.takeMu.TryLock() {
		return r, fmt.Errorf("%w in this process", ErrBusy)
	}
	defer s.takeMu.Unlock()

	startTime := time.Now()
	r.Name = name
	if name == "" {
		r.Name = startTime.UTC().Format("20060102t150405.000z")
	}
	defer func() {
		r.Duration = time.Since(startTime)
		s.recordOutcome(ctx, r, startTime, err)
	}()

	if !namePattern.MatchString(r.Name) {
		return r, fmt.Errorf("%w: %q", ErrName, r.Name)
	}
	if s.opts.CheckLog != nil {
		if err := s.opts.CheckLog(ctx); err != nil {
			return r, err
		}
	}
	stores, err := s.selectStores(of)
	if err != nil {
		return r, err
	}

	err = withClaim(ctx, s.opts.Bucket, "snapshot "+r.Name, func(ctx context.Context) error {
		t := &snapshotTaker{
			bucket:    s.opts.Bucket,
			fs:        s.opts.FS,
			scratch:   s.opts.Scratch,
			pace:      s.opts.Pace,
			sums:      &s.sums,
			progress:  p,
			name:      r.Name,
			now:       startTime.UTC(),
			scheduled: scheduled,
		}
		var err error
		if s.opts.ErasureState != nil {
			// Ask while this process holds the claim. An erasure that begins later then waits for
			// this snapshot before it removes those of old stores.
			t.erased, err = s.opts.ErasureState(ctx)
			if err != nil {
				return err
			}
		}

		r.Taken, err = t.takeAll(ctx, stores)
		if err != nil || !scheduled {
			return err
		}

		s.sums.dropUnused()
		pruned, err := pruneClaimed(ctx, s.opts.Bucket, s.opts.Keep)
		if len(pruned.Unreadable) > 0 {
			s.opts.Logger.Warn("snapshots cannot be read; no files are removed until they are removed", "snapshots", pruned.Unreadable)
		}
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		return nil
	})
	return r, err
}

// RemoveCopies removes the copies of stores that a snapshot has left that failed or was killed. It
// waits while a snapshot is taken.
func (s *Scheduler) RemoveCopies(ctx context.Context) error {
	return RetryWhileBusy(ctx, func() error {
		if !s.takeMu.TryLock() {
			return fmt.Errorf("%w in this process", ErrBusy)
		}
		defer s.takeMu.Unlock()
		return s.opts.FS.RemoveAll(s.opts.Scratch)
	})
}

// selectStores returns the stores of the named projections, each once; no names mean all.
func (s *Scheduler) selectStores(of []string) ([]Store, error) {
	all := s.opts.Stores()
	if len(of) == 0 {
		return all, nil
	}
	var selected []Store
	for _, name := range of {
		i := slices.IndexFunc(all, func(st Store) bool { return st.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("snapshot: there is no projection %q", name)
		}
		if !slices.Contains(selected, all[i]) {
			selected = append(selected, all[i])
		}
	}
	return selected, nil
}

// recordOutcome updates the stats after a snapshot that began at startTime. A snapshot that could
// not begin because of another one, or that was interrupted, does not count as failed.
func (s *Scheduler) recordOutcome(ctx context.Context, r Report, startTime time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, uploaded := r.Bytes()
	s.stats.Uploaded += uint64(uploaded)
	switch {
	case err == nil:
		s.stats.Taken++
		s.stats.Last = startTime
		s.stats.Took = r.Duration
		s.stats.Bytes = all
		s.stats.Error = nil
	case ctx.Err() == nil && !errors.Is(err, ErrBusy):
		s.stats.Failed++
		s.stats.Error = err
	}
}

// Run takes snapshots of all stores on the schedule until ctx ends and then returns nil. A snapshot
// is due when the latest scheduled one in the bucket, by whichever process, is older than Every. If
// a snapshot fails, Run logs the error and tries again after Every.
func (s *Scheduler) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		timer.Reset(s.takeIfDue(ctx))
	}
}

// takeIfDue takes a snapshot if one is due. It returns the time until it must be called again.
func (s *Scheduler) takeIfDue(ctx context.Context) time.Duration {
	last, err := s.lastScheduled(ctx)
	if err != nil {
		s.recordOutcome(ctx, Report{}, time.Time{}, err)
		s.logFailure(ctx, err)
		return s.opts.Every
	}

	// If a clock was set back, the latest snapshot may be from the future. It must not postpone the
	// next one.
	untilDue := s.opts.Every - time.Since(last)
	isFromFuture := untilDue > s.opts.Every
	if untilDue > 0 && !isFromFuture {
		return untilDue
	}

	startTime := time.Now()
	r, err := s.takeOnce(ctx, "", nil, nil, true)
	if errors.Is(err, ErrBusy) {
		return claimRetryDelay // another process may be taking the snapshot that is due
	}
	if err != nil {
		s.logFailure(ctx, err)
		return s.opts.Every
	}
	_, uploaded := r.Bytes()
	s.opts.Logger.Info("snapshot taken", "name", r.Name, "took", r.Duration, "uploaded", uploaded)
	return max(s.opts.Every-time.Since(startTime), 0)
}

// logFailure logs that a scheduled snapshot failed, unless ctx has ended.
func (s *Scheduler) logFailure(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.opts.Logger.Error("no snapshot could be taken",
			"target", s.opts.Bucket.String(), "again_in", s.opts.Every, "error", err)
	}
}

// lastScheduled returns when the latest scheduled snapshot was taken; zero means never.
func (s *Scheduler) lastScheduled(ctx context.Context) (time.Time, error) {
	list, err := List(ctx, s.opts.Bucket)
	if err != nil {
		return time.Time{}, fmt.Errorf("look for the last snapshot: %w", err)
	}
	for _, l := range slices.Backward(list) {
		if l.Err == nil && l.Manifest.Scheduled {
			return l.Time, nil
		}
	}
	return time.Time{}, nil
}

var _ Store = (*store.Store)(nil)
