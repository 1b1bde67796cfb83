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

// FoldHash names what rows depend on besides the log and the set of partitions: the hash of a fingerprint for all partitions.
func (l *Live) FoldHash() string { return l.print.String() }

// ExportPartitions calls do with the rows of some partitions, and with those of the store as a whole, as they are at one position, in the order of
// their keys. Another process makes a store of them ([Live.ImportPartitions]), whose [Live.FoldHash] must be the same. It fails with
// [projections.ErrFingerprint] if that is another one, and with [projections.ErrPartial] if the store does not hold all of the partitions.
func (l *Live) ExportPartitions(ctx context.Context, fold string, of events.Partitions, do func(key, value []byte) error) (err error) {
	s := l.Serving()
	if s == nil || l.Status().Damaged {
		return fmt.Errorf("%w: %s", projections.ErrStopped, l.name)
	}
	if l.FoldHash() != fold {
		return fmt.Errorf("%w: the fold of %s is %s, not %s", projections.ErrFingerprint, l.name, l.FoldHash(), fold)
	}
	fs := l.opts.FS
	dir := fs.PathJoin(l.dir, fmt.Sprint(disk.ShadowPrefix, "given-", l.given.Add(1)))
	defer func() { err = errors.Join(err, fs.RemoveAll(dir)) }()
	if _, err := s.Checkpoint(ctx, dir); err != nil {
		return err
	}
	return store.ExportRows(ctx, fs, dir, l.opts.New(), of, do)
}

// ImportPartitions makes a store of some partitions in a directory, which does not exist, of the rows that [Live.ExportPartitions] of another process
// gives. The caller folds into it, closes it, and takes its files for [store.ResizeCopy].
func (l *Live) ImportPartitions(
	ctx context.Context, dir string, of events.Partitions, give func(do func(key, value []byte) error) error,
) (*store.Store, error) {
	o := l.storeOptions(1)
	o.Dir, o.Listener = dir, store.Listener{}
	return store.ImportRows(ctx, o, of, give)
}
