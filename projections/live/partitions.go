package live

import (
	"context"
	"errors"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// exportPrefix begins the names of the directories of copies that are exported.
const exportPrefix = disk.ShadowPrefix + "given-"

// FoldHash returns a hash of everything that rows depend on, except the log and the set of
// partitions. It is the hash of a fingerprint for all partitions. Two processes can exchange rows
// if it is the same in both.
func (l *Live) FoldHash() string { return l.fingerprint.String() }

// ExportPartitions calls do with the rows of the wanted partitions, and with those of the store as
// a whole, in the order of their keys. All are rows at one position. [Live.ImportPartitions] of
// another process makes a store of them. foldHash is the [Live.FoldHash] of that process.
//
// It fails with [projections.ErrFingerprint] if the fold hashes differ, and with
// [projections.ErrPartial] if the serving generation does not hold all of the partitions.
func (l *Live) ExportPartitions(
	ctx context.Context, foldHash string, wanted events.Partitions, do func(key, value []byte) error,
) (err error) {
	s := l.Serving()
	if s == nil || l.Status().Damaged {
		return fmt.Errorf("%w: %s", projections.ErrStopped, l.name)
	}
	if l.FoldHash() != foldHash {
		return fmt.Errorf("%w: the fold of %s is %s, not %s", projections.ErrFingerprint, l.name, l.FoldHash(), foldHash)
	}

	// Export from a copy, whose position does not change. If the process dies, the next Open
	// removes the directory because of its prefix.
	fs := l.opts.FS
	l.mu.Lock()
	l.exportCount++
	dir := fs.PathJoin(l.dir, fmt.Sprint(exportPrefix, l.exportCount))
	l.exportDirs[dir] = true
	l.mu.Unlock()
	defer func() {
		err = errors.Join(err, fs.RemoveAll(dir))
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.exportDirs, dir)
	}()
	if _, err := s.Checkpoint(ctx, dir); err != nil {
		return err
	}
	return store.ExportRows(ctx, fs, dir, l.opts.New(), wanted, do)
}

// ImportPartitions makes a store that holds the given partitions, in a directory that does not
// exist, and opens it. eachRow calls its argument with the rows that [Live.ExportPartitions] of
// another process has produced, in the same order. The caller folds into the store, closes it, and
// passes its directory to [store.ResizeCopy].
func (l *Live) ImportPartitions(
	ctx context.Context, dir string, held events.Partitions, eachRow func(do func(key, value []byte) error) error,
) (*store.Store, error) {
	o := l.storeOptions(1)
	o.Dir = dir
	o.Listener = store.Listener{} // it does not serve
	return store.ImportRows(ctx, o, held, eachRow)
}
