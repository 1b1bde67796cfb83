package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/overlay"
	"github.com/skein-feed/skein/projections/store/internal/engine"
)

// tableOptions returns the options of Pebble that decide what tables look like. m is the merger of
// the projection, or nil.
func tableOptions(fs FS, p projections.Projection, m *projections.Merger) *pebble.Options {
	o := &pebble.Options{FS: fs, Merger: pebbleMerger(m), FormatMajorVersion: newFormat}
	// DBCompressionGood compresses the last level well, which has most of the rows. It spends less
	// time on upper levels, whose rows are soon written again by a compaction.
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionGood })
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = tableFilter(p)
		o.Levels[i].BlockSize = 16 << 10
	}
	return o
}

// TableLevel is the level of a store for which a table is written. It decides how well the table is
// compressed.
type TableLevel int

// The levels for which tables are written.
const (
	// Temporary is for tables that are soon read and removed. They are compressed as for FirstLevel,
	// and their files are not synced.
	Temporary TableLevel = -1
	// FirstLevel is for tables that become part of a store and are soon compacted.
	FirstLevel TableLevel = 0
	// LastLevel is for tables that become part of a store and stay as they are.
	LastLevel TableLevel = 6
)

// CreateTable creates a table for rows of a projection. The caller must set the rows in the order
// of their keys, and close the writer, which syncs the file unless the table is Temporary.
func CreateTable(fs FS, name string, p projections.Projection, level TableLevel) (*sstable.Writer, error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if level == Temporary {
		f = unsyncedFile{f}
		level = FirstLevel
	}

	o := tableOptions(fs, p, mergerOf(p))
	o.EnsureDefaults()
	writerOptions := o.MakeWriterOptions(int(level), newFormat.MaxTableFormat())
	return sstable.NewWriter(objstorageprovider.NewFileWritable(f), writerOptions), nil
}

// unsyncedFile is a file that is not synced, because nothing reads it after a crash: work that a
// crash has interrupted starts anew and removes old files first.
type unsyncedFile struct{ vfs.File }

// Sync does nothing.
func (unsyncedFile) Sync() error { return nil }

// MergeTables returns an iterator over the rows of several tables of a projection, with lower <=
// key < upper. A nil bound means no bound. No key may be in two of the tables.
func MergeTables(ctx context.Context, fs FS, names []string, p projections.Projection, lower, upper []byte) (*pebble.Iterator, error) {
	// Each file is a level of its own, so the tables may overlap.
	var files [][]sstable.ReadableFile
	for _, name := range names {
		f, err := fs.Open(name)
		if err != nil {
			for _, opened := range files {
				err = errors.Join(err, opened[0].Close())
			}
			return nil, err
		}
		files = append(files, []sstable.ReadableFile{f})
	}

	o := tableOptions(fs, p, mergerOf(p))
	o.EnsureDefaults()
	return pebble.NewExternalIterWithContext(ctx, o, &pebble.IterOptions{LowerBound: lower, UpperBound: upper}, files)
}

// CreateStore creates a store in an empty directory from sets of tables. It moves the files of the
// tables into the store. The tables of a set must not overlap. The sets are added in order, each of
// them atomically. The position must be in the last set: if a crash interrupts CreateStore, what is
// left has no position and is not taken for a complete store (I3).
func CreateStore(ctx context.Context, fs FS, dir string, p projections.Projection, sets ...[]string) (err error) {
	defer recoverFatal(&err)
	o := shortLivedOptions(fs, p)
	// With this limit, Pebble puts the tables of a later set into the level directly above the
	// tables that they overlap, whatever their size. If they were in level 0, a compaction would
	// soon merge them with all other tables and so write the whole store again.
	o.LBaseMaxBytes = 1

	db, err := pebble.Open(dir, o)
	if err != nil {
		return fmt.Errorf("create a store of %s: %w", p.Name(), err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	for _, tables := range sets {
		if len(tables) == 0 {
			continue
		}
		if err := db.Ingest(ctx, tables); err != nil {
			return fmt.Errorf("create a store of %s: %w", p.Name(), err)
		}
	}
	return nil
}

// mergerOf returns the merger of a projection, or nil if it has none.
func mergerOf(p projections.Projection) *projections.Merger {
	if m, ok := p.(projections.MergerProvider); ok {
		merger := m.Merger()
		return &merger
	}
	return nil
}

// EngineMerger returns the merger of a projection in the form that Pebble uses, or nil if the
// projection has none. It is for tools that open the files of a closed store directly.
func EngineMerger(p projections.Projection) *pebble.Merger { return pebbleMerger(mergerOf(p)) }

// overlayMerge returns the function of a merger in the form that the overlay uses, or nil if m is
// nil.
func overlayMerge(m *projections.Merger) overlay.MergeFunc {
	if m == nil {
		return nil
	}
	return m.Merge
}

// pebbleMerger returns a merger in the form that Pebble uses, or nil if m is nil.
func pebbleMerger(m *projections.Merger) *pebble.Merger {
	if m == nil {
		return nil // Pebble then uses its default merger, but a projection without a merger merges no row
	}
	return engine.Merger(m.Name, m.Merge, func(key []byte, err error) error {
		return &projections.UnreadableRowError{Key: key, Err: err}
	})
}

// tableFilter returns the Bloom filter of the tables of a projection.
func tableFilter(p projections.Projection) pebble.FilterPolicy {
	var excluded []byte
	if walked, ok := p.(projections.IteratedOnly); ok {
		for _, tag := range walked.IteratedTags() {
			excluded = append(excluded, byte(tag))
		}
	}
	return engine.Filter(excluded)
}
