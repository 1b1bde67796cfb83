package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// maxHold is the longest time for which one attempt to cut over stops the fold of the live
// generation while it waits until the next generation shows as much. Queries are answered during
// that time, but nothing new becomes visible. CutOver repeats an attempt that takes longer.
const maxHold = 20 * time.Millisecond

// nextDir is the directory in which BuildNext has a store made. Makers have other directories whose
// names begin so.
const nextDir = disk.ShadowPrefix + "next"

// errNotNext means that a store is not the next generation, for example because CloseNext has
// closed it.
var errNotNext = errors.New("live: the store is not the next generation of this projection")

// BuildNext calls build with a directory that does not exist. build must make a store there, which
// BuildNext then opens as the next generation. The caller may fold into that generation, and must
// then call CutOver or CloseNext. BuildNext fails with [ErrBuilding] if a next generation is open
// or being built already.
func (l *Live) BuildNext(ctx context.Context, build func(dir string) error) (*store.Store, error) {
	if err := l.lockForNext(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	o, err := l.nextOptionsLocked()
	if err != nil {
		return nil, err
	}

	scratch := o.FS.PathJoin(l.dir, nextDir)
	err = l.buildWithoutLock(func() error {
		if err := o.FS.RemoveAll(scratch); err != nil {
			return err
		}
		return build(scratch)
	})

	if err == nil && l.closed {
		err = projections.ErrClosed
	}
	if err == nil {
		err = errors.Join(o.FS.Rename(scratch, store.GenerationDir(o, o.Generation)), disk.SyncDir(o.FS, l.dir))
	}
	if err != nil {
		return nil, errors.Join(err, o.FS.RemoveAll(scratch))
	}
	return l.openNextLocked(o)
}

// buildWithoutLock calls build without mu, because build takes long. As long as the field building
// is set, checkNoNextLocked refuses every other caller that wants to begin a next generation. The
// caller holds mu, and holds it again afterwards, even if build panics.
func (l *Live) buildWithoutLock(build func() error) error {
	l.building.Store(true)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.building.Store(false)
	}()
	return build()
}

// New returns a new instance of the projection. Each generation needs an instance of its own.
func (l *Live) New() projections.Projection { return l.opts.New() }

// FS returns the file system of the generations.
func (l *Live) FS() store.FS { return l.opts.FS }

// nextOptionsLocked returns the options for a new generation, with a number that no directory has.
// It writes the file of generations first. Without the file, the generation with the highest number
// is live, so after a crash that would be the new one. The caller holds mu.
func (l *Live) nextOptionsLocked() (store.Options, error) {
	g := *l.generations.Load()
	switch err := l.serving.Load().err; {
	case l.unreadableFile && !errors.Is(err, projections.ErrCorrupt):
		return store.Options{}, err // the file may be intact: of another version, or unreadable now
	case l.unreadableFile:
		// The file is damaged. The cut-over will replace it.
	default:
		if err := l.writeGenerations(g); err != nil {
			return store.Options{}, err
		}
		l.removeStale(g, false)
	}

	highest := max(g.Live, g.Previous, slices.Max(append(disk.ListGenerations(l.opts.FS, l.dir), 0)))
	return l.storeOptions(highest + 1), nil
}

// OpenPrevious opens the previous generation as the next one, for a rollback. The caller must then
// call CutOver or CloseNext. If Run is running, CutOver folds what the generation lacks of the log.
//
// OpenPrevious fails with [ErrNoPrevious] if there is no previous generation, and with
// [ErrBuilding] if a next one is open or being built already. It fails with
// [projections.ErrFingerprint] if the previous generation was built by another version of the fold,
// or with other settings, than the program has. An operator must then first roll back the program
// or its settings.
func (l *Live) OpenPrevious(ctx context.Context) (*store.Store, error) {
	if err := l.lockForNext(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()

	g := l.generations.Load()
	if g.Previous == 0 {
		return nil, fmt.Errorf("%w of %s", ErrNoPrevious, l.name)
	}
	o := l.storeOptions(g.Previous)
	if _, err := o.FS.Stat(store.GenerationDir(o, g.Previous)); err != nil {
		return nil, fmt.Errorf("%w of %s: %w", ErrNoPrevious, l.name, err)
	}
	return l.openNextLocked(o)
}

// DeletePrevious deletes the previous generation, so that there is no rollback, the prepared
// generation, and copies of generations that failed calls have left. When it returns nil, the
// serving generation is the only one that is left, even after a power cut, except for copies that
// [Live.ExportPartitions] is exporting. DeletePrevious fails with [ErrBuilding] if a next
// generation is open or being built. After another error, some of the files may be left; another
// call removes them.
func (l *Live) DeletePrevious(ctx context.Context) error {
	if err := l.lockForNext(ctx); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if err := l.removePrepared(); err != nil {
		return err
	}
	if l.unreadableFile {
		return l.serving.Load().err // nothing says which generation must stay
	}

	g := *l.generations.Load()
	if g.Previous != 0 {
		g.Previous = 0
		if err := l.writeGenerations(g); err != nil {
			return err
		}
	}

	// Remove the files even if no generation is the previous one: an earlier call may have failed
	// to remove them. Keep no generation that was prepared: it has rows of users who are erased. Of
	// the temporary directories, remove only those of this Live that are not in use. No next
	// generation is being built now.
	isInUse := func(dir string) bool {
		name := l.opts.FS.PathBase(dir)
		isOfOthers := strings.HasPrefix(name, disk.ShadowPrefix) &&
			!strings.HasPrefix(name, exportPrefix) && !strings.HasPrefix(name, nextDir)
		return isOfOthers || l.exportDirs[dir]
	}
	if err := l.removeUnnamed(g, true, isInUse); err != nil {
		return fmt.Errorf("delete the previous generation of %s: %w", l.name, err)
	}
	return disk.SyncDir(l.opts.FS, l.dir)
}

// lockForNext locks mu for a caller that begins a next generation or removes the previous one. It
// first waits until the generation that served before the last cut-over is closed, because that is
// the one that the caller may open or remove. If lockForNext fails, mu is not locked.
func (l *Live) lockForNext(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.mu.Lock()
		if err := l.checkNoNextLocked(); err != nil {
			l.mu.Unlock()
			return err
		}

		// This is checked while mu is locked, because a cut-over may end until then. It leaves
		// another generation, which may have views that are open.
		retired := l.retired
		if retired == nil {
			return nil
		}
		l.mu.Unlock()
		select {
		case <-retired:
		case <-ctx.Done():
		}
	}
}

// openNextLocked opens the next generation. The caller holds mu.
func (l *Live) openNextLocked(o store.Options) (*store.Store, error) {
	// Forget the last report for this number: it is of a deleted generation with the same number,
	// or of the previous generation from the time when that served.
	l.states.mu.Lock()
	delete(l.states.reports, o.Generation)
	l.states.mu.Unlock()

	next, err := store.Open(o)
	if err != nil {
		return nil, err
	}
	l.next.Store(next)
	return next, nil
}

// checkNoNextLocked returns an error if the caller, which holds mu, cannot begin a next generation.
func (l *Live) checkNoNextLocked() error {
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

// writeGenerations replaces the file of generations. If it fails, l.generations stays as before,
// but the file may be the old or the new one.
func (l *Live) writeGenerations(g disk.Generations) error {
	if err := l.opts.FS.MkdirAll(l.dir, 0o700); err != nil {
		return err
	}
	if err := disk.WriteGenerations(l.opts.FS, l.dir, g); err != nil {
		return fmt.Errorf("the generations of %s: %w", l.name, err)
	}
	l.generations.Store(&g)
	return nil
}

// CloseNext closes the next generation and deletes it, except that it does not delete the previous
// generation. The caller must have ended its fold into the generation.
func (l *Live) CloseNext(next *store.Store) error { return l.closeNext(next, true) }

// closeNext closes the next generation. With remove set, it also deletes it, unless it is the
// previous one.
func (l *Live) closeNext(next *store.Store, remove bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkIsNextLocked(next); err != nil {
		return err
	}
	l.next.Store(nil)

	// A rollback that failed may be tried again, so the previous generation stays.
	err := next.Close()
	if remove && next.Generation() != l.generations.Load().Previous {
		err = errors.Join(err, l.opts.FS.RemoveAll(next.Dir()))
	}
	return err
}

// checkIsNextLocked returns an error unless the store is the next generation. The caller holds mu.
func (l *Live) checkIsNextLocked(next *store.Store) error {
	switch {
	case l.next.Load() == next:
		return nil
	case l.closed:
		return projections.ErrClosed
	}
	return errNotNext
}

// CutOver makes the next generation the one that serves. It does so at a moment when the next
// generation shows at least what the live one shows, so positions never go back for readers. The
// old generation becomes the previous one, and is closed when its last view is closed.
//
// The caller must no longer fold into the next generation. If Run is running, CutOver starts to
// fold the log into the next generation and waits until that has caught up. If Run is not running,
// the next generation must have caught up already, or CutOver fails with [ErrBehind].
//
// CutOver writes the file of generations after the rows of the next generation are on disk and
// before queries see them. So after a crash at any time one complete generation is live, at a
// position that was on disk.
//
// pause is the longest time for which CutOver stopped the fold of the old generation, so that
// nothing new became visible. Queries are answered all the time. If CutOver fails, it closes the
// next generation as CloseNext does, unless next is not the next generation.
func (l *Live) CutOver(ctx context.Context, next *store.Store) (pause time.Duration, err error) {
	l.cutOverMu.Lock()
	defer l.cutOverMu.Unlock()
	ctx, cancel := l.withCloseCtx(ctx)
	defer cancel()

	l.mu.Lock()
	err = l.checkIsNextLocked(next)
	l.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("cut over %s: %w", l.name, err)
	}
	// restoreErr is set if the file of generations names the next generation and could not be
	// restored. The files of that generation must stay then, because the next start opens them.
	var restoreErr error
	defer func() {
		if err == nil {
			return
		}
		l.stopNextFold(next)
		err = errors.Join(err, restoreErr, l.closeNext(next, restoreErr == nil))
	}()

	nextFold := l.startNextFold(next) //nolint:contextcheck // the fold ends with Run, and not with this call
	old := l.serving.Load()
	if err := l.catchUp(ctx, old, next, nextFold); err != nil {
		return 0, fmt.Errorf("cut over to generation %d of %s: %w", next.Generation(), l.name, err)
	}

	// Write the file of generations before queries see the next generation. After a crash in
	// between, the next generation serves, and it shows at least what queries have seen.
	before := *l.generations.Load()
	after := before
	after.Live = next.Generation()
	after.Partitions = next.Fingerprint().Partitions
	if !old.isDamaged() {
		after.Previous = old.number
	} else if after.Previous == next.Generation() {
		after.Previous = 0 // a rollback from a damaged generation leaves none to go back to
	}
	if err := l.writeGenerations(after); err != nil {
		// The file may name the next generation already, which is deleted below: the error may be
		// that of the last sync.
		if before.Live != 0 {
			restoreErr = l.writeGenerations(before)
		}
		return 0, err
	}

	// Let queries see the next generation. If that fails, restore the file, unless Open could not
	// read the file: then before.Live is 0.
	if pause, err = l.swapServing(ctx, old, next); err != nil {
		err = fmt.Errorf("cut over to generation %d of %s: %w", next.Generation(), l.name, err)
		if before.Live != 0 {
			restoreErr = l.writeGenerations(before)
		}
		return 0, err
	}

	l.retire(old)
	if notify := l.opts.Listener.CutOver; notify != nil {
		notify(store.CutOverInfo{From: old.number, To: next.Generation(), Seq: next.VisibleSeq(), Pause: pause})
	}
	return pause, nil
}

// isDamaged reports whether a rollback to this generation would be of no use, because its files or
// rows are damaged, or because it could not be opened for another reason than being outdated.
func (s *serving) isDamaged() bool {
	if s.err != nil || s.store == nil {
		return s.state == store.Failed
	}
	return s.store.Damaged()
}

// startNextFold starts to fold the log into the next generation. It returns nil if Run is not
// running. If Run begins later, before the cut-over has ended, Run starts to fold into the next
// generation itself.
func (l *Live) startNextFold(next *store.Store) *storeFold {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.foldedNext = next
	if l.currentRun == nil || l.currentRun.isEnding {
		return nil
	}
	return l.currentRun.startFold(next)
}

// stopNextFold stops the fold into the next generation, and keeps Run from starting another one.
func (l *Live) stopNextFold(next *store.Store) {
	l.mu.Lock()
	l.foldedNext = nil
	l.mu.Unlock()
	l.stopFold(next)
}

// visibleSeq returns the last sequence that queries of the generation see, or 0 if the generation
// could not be opened.
func (s *serving) visibleSeq() uint64 {
	if s.store == nil {
		return 0
	}
	return s.store.VisibleSeq()
}

// catchUp waits until the next generation shows what the old one showed at some moment during the
// call, and has on disk everything that the old one has on disk. nextFold is nil if nothing folds
// into the next generation at the beginning of the call; catchUp then fails with ErrBehind instead
// of waiting.
func (l *Live) catchUp(ctx context.Context, old *serving, next *store.Store, nextFold *storeFold) error {
	if nextFold != nil {
		if err := l.waitUntilReady(ctx, next, nextFold); err != nil {
			return err
		}
	} else if seq := old.visibleSeq(); !next.IsVisible(seq) {
		return fmt.Errorf("%w: at %d, not at %d", ErrBehind, next.VisibleSeq(), seq)
	}

	// From here on, the old generation goes ahead only if Run folds into both.
	for {
		if err := next.WaitFor(ctx, old.visibleSeq()); err != nil {
			return err
		}

		// Repeat if the old generation has flushed more in the meantime.
		if err := next.Flush(); err != nil {
			return err
		}
		if old.store == nil || next.Flushed().Seq >= old.store.Flushed().Seq {
			return nil
		}
	}
}

// waitUntilReady waits until the fold into the next generation has reached the head that the log
// had when the fold began. It fails if that fold or the context ends first.
func (l *Live) waitUntilReady(ctx context.Context, next *store.Store, nextFold *storeFold) error {
	for {
		// Read the channel and the state under one lock: a change after that closes this channel.
		l.states.mu.Lock()
		changed := l.states.changed
		last := l.states.reports[next.Generation()]
		l.states.mu.Unlock()

		if last.state == store.Ready {
			return nil
		}
		select {
		case <-changed:
		case <-nextFold.done:
			return errors.Join(ctx.Err(), projections.ErrStopped, next.Failure())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// swapServing makes the next generation serve as soon as it shows everything that the old one
// shows. It returns the longest time for which it has stopped the old fold.
func (l *Live) swapServing(ctx context.Context, old *serving, next *store.Store) (pause time.Duration, err error) {
	for {
		// Stop the old fold only when the next generation is close behind it.
		if err := next.WaitFor(ctx, old.visibleSeq()); err != nil {
			return 0, err
		}
		held, swapped, err := l.trySwap(ctx, old, next)
		pause = max(pause, held)
		if swapped || err != nil {
			return pause, err
		}
	}
}

// trySwap stops the fold of the old generation, so that its position does not change. If the next
// generation reaches this position within maxHold, trySwap makes it serve and returns true as
// swapped. The old fold then continues. held is the time for which it was stopped.
func (l *Live) trySwap(ctx context.Context, old *serving, next *store.Store) (held time.Duration, swapped bool, err error) {
	if old.store != nil {
		release := old.store.HoldFold()
		defer release()
	}

	// Only the old fold is stopped. The next generation is still being folded.
	began := time.Now()
	holdCtx, cancel := context.WithTimeout(ctx, maxHold)
	defer cancel()

	err = next.WaitFor(holdCtx, old.visibleSeq())
	if err == nil {
		l.setServing(&serving{number: next.Generation(), store: next})
		return time.Since(began), true, nil
	}
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil // only maxHold has passed
	}
	return time.Since(began), false, err
}

// retire ends a cut-over: the next generation serves now, so there is no next one. In a goroutine,
// retire stops the fold of the old generation, closes the old generation once its views are closed,
// and then removes generations that are no longer needed.
func (l *Live) retire(old *serving) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next.Store(nil)
	l.foldedNext = nil
	l.unreadableFile = false

	done := make(chan struct{})
	l.retired = done
	go func() { // Close waits for this goroutine, and closeCtx bounds how long it waits for views
		defer close(done)
		if old.store != nil {
			l.stopFold(old.store)
			if err := old.store.CloseAfter(l.closeCtx.Done()); err != nil {
				l.logger().Warn("the previous generation was not closed well", "generation", old.number, "error", err)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.removeStale(*l.generations.Load(), false)
		l.retired = nil
	}()
}
