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
	// Scratch is the path of a directory on FS that nothing else uses. The scheduler creates the
	// directory for each snapshot, copies the stores into it, uploads the copies, and removes the
	// directory. It should be on the same disk as the stores, so that tables can be hard links.
	Scratch string
	// Every is the time between two snapshots that Run takes, from start to start. 0 and negative
	// values mean [DefaultEvery].
	Every time.Duration
	// Keep is how many scheduled snapshots of each projection are kept; 0 keeps all. Older ones are
	// removed after each scheduled snapshot. Snapshots that were taken with [Scheduler.Take] do not
	// count and are not removed.
	Keep int
	// CheckLog returns an error if the log is known to have lost envelopes, or if it cannot tell.
	// No snapshot is taken then: a store may have folded envelopes before they were lost, and a
	// later fold of the log would not find them and would not build the same store. CheckLog may be
	// nil; then the log is not checked.
	CheckLog func(ctx context.Context) error
	// ErasureState returns what the manifests say about erasures of users (see [Manifest].Erased).
	// The scheduler calls it before it copies the stores. If it fails, no snapshot is taken. After
	// [ErrRebuildPending], Run tries again soon. A process that is not a node of a cluster has no
	// such function, and leaves the field nil.
	ErasureState func(ctx context.Context) (*ErasureState, error)
	// Pace limits how fast files are read for their checksums and for the upload. The zero value
	// does not limit.
	Pace replay.Pace
	// Logger receives messages for people; nil discards them.
	Logger *slog.Logger
}

// Scheduler takes snapshots of the stores of a process, on request and on a schedule. It takes one
// snapshot at a time. Its methods are safe for concurrent use.
type Scheduler struct {
	opts Options
	sums checksumCache
	// takeMu is held while a snapshot is taken and while RemoveCopies runs, because both use the
	// scratch directory. The claim in the bucket would not be enough: RemoveCopies needs none.
	takeMu sync.Mutex

	// mu guards stats.
	mu    sync.Mutex
	stats Stats
}

// Stats are what the status and the metrics of the process show about its snapshots.
type Stats struct {
	// Taken counts the attempts to take a snapshot that succeeded, and Failed those that failed. A
	// snapshot of several stores counts once. A snapshot in which every store was skipped because
	// it has folded nothing yet counts as taken. Attempts that found the bucket or the scheduler
	// busy and attempts that were interrupted do not count. An attempt also counts as failed if the
	// snapshot was refused because of its name, if only the pruning afterwards failed, or if Run
	// could not find out whether a snapshot is due.
	Taken, Failed uint64
	// Uploaded is the total size of the files that were uploaded. Files of a store whose upload
	// failed before its manifest was written are not included.
	Uploaded uint64
	// Last is when this process began its last successful snapshot, of any stores; zero means that
	// there was none. Took is how long that snapshot took, and Bytes is the total size of its
	// files, whether or not they were uploaded.
	Last  time.Time
	Took  time.Duration
	Bytes int64
	// Error is the error of the last attempt that counts. nil means that this attempt succeeded, or
	// that there was none.
	Error error
}

// New returns a Scheduler. The caller must call Run to have snapshots taken on the schedule.
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

// Report describes a snapshot.
type Report struct {
	Name string
	// Taken has an element for each store whose manifest was written. It lacks the stores that have
	// folded nothing yet. After an error it lacks others, too.
	Taken    []ProjectionReport
	Duration time.Duration
}

// Bytes returns the total size of the files of the snapshot, and the total size of those that were
// uploaded because the bucket did not have them.
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

// Take takes a snapshot of the stores of the projections that are named in of, or of all stores if
// of is empty. If name is empty, Take makes a name of the present time. Pruning does not remove the
// snapshot.
//
// While an attempt returns [ErrBusy], Take repeats it (see [RetryWhileBusy]), until ctx ends. So it
// waits while another snapshot is taken or removed, by this process or by another one that uses the
// same bucket. After [ErrRebuildPending], Take does not try again: the rebuild cannot begin before
// the operation that calls Take has ended.
func (s *Scheduler) Take(ctx context.Context, name string, of []string, p *replay.Progress) (r Report, err error) {
	err = RetryWhileBusy(ctx, func() (err error) {
		r, err = s.takeOnce(ctx, name, of, p, false)
		return err
	})
	return r, err
}

// TakeNow takes a snapshot of all stores, and waits as Take does. The snapshot counts as a
// scheduled one: TakeNow prunes the bucket afterwards, a later pruning may remove the snapshot, and
// Run takes its next snapshot only when this one is older than Options.Every.
func (s *Scheduler) TakeNow(ctx context.Context, p *replay.Progress) (r Report, err error) {
	err = RetryWhileBusy(ctx, func() (err error) {
		r, err = s.takeOnce(ctx, "", nil, p, true)
		return err
	})
	return r, err
}

// takeOnce makes one attempt to take a snapshot. It returns [ErrBusy] if this process is taking a
// snapshot or removing copies, or if another claim in the bucket has not expired. If scheduled is
// true, takeOnce prunes the bucket after the snapshot. If the pruning fails, takeOnce returns an
// error although the snapshot was taken.
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
			// Ask while this process holds the claim. An erasure that begins after the answer needs
			// the claim to remove the snapshots that were taken of the stores as they were before
			// the erasure. So the erasure waits until this snapshot is complete, and examines this
			// snapshot, too.
			t.erased, err = s.opts.ErasureState(ctx)
			if err != nil {
				return err
			}
		}

		r.Taken, err = t.takeAll(ctx, stores)
		if err != nil || !scheduled {
			return err
		}

		// Drop checksums only after a scheduled snapshot, because that has used the checksums of
		// all stores. A requested one may have used those of only some stores.
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

// RemoveCopies removes the scratch directory with the copies of stores. A snapshot that was killed,
// or that could not remove its copies, has left them there. While this Scheduler takes a snapshot,
// RemoveCopies waits, until ctx ends.
func (s *Scheduler) RemoveCopies(ctx context.Context) error {
	return RetryWhileBusy(ctx, func() error {
		if !s.takeMu.TryLock() {
			return fmt.Errorf("%w in this process", ErrBusy)
		}
		defer s.takeMu.Unlock()
		return s.opts.FS.RemoveAll(s.opts.Scratch)
	})
}

// selectStores returns the stores of the projections that are named in of, each once, or all stores
// if of is empty. It fails if there is no store for one of the names.
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

// isTooEarly reports whether an attempt to take a snapshot failed only because it was too early: a
// later attempt may succeed without any repair.
func isTooEarly(err error) bool {
	return errors.Is(err, ErrBusy) || errors.Is(err, ErrRebuildPending)
}

// recordOutcome updates the stats after an attempt to take a snapshot that began at startTime. An
// attempt that was too early, or during which ctx ended, does not count as failed and leaves the
// last error as it is. The uploaded bytes in r count in every case.
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
	case ctx.Err() == nil && !isTooEarly(err):
		s.stats.Failed++
		s.stats.Error = err
	}
}

// Run takes snapshots of all stores on the schedule. It runs until ctx ends, and then returns nil.
// A snapshot is due when the latest scheduled snapshot in the bucket is older than Options.Every,
// whichever process has taken it and whichever projections it has. If a snapshot fails, Run logs
// the error and tries again after Options.Every. After [ErrBusy] or [ErrRebuildPending], Run tries
// again after claimRetryDelay.
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

// takeIfDue takes a snapshot if one is due. It returns after which time it must be called again.
func (s *Scheduler) takeIfDue(ctx context.Context) time.Duration {
	last, err := s.lastScheduled(ctx)
	if err != nil {
		s.recordOutcome(ctx, Report{}, time.Time{}, err)
		s.logFailure(ctx, err)
		return s.opts.Every
	}

	// The time of the latest snapshot may be in the future, because a clock was set back or because
	// the clock of another process is ahead. Such a snapshot must not postpone the next one, which
	// then counts as due at every call until the clock has reached that time.
	untilDue := s.opts.Every - time.Since(last)
	isFromFuture := untilDue > s.opts.Every
	if untilDue > 0 && !isFromFuture {
		return untilDue
	}

	startTime := time.Now()
	r, err := s.takeOnce(ctx, "", nil, nil, true)
	if isTooEarly(err) {
		// Another process may be taking the snapshot that is due. If so, the next call finds it.
		return claimRetryDelay
	}
	if err != nil {
		s.logFailure(ctx, err)
		return s.opts.Every
	}
	_, uploaded := r.Bytes()
	s.opts.Logger.Info("snapshot taken", "name", r.Name, "took", r.Duration, "uploaded", uploaded)
	return max(s.opts.Every-time.Since(startTime), 0)
}

// logFailure logs that a scheduled snapshot failed. If ctx has ended, it logs nothing, because the
// end of the process is no failure of the snapshot.
func (s *Scheduler) logFailure(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.opts.Logger.Error("no snapshot could be taken",
			"target", s.opts.Bucket.String(), "again_in", s.opts.Every, "error", err)
	}
}

// lastScheduled returns when the latest scheduled snapshot in the bucket was begun, by the clock of
// the process that has taken it. It ignores snapshots whose manifests cannot be read. The zero time
// means that there is none.
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
