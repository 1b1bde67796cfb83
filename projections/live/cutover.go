package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// maxHold bounds how long the fold of the live generation is stopped in a cut-over, until the next one shows as much. Reads continue
// meanwhile, but see nothing new.
const maxHold = 20 * time.Millisecond

// errNotNext means that the caller's store is not the next generation, as after CloseNext.
var errNotNext = errors.New("projections: the store is not the next generation of this projection")

// BuildNext has a store built in a directory, which does not exist, and opens it as the next generation. The caller folds into it,
// and then calls CutOver or CloseNext. There is one next generation at a time: [ErrBuilding].
func (l *Live) BuildNext(ctx context.Context, build func(dir string) error) (*store.Store, error) {
	if err := l.lockFree(ctx); err != nil {
		return nil, err
	}
	o, err := l.nextLocked()
	l.building.Store(err == nil)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	scratch := o.FS.PathJoin(l.dir, disk.ShadowPrefix+"next")
	if err = o.FS.RemoveAll(scratch); err == nil {
		err = build(scratch)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.building.Store(false)
	if err == nil && l.closed {
		err = projections.ErrClosed
	}
	if err == nil {
		err = errors.Join(o.FS.Rename(scratch, store.GenerationDir(o, o.Generation)), disk.SyncDir(o.FS, l.dir))
	}
	if err != nil {
		return nil, errors.Join(err, o.FS.RemoveAll(scratch))
	}
	return l.openNext(o)
}

// New returns a projection as those of the generations.
func (l *Live) New() projections.Projection { return l.opts.New() }

// FS returns the file system of the generations.
func (l *Live) FS() store.FS { return l.opts.FS }

// nextLocked returns the options of a generation that has no directory yet. There is a file of generations then: without one,
// that directory would be the one that serves after a crash.
func (l *Live) nextLocked() (store.Options, error) {
	g := *l.files.Load()
	switch err := l.serving.Load().err; {
	case l.unknown && !errors.Is(err, projections.ErrCorrupt):
		return store.Options{}, err // the file is of another version of this program
	case l.unknown: // the cut-over replaces the file, which is damaged
	default:
		if err := l.write(g); err != nil {
			return store.Options{}, err
		}
		l.removeStale(g, false)
	}
	return l.storeOptions(1 + max(g.Live, g.Previous, slices.Max(append(disk.ListGenerations(l.opts.FS, l.dir), 0)))), nil
}

// OpenPrevious opens the previous generation, to be folded up to the present and cut over to: a rollback. It fails with [ErrNoPrevious]
// if there is none, and with [projections.ErrFingerprint] if it is of another fold, or other settings, than the program has: then the
// program or its settings are to be rolled back first. It takes the place of a next generation.
func (l *Live) OpenPrevious(ctx context.Context) (*store.Store, error) {
	if err := l.lockFree(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	g := l.files.Load()
	if g.Previous == 0 {
		return nil, fmt.Errorf("%w of %s", ErrNoPrevious, l.name)
	}
	o := l.storeOptions(g.Previous)
	if _, err := o.FS.Stat(store.GenerationDir(o, g.Previous)); err != nil {
		return nil, fmt.Errorf("%w of %s: %w", ErrNoPrevious, l.name, err)
	}
	return l.openNext(o)
}

// DeletePrevious removes the previous generation for good, and one that was prepared: there is no rollback then. It is no error that there
// are none.
func (l *Live) DeletePrevious(ctx context.Context) error {
	if err := l.lockFree(ctx); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if err := l.removePrepared(); err != nil {
		return err
	}
	g := *l.files.Load()
	if g.Previous == 0 {
		return nil
	}
	g.Previous = 0
	if err := l.write(g); err != nil {
		return err
	}
	l.removeStale(g, false)
	return nil
}

// lockFree waits until the generation that served before is closed, and locks l.mu for a caller that begins a next one. After an error
// it is not locked.
func (l *Live) lockFree(ctx context.Context) error {
	if err := l.awaitRetired(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	if err := l.freeLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	return nil
}

// openNext opens the next generation. l.mu is locked.
func (l *Live) openNext(o store.Options) (*store.Store, error) {
	l.told.mu.Lock()
	delete(l.told.reports, o.Generation) // of one that had this number and was deleted
	l.told.mu.Unlock()
	store, err := store.Open(o)
	if err != nil {
		return nil, err
	}
	l.next.Store(store)
	return store, nil
}

func (l *Live) freeLocked() error {
	switch {
	case l.closed:
		return projections.ErrClosed
	case l.opts.ReadOnly:
		return fmt.Errorf("%w: the projection is open for reading only", projections.ErrStopped)
	case l.building.Load() || l.next.Load() != nil:
		return ErrBuilding
	}
	return nil
}

// awaitRetired waits until the generation that served before is closed: it may be the previous one, or be removed.
func (l *Live) awaitRetired(ctx context.Context) error {
	l.mu.Lock()
	retired := l.retired
	l.mu.Unlock()
	if retired == nil {
		return ctx.Err()
	}
	select {
	case <-retired:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write replaces the file of generations.
func (l *Live) write(g disk.Generations) error {
	if err := l.opts.FS.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := disk.WriteGenerations(l.opts.FS, l.dir, g); err != nil {
		return fmt.Errorf("the generations of %s: %w", l.name, err)
	}
	l.files.Store(&g)
	return nil
}

// CloseNext closes the next generation, and deletes it unless it is the previous one.
func (l *Live) CloseNext(next *store.Store) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.isNextLocked(next); err != nil {
		return err
	}
	l.next.Store(nil)
	err := next.Close()
	if next.Generation() != l.files.Load().Previous {
		err = errors.Join(err, l.opts.FS.RemoveAll(next.Dir()))
	}
	return err
}

// isNextLocked returns nil if the store is the next generation, which the caller may cut over to or close.
func (l *Live) isNextLocked(next *store.Store) error {
	switch {
	case l.next.Load() == next:
		return nil
	case l.closed:
		return projections.ErrClosed
	}
	return errNotNext
}

// CutOver makes the next generation the one that serves, at a moment when it shows at least what the live one shows; that
// one is closed when its views are, and kept as the previous one. While Run is running, the next generation follows the log from
// here on, and may still be behind: it is waited for. Otherwise it must be there: [ErrBehind].
//
// The file is written when the rows are on disk, and before queries see them: whatever crash leaves one whole generation
// live, at a position that was on disk. The pause is how long nothing new became visible; queries never wait.
//
// After an error the next generation is closed, as by CloseNext.
func (l *Live) CutOver(ctx context.Context, next *store.Store) (pause time.Duration, err error) {
	l.cutting.Lock()
	defer l.cutting.Unlock()
	ctx, cancel := l.within(ctx)
	defer cancel()
	l.mu.Lock()
	err = l.isNextLocked(next)
	l.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("cut over %s: %w", l.name, err)
	}
	defer func() {
		if err != nil {
			l.unfollow(next)
			err = errors.Join(err, l.CloseNext(next))
		}
	}()
	follower := l.followNext(next) //nolint:contextcheck // it follows for as long as Run runs
	old := l.serving.Load()
	if err := l.approach(ctx, old, next, follower); err != nil {
		return 0, fmt.Errorf("cut over to generation %d of %s: %w", next.Generation(), l.name, err)
	}
	before := *l.files.Load()
	after := before
	after.Live, after.Partitions = next.Generation(), next.Fingerprint().Partitions
	if !old.damaged() {
		after.Previous = old.number
	} else if after.Previous == next.Generation() {
		after.Previous = 0
	}
	if err := l.write(after); err != nil {
		return 0, err
	}
	if pause, err = l.swap(ctx, old, next); err != nil {
		err = fmt.Errorf("cut over to generation %d of %s: %w", next.Generation(), l.name, err)
		if before.Live != 0 {
			err = errors.Join(err, l.write(before))
		}
		return 0, err
	}
	l.retire(old, next) //nolint:contextcheck // likewise, and it ends with Close
	if f := l.opts.Listener.CutOver; f != nil {
		f(store.CutOverInfo{From: old.number, To: next.Generation(), Seq: next.Visible(), Pause: pause})
	}
	return pause, nil
}

// damaged reports that a generation is of no use to go back to.
func (s *serving) damaged() bool {
	if s.err != nil || s.store == nil {
		return s.state == store.Failed
	}
	return s.store.Damaged()
}

// followNext has the next generation follow the log, if Run is running.
func (l *Live) followNext(next *store.Store) *follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.run == nil {
		return nil
	}
	return l.run.follow(next)
}

// shown is the last position that queries have seen.
func (s *serving) shown() uint64 {
	if s.store == nil {
		return 0
	}
	return s.store.Visible()
}

// approach waits until the next generation has caught up, and has on disk what the old one has.
func (l *Live) approach(ctx context.Context, old *serving, next *store.Store, f *follower) error {
	if f != nil {
		if err := l.awaitReady(ctx, next, f); err != nil {
			return err
		}
	}
	for {
		if err := reach(ctx, next, old.shown(), f != nil); err != nil {
			return err
		}
		if err := next.Flush(); err != nil {
			return err
		}
		if old.store == nil || next.Flushed().Seq >= old.store.Flushed().Seq {
			return nil
		}
	}
}

// awaitReady waits until a generation that follows the log has once been at its head.
func (l *Live) awaitReady(ctx context.Context, next *store.Store, f *follower) error {
	for {
		l.told.mu.Lock()
		changed, last := l.told.changed, l.told.reports[next.Generation()]
		l.told.mu.Unlock()
		if last.state == store.Ready {
			return nil
		}
		select {
		case <-changed:
		case <-f.done:
			return errors.Join(ctx.Err(), projections.ErrStopped, next.Failure())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reach waits until queries would see seq.
func reach(ctx context.Context, s *store.Store, seq uint64, following bool) error {
	if !following && !s.Shows(seq) {
		return fmt.Errorf("%w: at %d, not at %d", ErrBehind, s.Visible(), seq)
	}
	return s.WaitFor(ctx, seq)
}

// swap makes the next generation serve.
func (l *Live) swap(ctx context.Context, old *serving, next *store.Store) (pause time.Duration, err error) {
	for {
		if err := next.WaitFor(ctx, old.shown()); err != nil {
			return 0, err
		}
		held, swapped, err := l.hold(ctx, old, next)
		pause = max(pause, held)
		if swapped || err != nil {
			return pause, err
		}
	}
}

// hold holds the old fold, and swaps if the next one gets there in time.
func (l *Live) hold(ctx context.Context, old *serving, next *store.Store) (held time.Duration, swapped bool, err error) {
	if old.store != nil {
		defer old.store.HoldFold()()
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()
	err = next.WaitFor(within, old.shown())
	if err == nil {
		l.serve(&serving{number: next.Generation(), store: next})
		swapped = true
	} else if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return time.Since(began), swapped, err
}

// retire closes a generation that no longer serves, once its views are closed, and removes what no longer counts.
func (l *Live) retire(old *serving, next *store.Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Store(nil)
	l.unknown = false
	if l.run != nil && l.run.followers[next] == nil {
		l.run.follow(next) // Run began after the cut-over
	}
	done := make(chan struct{})
	l.retired = done
	go func() { // ends at the latest after Close, which waits for it
		defer close(done)
		if old.store != nil {
			l.unfollow(old.store)
			if err := old.store.CloseAfter(l.life.Done()); err != nil {
				l.logger().Warn("the previous generation was not closed well", "generation", old.number, "error", err)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeStale(*l.files.Load(), false)
	}()
}
