package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Fingerprint returns what the store was built with.
func (s *Store) Fingerprint() projections.Fingerprint { return s.fingerprint }

// loosely is how often the files are copied while the fold continues, before it is held.
const unheldCopyAttempts = 3

// Checkpoint makes a copy of the files of the store in dir, which must not exist, and returns the whole position that the
// copy is at: that of the store at the call, or a later one. [Open] opens the copy as it would the store.
//
// Tables are hard links where the file system has them, so a copy takes little time and space at first; it keeps tables on
// disk that the store has compacted away. Reading continues all the time, and so does the fold, in all but rare cases: what
// is flushed ends with a commit at every moment (I3), and only a commit inside of an event that is larger than a batch is
// no whole position. The copy is made again then, at last with the fold held.
//
// It fails with [projections.ErrNotReady] while an event that a crash has cut is not finished. On an error there is no dir.
func (s *Store) Checkpoint(ctx context.Context, dir string) (events.Cursor, error) {
	if s.opts.ReadOnly {
		return events.Cursor{}, errors.New("projections: a store that is open for reading only makes no copies")
	}
	if _, err := s.opts.FS.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return events.Cursor{}, errors.Join(fmt.Errorf("projections: %s is there already", dir), err)
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
		if err := s.removeFailedCopy(dir, errPartial); !errors.Is(err, errPartial) {
			return events.Cursor{}, err
		}
	}
	s.folding.Lock()
	defer s.folding.Unlock()
	if err := s.state.Stopped(); err != nil {
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

var errPartial = errors.New("projections: the copy is inside of an event")

// undoCopy removes a copy that is of no use, because of err.
func (s *Store) removeFailedCopy(dir string, err error) error {
	if err == nil {
		return nil
	}
	if rerr := s.opts.FS.RemoveAll(dir); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// flushAll has everything flushed that is folded by now, and waits for it without holding the fold. It returns where that
// ends.
func (s *Store) flushAll(ctx context.Context) (events.Cursor, error) {
	s.folding.Lock()
	err := s.state.Stopped()
	if err == nil {
		if err = s.flush.startFlush(s); err != nil {
			err = s.state.Fail(err)
		}
	}
	done, cursor := s.flush.flushDone, s.fold.cursor
	s.folding.Unlock()
	if err != nil || done == nil {
		return cursor, err
	}
	select {
	case <-done:
		return cursor, nil
	case <-s.state.Down(): // a flush that fails is retried for ever
		return cursor, s.state.Stopped()
	case <-ctx.Done():
		return cursor, ctx.Err()
	}
}

// copyFiles copies what is flushed, and reports where that ends and whether that is a whole position.
func (s *Store) copyFiles(ctx context.Context, dir string) (cursor events.Cursor, whole bool, err error) {
	if err := s.linkFiles(ctx, dir); err != nil {
		return cursor, false, err
	}
	return s.readCopyPosition(dir)
}

// linkFiles makes a copy of what is flushed, of links where there are any.
func (s *Store) linkFiles(ctx context.Context, dir string) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		s.dbUse.RLock()
		defer s.dbUse.RUnlock()
		err := projections.ErrStopped // also if the storage engine ends the goroutine
		defer func() { done <- err }()
		if s.db != nil && !s.broken.Load() {
			err = s.db.Checkpoint(dir)
		}
	}()
	select {
	case err = <-done:
	case <-s.state.Down():
		if s.broken.Load() { // it may never come back
			return s.state.Stopped()
		}
		err = <-done
	}
	if err != nil {
		return fmt.Errorf("copy the store of %s to %s: %w", s.Name(), dir, err)
	}
	return nil
}

// copyCache is the cache for reading two rows of a copy.
const copyCacheBytes = 1 << 20

// positionOf reads the position of a copy.
func (s *Store) readCopyPosition(dir string) (cursor events.Cursor, whole bool, err error) {
	cache := NewCache(copyCacheBytes)
	defer cache.Unref()
	db, err := pebble.Open(dir, &pebble.Options{
		FS: s.opts.FS, Cache: cache, Merger: pebbleMerger(s.merger), FormatMajorVersion: newFormat, ReadOnly: true,
		ErrorIfNotExists: true, Logger: copyLogger{pebbleLogger{s}},
	})
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

// copyLogger keeps trouble with a copy from stopping the store.
type copyLogger struct{ pebbleLogger }

// Errorf logs details beside the error that is returned.
func (l copyLogger) Errorf(format string, args ...any) { l.log(slog.LevelDebug, format, args) }

// Fatalf does not return. A store that is only read has nothing that is fatal.
func (l copyLogger) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// FileCheck is what [Store.CheckFiles] read.
type FileCheck struct {
	// Tables were read, of so many Bytes.
	Tables int
	Bytes  uint64
	// Damaged names the tables that cannot be read, and why.
	Damaged []string
}

// CheckFiles reads every table of the store from its file, past the cache of blocks, and checks the checksums of all blocks. What
// is folded by now is flushed before. The tables are kept by links in dir, which must not exist and is removed, so that fold and
// compactions continue. Rest is called after each table with the time that it took.
//
// It fails when the files cannot be looked at. Damage is no error.
func (s *Store) CheckFiles(
	ctx context.Context, dir string, rest func(context.Context, time.Duration) error,
) (c FileCheck, err error) {
	if s.opts.ReadOnly {
		return c, errors.New("projections: a store that is open for reading only has no files checked")
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

// checkTable reads all blocks of a table, without a cache.
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
