package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections/internal/disk"
)

// Recover makes a projection continue that an error of the disk has stopped, once the disk works again or has room. The disk has the state
// at the end of some commit (I3), so nothing is rebuilt: the files become those of the next generation (tables by hard links), which
// folds what is missing and takes the place of the one that failed.
//
// It fails if the projection has not stopped so, with [ErrBuilding] while a next generation is open, and with [ErrCorrupt] if the
// files are damaged. While Run is not running, it fails with [ErrBehind] if the files are behind of what was shown.
func (l *Live) Recover(ctx context.Context) error {
	old := l.serving.Load()
	if old.store == nil || old.store.life.Failure() == nil || old.damaged() {
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
func (l *Live) again(ctx context.Context, old *serving) (*Store, error) {
	if err := l.lockFree(ctx); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	o, err := l.nextLocked()
	if err != nil {
		return nil, err
	}
	if err := copyStore(o.FS, old.store.dir, generationDir(o, o.Generation)); err != nil {
		return nil, err
	}
	return l.openNext(o)
}

// copyStore copies the files of a store that writes no more, though it may still remove some: the manifest is read first, and
// a table that it names and that is gone by then fails the opening. The markers are made last: without them it is no store.
func copyStore(fs FS, from, to string) error {
	desc, err := pebble.Peek(from, fs)
	if err != nil {
		return err
	}
	if !desc.Exists {
		return fmt.Errorf("%w: %s has no manifest", ErrCorrupt, from)
	}
	manifest, err := disk.ReadFile(fs, desc.ManifestFilename)
	if err != nil {
		return err
	}
	names, err := fs.List(from)
	if err != nil {
		return err
	}
	if err := fs.MkdirAll(to, 0o700); err != nil {
		return err
	}
	var markers []string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker."):
			markers = append(markers, name)
		case strings.HasSuffix(name, ".sst"), strings.HasPrefix(name, "OPTIONS-"):
			if err := vfs.LinkOrCopy(fs, fs.PathJoin(from, name), fs.PathJoin(to, name)); err != nil {
				return err
			}
		}
	}
	if err := disk.WriteFile(fs, fs.PathJoin(to, fs.PathBase(desc.ManifestFilename)), manifest); err != nil {
		return err
	}
	if err := disk.SyncDir(fs, to); err != nil {
		return err
	}
	for _, name := range markers {
		if err := disk.WriteFile(fs, fs.PathJoin(to, name), nil); err != nil {
			return err
		}
	}
	return errors.Join(disk.SyncDir(fs, to), disk.SyncDir(fs, fs.PathDir(to)))
}
