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

// tableOptions are those of the storage engine as far as they decide what tables look like.
func tableOptions(fs FS, p projections.Projection, m *projections.Merger) *pebble.Options {
	o := &pebble.Options{FS: fs, Merger: pebbleMerger(m), FormatMajorVersion: newFormat}
	// Most rows are in the last level, and are compressed with care there; those that will be written again soon are not.
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionGood })
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = tableFilter(p)
		o.Levels[i].BlockSize = 16 << 10
	}
	return o
}

// TableLevel says for which level of a store a table is written: how well it is compressed.
type TableLevel int

// The levels of tables.
const (
	// FirstLevel is for tables that will soon be read and removed.
	FirstLevel TableLevel = 0
	// LastLevel is for those that stay.
	LastLevel TableLevel = 6
)

// CreateTable begins a table of rows of a projection, which are to be set in the order of their keys. When the writer is closed, the file
// of a table that stays is synced.
func CreateTable(fs FS, name string, p projections.Projection, level TableLevel) (*sstable.Writer, error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if level == FirstLevel {
		f = unsynced{f}
	}
	o := tableOptions(fs, p, mergerOf(p))
	o.EnsureDefaults()
	return sstable.NewWriter(objstorageprovider.NewFileWritable(f), o.MakeWriterOptions(int(level), newFormat.MaxTableFormat())), nil
}

// unsynced is a file that is never read after a crash: whoever writes it again removes it first.
type unsynced struct{ vfs.File }

func (unsynced) Sync() error { return nil }

// MergeTables returns an iterator over the rows of tables of a projection, which have no key in common, with lower <= key < upper. A nil
// bound means there is none.
func MergeTables(ctx context.Context, fs FS, names []string, p projections.Projection, lower, upper []byte) (*pebble.Iterator, error) {
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

// CreateStore makes a store in an empty directory out of sets of tables, whose files it takes. The tables of a set do not overlap.
// A store has all of a set or nothing, and a later set only if it has those before: the last has the position, so a store without it is
// not taken for one (I3).
func CreateStore(ctx context.Context, fs FS, dir string, p projections.Projection, sets ...[]string) (err error) {
	o := tableOptions(fs, p, mergerOf(p))
	o.DisableWAL, o.DisableAutomaticCompactions, o.Logger = true, true, quietEngine{}
	// Whatever their size, tables of a later set are put into the level above those that they overlap. From level 0 they would soon be
	// merged with all the others: the whole store would be written again.
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

// mergerOf returns the merger of a projection; nil means it has none.
func mergerOf(p projections.Projection) *projections.Merger {
	if m, ok := p.(projections.Merging); ok {
		merger := m.Merger()
		return &merger
	}
	return nil
}

// EngineMerger returns the merger of a projection as the storage engine calls it, for tools that open the files of a closed
// store themselves; nil means the projection has none.
func EngineMerger(p projections.Projection) *pebble.Merger { return pebbleMerger(mergerOf(p)) }

// overlayMerge is a merger as the overlay calls it.
func overlayMerge(m *projections.Merger) overlay.MergeFunc {
	if m == nil {
		return nil
	}
	return m.Merge
}

// pebbleMerger is a merger as the storage engine calls it.
func pebbleMerger(m *projections.Merger) *pebble.Merger {
	if m == nil {
		return nil // the default, which no row is written for
	}
	return engine.Merger(m.Name, m.Merge, func(key []byte, err error) error { return &projections.UnreadableRowError{Key: key, Err: err} })
}

// tableFilter is the Bloom filter of the tables of a projection.
func tableFilter(p projections.Projection) pebble.FilterPolicy {
	var walked []byte
	if w, ok := p.(projections.Walked); ok {
		for _, tag := range w.Walked() {
			walked = append(walked, byte(tag))
		}
	}
	return engine.Filter(walked)
}
