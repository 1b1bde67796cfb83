package projections

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/sstable"
)

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
	r, err := sstable.NewReader(ctx, readable, sstable.ReaderOptions{Merger: s.merger.pebble()})
	if err != nil {
		return size, errors.Join(err, readable.Close())
	}
	return size, errors.Join(r.ValidateBlockChecksums(), r.Close())
}

// CheckFiles checks the files of the generation that serves, see [Store.CheckFiles].
func (l *Live) CheckFiles(
	ctx context.Context, dir string, rest func(context.Context, time.Duration) error,
) (c FileCheck, err error) {
	err = l.onStore(func(s *Store) (err error) {
		c, err = s.CheckFiles(ctx, dir, rest)
		return err
	})
	return c, err
}
