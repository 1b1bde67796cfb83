// Package disk reads and writes the files of a store beside those of the storage engine. They say which generation serves. It also
// checks, before the engine opens a store, that the engine would not mistake an older state for the present one.
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

// FS is the file system under a store.
type FS = vfs.FS

// ReadFile returns the content of a file.
func ReadFile(fs FS, name string) (data []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}

// WriteFile creates or overwrites a file and syncs its content. Its entry in the directory is durable only after [SyncDir].
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

// SyncDir makes the entries of a directory durable: files that were created in it, renamed or removed.
func SyncDir(fs FS, name string) error {
	dir, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// CheckWhole returns [projections.ErrCorrupt] for a directory that has tables but no manifest to name them: the storage engine would open it as an
// empty store.
func CheckWhole(fs FS, dir string) error {
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

// DirectoryBytes returns the bytes of all files in a directory, without its subdirectories. Files that cannot be read count as 0.
func DirectoryBytes(fs FS, dir string) (n uint64) {
	names, _ := fs.List(dir)
	for _, name := range names {
		if info, err := fs.Stat(fs.PathJoin(dir, name)); err == nil && !info.IsDir() {
			n += uint64(max(0, info.Size()))
		}
	}
	return n
}
