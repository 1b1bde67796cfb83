package live

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/projections/store"
)

// Recover makes a projection continue that an error of the disk has stopped, once the disk works again or has room. The disk has the state
// at the end of some commit (I3), so nothing is rebuilt: the files become those of the next generation (tables by hard links), which
// folds what is missing and takes the place of the one that failed.
//
// It fails if the projection has not stopped so, with [ErrBuilding] while a next generation is open, and with [projections.ErrCorrupt] if the
// files are damaged. While Run is not running, it fails with [ErrBehind] if the files are behind of what was shown.
func (l *Live) Recover(ctx context.Context) error {
	old := l.serving.Load()
	if old.store == nil || old.store.Failure() == nil || old.damaged() {
		return fmt.Errorf("projections: %s was not stopped by the disk", l.name)
	}
	next, err := l.again(ctx, old)
	if err != nil {
		return fmt.Errorf("open generation %d of %s again: %w", old.number, l.name, err)
	}
	_, err = l.CutOver(ctx, next)
	return err
}

// again opens the next generation as a copy of what the old one has on disk.
func (l *Live) again(ctx context.Context, old *serving) (*store.Store, error) {
	if err := l.lockFree(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	o, err := l.nextLocked()
	if err != nil {
		return nil, err
	}
	if err := store.CopyStopped(o.FS, old.store.Dir(), store.GenerationDir(o, o.Generation)); err != nil {
		return nil, err
	}
	return l.openNext(o)
}
