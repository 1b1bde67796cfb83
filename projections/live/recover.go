package live

import (
	"context"
	"fmt"

	"github.com/skein-feed/skein/projections/store"
)

// Recover makes a projection continue that an error of the disk has stopped, once the disk works
// again or has free space. Nothing is rebuilt, because the disk has the rows of the end of some
// commit (I3). Recover copies the files to a next generation, tables by hard links, and cuts over
// to it. The new generation then folds what is missing.
//
// It fails if the projection was not stopped by the disk, with [ErrBuilding] if there is a next
// generation already, and with [projections.ErrCorrupt] if the files are damaged. If Run is not
// running, it fails with [ErrBehind] if the files lack something that was shown.
func (l *Live) Recover(ctx context.Context) error {
	old := l.serving.Load()
	if old.store == nil || old.store.Failure() == nil || old.isDamaged() {
		return fmt.Errorf("live: %s was not stopped by the disk", l.name)
	}
	next, err := l.openStoppedCopy(ctx, old)
	if err != nil {
		return fmt.Errorf("open generation %d of %s again: %w", old.number, l.name, err)
	}
	_, err = l.CutOver(ctx, next)
	return err
}

// openStoppedCopy copies what the old generation has on disk, and opens the copy as the next
// generation.
func (l *Live) openStoppedCopy(ctx context.Context, old *serving) (*store.Store, error) {
	if err := l.lockForNext(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()

	o, err := l.nextOptionsLocked()
	if err != nil {
		return nil, err
	}
	if err := store.CopyStopped(o.FS, old.store.Dir(), store.GenerationDir(o, o.Generation)); err != nil {
		return nil, err
	}
	return l.openNextLocked(o)
}
