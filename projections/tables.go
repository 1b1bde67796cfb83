package projections

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// tableOptions are those of the storage engine as far as they decide what tables look like.
func tableOptions(fs FS, p Projection, m *Merger) *pebble.Options {
	o := &pebble.Options{FS: fs, Merger: m.pebble(), FormatMajorVersion: newFormat}
	// Most rows are in the last level, and are compressed with care there; those that will be written again soon are not.
	o.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionGood })
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = newTableFilter(p)
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

// CreateTable begins a table of rows of a projection, which are to be set in the order of their keys. The file is synced when the
// writer is closed.
func CreateTable(fs FS, name string, p Projection, level TableLevel) (*sstable.Writer, error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	o := tableOptions(fs, p, mergerOf(p))
	o.EnsureDefaults()
	return sstable.NewWriter(objstorageprovider.NewFileWritable(f), o.MakeWriterOptions(int(level), newFormat.MaxTableFormat())), nil
}

// OpenTable opens a table of rows of a projection.
func OpenTable(ctx context.Context, fs FS, name string, p Projection) (*sstable.Reader, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	o := tableOptions(fs, p, mergerOf(p))
	o.EnsureDefaults()
	r, err := sstable.NewReader(ctx, readable, o.MakeReaderOptions())
	if err != nil {
		return nil, errors.Join(err, readable.Close())
	}
	return r, nil
}

// CreateStore makes a store in an empty directory out of sets of tables, whose files it takes. The tables of a set do not overlap.
// A store has all of a set or nothing, and a later set only if it has those before: the last has the position, so a store without it is
// not taken for one (I3).
func CreateStore(ctx context.Context, fs FS, dir string, p Projection, sets ...[]string) (err error) {
	o := tableOptions(fs, p, mergerOf(p))
	o.DisableWAL, o.DisableAutomaticCompactions, o.Logger = true, true, quietEngine{}
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
