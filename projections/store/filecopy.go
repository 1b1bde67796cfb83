package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Fingerprint returns the fingerprint that the store was built with.
func (s *Store) Fingerprint() projections.Fingerprint { return s.fingerprint }

// unheldCopyAttempts is how often Checkpoint tries to copy the files while the fold continues,
// before it stops the fold.
const unheldCopyAttempts = 3

// Checkpoint copies the files of the store into dir, which must not exist. It returns the position
// of the copy, which is a whole position: that of the store at the time of the call, or a later
// one. [Open] can open the copy like any store.
//
// Where the file system supports it, tables are hard links, so a copy at first takes little time
// and space. It later keeps tables on disk that the store has compacted away.
//
// Queries continue during the copy, and usually the fold does, too. The flushed files always end
// with a whole commit (I3), but an envelope that does not fit into one batch takes several commits.
// If the copy ends with a commit inside an envelope, Checkpoint copies again, at last with the fold
// stopped.
//
// It fails with [projections.ErrNotReady] while an event that a crash has interrupted is not folded
// to its end. After an error it removes dir, unless dir existed before.
func (s *Store) Checkpoint(ctx context.Context, dir string) (events.Cursor, error) {
	if s.opts.ReadOnly {
		return events.Cursor{}, errors.New("store: a store that is open for reading only makes no copies")
	}
	if _, err := s.opts.FS.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return events.Cursor{}, errors.Join(fmt.Errorf("store: %s is there already", dir), err)
	}

	for range unheldCopyAttempts {
		from, err := s.flushAll(ctx)
		if err != nil {
			return events.Cursor{}, err
		}
		cursor, whole, err := s.copyFiles(ctx, dir)
		if err == nil && whole && cursor.Seq < from.Seq {
			err = fmt.Errorf("%w: the copy is at %d, %d was flushed", projections.ErrCorrupt, cursor.Seq, from.Seq)
		}
		if err != nil || whole {
			return cursor, s.removeFailedCopy(dir, err)
		}
		// The copy ends inside an envelope, so make another one.
		if err := s.opts.FS.RemoveAll(dir); err != nil {
			return events.Cursor{}, err
		}
	}

	// All attempts have hit the inside of an envelope. Stop the fold between two calls, where it is
	// at a whole position unless a crash has interrupted an event.
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.state.StopError(); err != nil {
		return events.Cursor{}, err
	}
	if s.fold.progress != (progress{}) {
		return events.Cursor{}, projections.ErrNotReady
	}
	if err := s.flush.flushAndWait(s); err != nil {
		return events.Cursor{}, s.state.Fail(err)
	}
	cursor, whole, err := s.copyFiles(ctx, dir)
	if err == nil && !whole {
		err = fmt.Errorf("%w: the copy is not at a whole position", projections.ErrCorrupt)
	}
	return cursor, s.removeFailedCopy(dir, err)
}

// removeFailedCopy removes the copy and returns err. It does nothing if err is nil.
func (s *Store) removeFailedCopy(dir string, err error) error {
	if err == nil {
		return nil
	}
	if rerr := s.opts.FS.RemoveAll(dir); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// flushAll flushes everything that is folded at the time of the call, and returns the position of
// that. It lets the fold continue while it waits for the disk.
func (s *Store) flushAll(ctx context.Context) (events.Cursor, error) {
	s.folding.Lock()
	err := s.state.StopError()
	if err == nil {
		if err = s.flush.startFlush(s); err != nil {
			err = s.state.Fail(err)
		}
	}
	done := s.flush.flushDone
	cursor := s.fold.cursor
	s.folding.Unlock()

	// Wait without the lock, so that the fold continues.
	if err != nil || done == nil {
		return cursor, err
	}
	select {
	case <-done:
		return cursor, nil
	case <-s.state.Down():
		// Pebble retries a failed flush forever, so done would never be closed.
		return cursor, s.state.StopError()
	case <-ctx.Done():
		return cursor, ctx.Err()
	}
}

// copyFiles copies the flushed files. It returns the last whole position of the copy, and whether
// the copy has nothing beyond it.
func (s *Store) copyFiles(ctx context.Context, dir string) (cursor events.Cursor, whole bool, err error) {
	if err := s.linkFiles(ctx, dir); err != nil {
		return cursor, false, err
	}
	return s.readCopyPosition(dir)
}

// linkFiles copies the flushed files, by hard links where the file system supports them.
func (s *Store) linkFiles(ctx context.Context, dir string) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}

	s.dbUse.RLock()
	defer s.dbUse.RUnlock()
	if s.db == nil {
		err = projections.ErrStopped
	} else {
		db := s.db
		err = s.callPebble(func() (err error) {
			defer recoverFatal(&err) // Pebble panics if it cannot sync the directory of the copy
			return db.Checkpoint(dir)
		})
	}
	if err != nil {
		return fmt.Errorf("copy the store of %s to %s: %w", s.Name(), dir, err)
	}
	return nil
}

// copyCacheBytes is the size of the block cache for a copy. It can be small, because only two rows
// are read.
const copyCacheBytes = 1 << 20

// readCopyPosition returns the last whole position of a copy, and whether the copy has nothing
// beyond it.
func (s *Store) readCopyPosition(dir string) (cursor events.Cursor, whole bool, err error) {
	cache := NewCache(copyCacheBytes)
	defer cache.Unref()
	o := shortLivedOptions(s.opts.FS, s.opts.Projection)
	o.Cache = cache
	o.ReadOnly = true
	o.ErrorIfNotExists = true
	db, err := pebble.Open(dir, o)
	if err != nil {
		return cursor, false, fmt.Errorf("open the copy %s: %w", dir, err)
	}
	defer func() {
		err = errors.Join(err, db.Close(), s.opts.FS.Remove(s.opts.FS.PathJoin(dir, "LOCK")))
	}()
	if built, err := readRow(db, fingerprintKey); err != nil || built == nil {
		return cursor, false, errors.Join(err, fmt.Errorf("%w: a copy without a fingerprint", projections.ErrCorrupt))
	}

	row, err := readRow(db, checkpointKey)
	if err != nil || row == nil { // nothing is folded yet
		return cursor, err == nil, err
	}
	cursor, part, err := parseCheckpoint(row)
	return cursor, part == (progress{}), err
}

// FileCheck is the result of [Store.CheckFiles].
type FileCheck struct {
	// Tables is the number of tables that were read.
	Tables int
	// Bytes is their total size.
	Bytes uint64
	// Damaged has one text for each table that cannot be read: its path and the error. If a file of
	// the store is missing, no table is read, and Damaged has only that error.
	Damaged []string
}

// CheckFiles flushes the store and then checks the checksums of all blocks of all tables. It reads
// the files directly and not through the block cache. Fold and compactions continue meanwhile,
// because hard links in dir keep the tables. CheckFiles removes dir before and after the check. It
// calls rest after each table with the time that reading the table took, and stops if rest returns
// an error.
//
// It returns an error if the check cannot be completed. Damaged tables are part of the result and
// not an error.
func (s *Store) CheckFiles(
	ctx context.Context, dir string, rest func(context.Context, time.Duration) error,
) (c FileCheck, err error) {
	if s.opts.ReadOnly {
		return c, errors.New("store: a store that is open for reading only has no files checked")
	}
	if err := s.opts.FS.RemoveAll(dir); err != nil {
		return c, err
	}
	if _, err := s.flushAll(ctx); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.opts.FS.RemoveAll(dir)) }()
	if err := s.linkFiles(ctx, dir); errors.Is(err, fs.ErrNotExist) {
		c.Damaged = append(c.Damaged, err.Error())
		return c, nil
	} else if err != nil {
		return c, err
	}

	names, err := s.opts.FS.List(dir)
	if err != nil {
		return c, err
	}
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}

		began := time.Now()
		size, err := s.checkTable(ctx, s.opts.FS.PathJoin(dir, name))
		c.Tables++
		c.Bytes += size
		if err != nil {
			c.Damaged = append(c.Damaged, fmt.Sprintf("%s: %v", s.opts.FS.PathJoin(s.dir, name), err))
		}
		if err := rest(ctx, time.Since(began)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// checkTable checks all blocks of a table without using a cache. It returns the size of the file.
func (s *Store) checkTable(ctx context.Context, name string) (size uint64, err error) {
	f, err := s.opts.FS.Open(name)
	if err != nil {
		return 0, err
	}
	if info, err := f.Stat(); err == nil {
		size = uint64(max(0, info.Size()))
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return size, errors.Join(err, f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, sstable.ReaderOptions{Merger: pebbleMerger(s.merger)})
	if err != nil {
		return size, errors.Join(err, readable.Close())
	}
	return size, errors.Join(r.ValidateBlockChecksums(), r.Close())
}
