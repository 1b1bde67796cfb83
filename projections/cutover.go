package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// maxHold is how long the fold of the live generation is held, at most, for the next one to show what it shows.
const maxHold = 20 * time.Millisecond

// errNotNext: who has the next generation is not the caller.
var errNotNext = errors.New("projections: the store is not the next generation of this projection")

// Build opens the next generation, beside the live one: the one that was begun before, if it was begun by the same fold with
// the same settings, else a new one. The caller folds into it and then calls CutOver, Leave or Discard. One next generation is
// open at a time: [ErrBuilding].
//
// The bounds are those of building; Reopen goes over to those of serving.
func (l *Live) Build(ctx context.Context, bounds Bounds) (*Store, error) {
	if err := l.lockFree(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	g := *l.files.Load()
	if g.Building != 0 {
		store, err := l.openNext(l.storeOptions(g.Building, bounds))
		if err == nil {
			return store, nil
		}
		if errors.Is(err, ErrInUse) {
			return nil, err
		}
		l.logger().Warn("the generation that was being built is of no use, another is begun",
			"generation", g.Building, "error", err)
	}
	before := g.Building
	g.Building = l.unused(g)
	switch err := l.serving.Load().err; {
	case l.unknown && !errors.Is(err, ErrCorrupt):
		return nil, err // the file is of another version of this program
	case l.unknown: // nothing can be named in a file that is damaged; the cut-over replaces it
	default:
		// Named before it is made: what is not named is garbage.
		if err := l.write(g); err != nil {
			return nil, err
		}
		if before != 0 {
			l.removeStale(g, false)
		}
	}
	return l.openNext(l.storeOptions(g.Building, bounds))
}

// Former opens the former generation, to be folded up to the present and cut over to: a rollback. It fails with [ErrNoFormer]
// if there is none, and with [ErrFingerprint] if it is of another fold, or other settings, than the program has: then the
// program or its settings are to be rolled back first. It takes the place of a next generation.
func (l *Live) Former(ctx context.Context, bounds Bounds) (*Store, error) {
	if err := l.lockFree(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	g := l.files.Load()
	if g.Former == 0 {
		return nil, fmt.Errorf("%w of %s", ErrNoFormer, l.name)
	}
	o := l.storeOptions(g.Former, bounds)
	if _, err := o.FS.Stat(generationDir(o, g.Former)); err != nil {
		return nil, fmt.Errorf("%w of %s: %w", ErrNoFormer, l.name, err)
	}
	return l.openNext(o)
}

// DropFormer removes the former generation for good: there is no rollback then. It is no error that there is none.
func (l *Live) DropFormer(ctx context.Context) error {
	if err := l.awaitRetired(ctx); err != nil {
		return err
	}
	return l.forget(func(g *generations) *uint32 { return &g.Former })
}

// forget has the file no longer name a generation, if it does, and removes its directory.
func (l *Live) forget(which func(*generations) *uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.freeLocked(); err != nil {
		return err
	}
	g := *l.files.Load()
	n := which(&g)
	if *n == 0 {
		return nil
	}
	*n = 0
	if err := l.write(g); err != nil {
		return err
	}
	l.removeStale(g, false)
	return nil
}

// lockFree waits until the generation that served before is closed, and locks l.mu for who begins a next one. It is not locked after
// an error.
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

// unused is a number that no generation has, nor a directory that one left.
func (l *Live) unused(g generations) uint32 {
	return 1 + max(g.Live, g.Former, g.Building, slices.Max(append(listGenerations(l.opts.FS, l.dir), 0)))
}

// openNext opens the next generation. l.mu is locked.
func (l *Live) openNext(o Options) (*Store, error) {
	store, err := Open(o)
	if err != nil {
		return nil, err
	}
	l.next.Store(store)
	return store, nil
}

func (l *Live) freeLocked() error {
	switch {
	case l.closed:
		return ErrClosed
	case l.opts.ReadOnly:
		return fmt.Errorf("%w: the projection is open for reading only", ErrStopped)
	case l.next.Load() != nil:
		return ErrBuilding
	}
	return nil
}

// awaitRetired waits until the generation that served before is closed: it may be the former one, or be removed.
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
func (l *Live) write(g generations) error {
	if err := l.opts.FS.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := writeGenerations(l.opts.FS, l.dir, g); err != nil {
		return fmt.Errorf("the generations of %s: %w", l.name, err)
	}
	l.files.Store(&g)
	return nil
}

// Reopen closes the next generation and opens it with the bounds of serving. Nobody folds into it meanwhile.
func (l *Live) Reopen(next *Store) (*Store, error) {
	if err := l.Leave(next); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.freeLocked(); err != nil {
		return nil, err
	}
	store, err := Open(l.storeOptions(next.generation, l.opts.Bounds))
	if err != nil {
		return nil, err
	}
	l.next.Store(store)
	return store, nil
}

// Leave closes the next generation. It is kept: Build or Former open it again, also after a restart.
func (l *Live) Leave(next *Store) error {
	l.mu.Lock()
	if l.next.Load() != next {
		defer l.mu.Unlock()
		if l.closed {
			return ErrClosed
		}
		return errNotNext
	}
	l.next.Store(nil)
	l.mu.Unlock()
	return next.Close()
}

// Discard closes the next generation and removes what is being built. The former generation is only closed.
func (l *Live) Discard(next *Store) error {
	err := l.Leave(next)
	if errors.Is(err, errNotNext) {
		return err
	}
	if l.files.Load().Building != next.generation {
		return err
	}
	return errors.Join(err, l.Abandon())
}

// Abandon removes what is being built, if it is not open: nobody will continue it.
func (l *Live) Abandon() error { return l.forget(func(g *generations) *uint32 { return &g.Building }) }

// CutOver makes the next generation the one that serves, at a moment when it shows at least what the live one shows; that
// one is closed when its views are, and kept as the former. While Run is running, the next generation follows the log from
// here on, and may still be behind: it is waited for. Otherwise it must be there: [ErrBehind].
//
// The file is written when the rows are on disk, and before queries see them: whatever crash leaves one whole generation
// live, at a position that was on disk. The pause is how long nothing new became visible; queries never wait.
//
// After an error the next generation is as before.
func (l *Live) CutOver(ctx context.Context, next *Store) (pause time.Duration, err error) {
	l.cutting.Lock()
	defer l.cutting.Unlock()
	ctx, cancel := l.within(ctx)
	defer cancel()
	follower, err := l.followNext(next) //nolint:contextcheck // it follows for as long as Run runs
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			l.unfollow(next)
		}
	}()
	old := l.serving.Load()
	if err := l.approach(ctx, old, next, follower); err != nil {
		return 0, fmt.Errorf("cut over to generation %d of %s: %w", next.generation, l.name, err)
	}
	before := *l.files.Load()
	after := before
	after.Live = next.generation
	if after.Building == next.generation {
		after.Building = 0
	}
	if !old.damaged() {
		after.Former = old.number
	} else if after.Former == next.generation {
		after.Former = 0
	}
	if err := l.write(after); err != nil {
		return 0, err
	}
	if pause, err = l.swap(ctx, old, next); err != nil {
		err = fmt.Errorf("cut over to generation %d of %s: %w", next.generation, l.name, err)
		if before.Live != 0 {
			err = errors.Join(err, l.write(before))
		}
		return 0, err
	}
	l.retire(old, next) //nolint:contextcheck // likewise, and it ends with Close
	if f := l.opts.Listener.CutOver; f != nil {
		f(CutOverInfo{From: old.number, To: next.generation, Seq: uint64(max(0, next.life.visible.Load())), Pause: pause})
	}
	return pause, nil
}

// damaged tells that a generation is of no use to go back to.
func (s *serving) damaged() bool {
	if s.err != nil || s.store == nil {
		return s.state == Failed
	}
	err := s.store.life.failure()
	return errors.Is(err, ErrCorrupt) || pebble.IsCorruptionError(err)
}

// followNext has the next generation follow the log, if Run is running.
func (l *Live) followNext(next *Store) (*follower, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.next.Load() != next:
		return nil, errNotNext
	case l.run == nil:
		return nil, nil
	}
	return l.run.follow(next), nil
}

// shown is the last position that queries have seen.
func (s *serving) shown() uint64 {
	if s.store == nil {
		return 0
	}
	return uint64(max(0, s.store.life.visible.Load()))
}

// approach waits until the next generation has caught up, and has on disk what the old one has.
func (l *Live) approach(ctx context.Context, old *serving, next *Store, f *follower) error {
	if f != nil {
		if err := l.awaitReady(ctx, next, f); err != nil {
			return err
		}
	}
	for {
		if err := next.reach(ctx, old.shown(), f != nil); err != nil {
			return err
		}
		if err := next.Flush(); err != nil {
			return err
		}
		if old.store == nil || next.flush.flushed.Load().Seq >= old.store.flush.flushed.Load().Seq {
			return nil
		}
	}
}

// awaitReady waits until a generation that follows the log has once been at its head.
func (l *Live) awaitReady(ctx context.Context, next *Store, f *follower) error {
	for {
		l.told.mu.Lock()
		changed, last := l.told.changed, l.told.reports[next.generation]
		l.told.mu.Unlock()
		if last.state == Ready {
			return nil
		}
		select {
		case <-changed:
		case <-f.done:
			return errors.Join(ctx.Err(), ErrStopped, next.life.failure())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reach waits until queries would see seq.
func (s *Store) reach(ctx context.Context, seq uint64, following bool) error {
	if !following && !s.life.has(seq) {
		return fmt.Errorf("%w: at %d, not at %d", ErrBehind, s.life.visible.Load(), seq)
	}
	return s.WaitFor(ctx, seq)
}

// swap makes the next generation serve.
func (l *Live) swap(ctx context.Context, old *serving, next *Store) (pause time.Duration, err error) {
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
func (l *Live) hold(ctx context.Context, old *serving, next *Store) (held time.Duration, swapped bool, err error) {
	if old.store != nil {
		old.store.folding.Lock()
		defer old.store.folding.Unlock()
	}
	began := time.Now()
	within, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()
	err = next.WaitFor(within, old.shown())
	if err == nil {
		l.serve(&serving{number: next.generation, store: next})
		swapped = true
	} else if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return time.Since(began), swapped, err
}

// retire closes a generation that no longer serves, once its views are closed, and removes what no longer counts.
func (l *Live) retire(old *serving, next *Store) {
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
			if err := old.store.closeAfter(l.life.Done()); err != nil {
				l.logger().Warn("the former generation was not closed well", "generation", old.number, "error", err)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeStale(*l.files.Load(), false)
	}()
}
