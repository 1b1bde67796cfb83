// Package disk reads and writes the files of a store that the storage engine does not: which generation serves, and whether
// what is there can be opened without taking an older state for the present one.
package disk

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system under a store.
type FS = vfs.FS

// ErrCorrupt means that files are damaged, or that a row is one that no fold can have written.
var ErrCorrupt = errors.New("projections: corrupt store")

// ReadFile returns the content of a file.
func ReadFile(fs FS, name string) (data []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}

// WriteFile makes a file with this content and syncs it. That the directory has it is durable after [SyncDir].
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

// SyncDir makes durable which files a directory has.
func SyncDir(fs FS, name string) error {
	dir, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// CheckWhole refuses a directory with tables and without the file that says which of them count: the storage engine would
// take it for an empty store.
func CheckWhole(fs FS, dir string) error {
	names, _ := fs.List(dir)
	if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, ".sst") }) {
		return nil
	}
	desc, err := pebble.Peek(dir, fs)
	if err == nil && !desc.Exists {
		return fmt.Errorf("%w: %s has tables but no manifest", ErrCorrupt, dir)
	}
	return err
}

// DirectoryBytes returns the sizes of the files of a directory, without those in directories below it.
func DirectoryBytes(fs FS, dir string) (n uint64) {
	names, _ := fs.List(dir)
	for _, name := range names {
		if info, err := fs.Stat(fs.PathJoin(dir, name)); err == nil && !info.IsDir() {
			n += uint64(max(0, info.Size()))
		}
	}
	return n
}
