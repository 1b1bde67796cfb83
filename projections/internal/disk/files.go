// Package disk has what projections do with files apart from Pebble:
//
//   - It reads and writes the file GENERATIONS, which says which generation of a projection is live
//     (generations.go), and the file PREPARED, which marks a generation that another process has
//     prepared and that is not in use yet (prepared.go).
//   - It checks the files of a store before Pebble opens them, because Pebble opens some damaged
//     stores without an error, as an empty store or as an older state (CheckWhole, CheckManifest).
//   - It has helpers that read, write and sync files on a Pebble file system (this file).
package disk

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
)

// FS is the interface of Pebble to a file system. This package reaches files only through an FS,
// so that tests can use a file system in memory and simulate power cuts.
type FS = vfs.FS

// ReadFile returns the content of a file. If the file does not exist, the error wraps
// os.ErrNotExist.
func ReadFile(fs FS, name string) (data []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}

// WriteFile creates or replaces a file and syncs its content. The caller must then call [SyncDir]
// for the directory of the file, because a power cut may otherwise remove the file.
//
// WriteFile is not atomic: an error or a crash may leave an incomplete file, and the old content is
// lost. A caller that must keep the old content writes to another name and renames that file.
func WriteFile(fs FS, name string, data []byte) (err error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}

// SyncDir syncs a directory. When it has returned nil, a power cut does not undo that files were
// created, renamed or removed in the directory. SyncDir does not sync the content of the files.
func SyncDir(fs FS, name string) error {
	dir, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// CheckWhole returns [projections.ErrCorrupt] if the directory of a store has tables, but not the
// marker file that names the current manifest. Pebble would create an empty store in such a
// directory and delete the tables as obsolete files. Call CheckWhole before Pebble opens the store.
//
// CheckWhole returns nil if the directory does not exist or has no tables. It does not look for the
// manifest that the marker names: if that manifest is missing, Pebble itself returns an error. If
// the names of the markers cannot be understood, CheckWhole returns the error of Pebble, which is
// not a [projections.ErrCorrupt].
func CheckWhole(fs FS, dir string) error {
	// A directory that cannot be listed counts as empty. Pebble lists the directory, too, and
	// returns the error when it opens the store.
	names, _ := fs.List(dir)
	if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".sst") }) {
		return nil
	}
	desc, err := pebble.Peek(dir, fs)
	if err == nil && !desc.Exists {
		return fmt.Errorf("%w: %s has tables but no manifest", projections.ErrCorrupt, dir)
	}
	return err
}

// DirectoryBytes returns the total size of the files in a directory, without its subdirectories. It
// ignores errors: a file whose size cannot be found out counts as 0, for example because Pebble has
// just removed the file, and a directory that cannot be listed has the size 0. So the result may be
// too small.
func DirectoryBytes(fs FS, dir string) (n uint64) {
	names, _ := fs.List(dir)
	for _, name := range names {
		if info, err := fs.Stat(fs.PathJoin(dir, name)); err == nil && !info.IsDir() {
			n += uint64(max(0, info.Size()))
		}
	}
	return n
}
