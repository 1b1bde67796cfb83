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

// Options say which snapshots a [Keeper] takes and keeps.
type Options struct {
	Bucket bucket.Bucket
	// Stores returns the live stores of all projections.
	Stores func() []Store
	// FS is the file system of the stores; nil means the disk.
	FS store.FS
	// Scratch is a directory on that file system for copies of stores while they are uploaded. The keeper creates and removes it.
	Scratch string
	// Every is the time between two snapshots of Run; 0 means [DefaultEvery].
	Every time.Duration
	// Keep is the number of scheduled snapshots of each projection that are kept; 0 keeps all.
	Keep int
	// Whole returns an error if the log is known to have a hole, and then no snapshot is taken: the stores may have folded envelopes that
	// a later fold would not find. nil disables the check.
	Whole func(ctx context.Context) error
	// Erased returns the [Erased] of a node. It is called before the stores are copied, and no snapshot is taken after an error. nil means
	// that the process is no node of a cluster.
	Erased func(ctx context.Context) (*Erased, error)
	// Pace limits the hashing and reading of files.
	Pace replay.Pace
	// Logger gets messages for people; nil disables them.
	Logger *slog.Logger
}

// Keeper takes snapshots of the stores of a process, on request and on a schedule, one at a time.
type Keeper struct {
	opts Options
	sums sums
	// working is held while a snapshot is taken.
	working sync.Mutex

	mu    sync.Mutex
	stats Stats
}

// Stats are the counts behind the metrics.
type Stats struct {
	// Taken and Failed count calls of Take and scheduled snapshots; one of several stores counts once.
	Taken, Failed uint64
	// Uploaded is the number of bytes that were uploaded.
	Uploaded uint64
	// Last is when this process began its last successful snapshot; zero means none yet. Took is its duration, Bytes its size.
	Last  time.Time
	Took  time.Duration
	Bytes int64
	// Error is the error of the last snapshot; nil means that it succeeded.
	Error error
}

// New returns a keeper. Scheduled snapshots need Run.
func New(o Options) *Keeper {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Keeper{opts: o}
}

// Stats returns the counts since the start.
func (k *Keeper) Stats() Stats {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stats
}

// Report is the result of one call of Take.
type Report struct {
	Name  string
	Taken []Taken
	Took  time.Duration
}

// Bytes returns the size of the snapshot, and the part of it that was uploaded because the bucket did not have it.
func (r Report) Bytes() (all, uploaded int64) {
	for _, t := range r.Taken {
		all += t.Manifest.Bytes()
		uploaded += t.Uploaded
	}
	return all, uploaded
}

// String returns the report for people.
func (r Report) String() string {
	var parts []string
	for _, t := range r.Taken {
		parts = append(parts, fmt.Sprintf("%s at sequence %d, %d bytes (%d new)", t.Manifest.Projection,
			t.Manifest.Cursor.Seq, t.Manifest.Bytes(), t.Uploaded))
	}
	if len(parts) == 0 {
		parts = []string{"nothing is folded yet"}
	}
	return fmt.Sprintf("snapshot %s in %s: %s", r.Name, round(r.Took), strings.Join(parts, "; "))
}

// Take takes a snapshot of the stores of the projections in of; empty means all. An empty name stands for one made of the present time.
// Take waits while another snapshot is taken or removed, by this or another process with the same bucket.
func (k *Keeper) Take(ctx context.Context, name string, of []string, p *replay.Progress) (r Report, err error) {
	err = WhenFree(ctx, func() (err error) {
		r, err = k.take(ctx, name, of, p, false)
		return err
	})
	return r, err
}

// TakeNow takes a snapshot of all stores as Take does, but as a scheduled one, which pruning may remove.
func (k *Keeper) TakeNow(ctx context.Context, p *replay.Progress) (r Report, err error) {
	err = WhenFree(ctx, func() (err error) {
		r, err = k.take(ctx, "", nil, p, true)
		return err
	})
	return r, err
}

func (k *Keeper) take(ctx context.Context, name string, of []string, p *replay.Progress, scheduled bool) (r Report, err error) {
	if !k.working.TryLock() {
		return r, fmt.Errorf("%w in this process", ErrBusy)
	}
	defer k.working.Unlock()
	began := time.Now()
	if r.Name = name; name == "" {
		r.Name = began.UTC().Format("20060102t150405.000z")
	}
	defer func() {
		r.Took = time.Since(began)
		k.note(ctx, r, began, err)
	}()
	if !nameForm.MatchString(r.Name) {
		return r, fmt.Errorf("%w: %q", ErrName, r.Name)
	}
	if whole := k.opts.Whole; whole != nil {
		if err := whole(ctx); err != nil {
			return r, err
		}
	}
	stores, err := k.stores(of)
	if err != nil {
		return r, err
	}
	err = claimed(ctx, k.opts.Bucket, "snapshot "+r.Name, func(ctx context.Context) error {
		t := &taking{
			bucket: k.opts.Bucket, fs: k.opts.FS, scratch: k.opts.Scratch, pace: k.opts.Pace, sums: &k.sums, p: p,
			name: r.Name, now: began.UTC(), scheduled: scheduled,
		}
		var err error
		if k.opts.Erased != nil {
			// Within the claim: a later removal of what was taken from stores before an erasure waits for this one.
			if t.erased, err = k.opts.Erased(ctx); err != nil {
				return err
			}
		}
		if r.Taken, err = t.run(ctx, stores); err != nil || !scheduled {
			return err
		}
		k.sums.age()
		gone, err := prune(ctx, k.opts.Bucket, k.opts.Keep)
		if len(gone.Unreadable) > 0 {
			k.opts.Logger.Warn("snapshots cannot be read; nothing is removed until they are", "snapshots", gone.Unreadable)
		}
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		return nil
	})
	return r, err
}

// stores returns the stores of the named projections.
func (k *Keeper) stores(of []string) ([]Store, error) {
	all := k.opts.Stores()
	if len(of) == 0 {
		return all, nil
	}
	var some []Store
	for _, name := range of {
		i := slices.IndexFunc(all, func(s Store) bool { return s.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("snapshot: there is no projection %q", name)
		}
		if !slices.Contains(some, all[i]) {
			some = append(some, all[i])
		}
	}
	return some, nil
}

func (k *Keeper) note(ctx context.Context, r Report, began time.Time, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, uploaded := r.Bytes()
	k.stats.Uploaded += uint64(uploaded)
	switch {
	case err == nil:
		k.stats.Taken++
		k.stats.Last, k.stats.Took, k.stats.Bytes, k.stats.Error = began, r.Took, all, nil
	case ctx.Err() == nil && !errors.Is(err, ErrBusy):
		k.stats.Failed++
		k.stats.Error = err
	}
}

// Run takes snapshots of all stores on the schedule until the context ends, then returns nil. A snapshot is due when the last scheduled
// one in the bucket, of any process, is older than Every. An error is logged, and Run tries again after Every.
func (k *Keeper) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		timer.Reset(k.tick(ctx))
	}
}

// tick takes a snapshot if one is due, and returns how long it takes until the next is.
func (k *Keeper) tick(ctx context.Context) time.Duration {
	last, err := k.last(ctx)
	if err == nil {
		// A snapshot from the future, taken before a clock was set back, must not postpone the next one.
		if wait := k.opts.Every - time.Since(last); wait > 0 && wait <= k.opts.Every {
			return wait
		}
		began := time.Now()
		var r Report
		if r, err = k.take(ctx, "", nil, nil, true); err == nil {
			_, uploaded := r.Bytes()
			k.opts.Logger.Info("snapshot taken", "name", r.Name, "took", r.Took, "uploaded", uploaded)
			return max(k.opts.Every-time.Since(began), 0)
		}
		if errors.Is(err, ErrBusy) { // another process may take the one that is due
			return claimPause
		}
	} else {
		k.note(ctx, Report{}, time.Time{}, err)
	}
	if ctx.Err() == nil {
		k.opts.Logger.Error("no snapshot could be taken", "target", k.opts.Bucket.String(), "again_in", k.opts.Every, "error", err)
	}
	return k.opts.Every
}

// last returns when the last scheduled snapshot was taken; zero means never.
func (k *Keeper) last(ctx context.Context) (time.Time, error) {
	list, err := List(ctx, k.opts.Bucket)
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
