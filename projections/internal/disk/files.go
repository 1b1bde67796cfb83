// Package disk reads and writes the file that says which generation of a projection serves. It also
// checks the files of a store before Pebble opens them, because Pebble might take some damaged
// stores for an empty store or for an older state.
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

// FS is the file system that has the files of stores.
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

// WriteFile creates or overwrites a file and syncs its content. The caller must also call
// [SyncDir], or a power cut may remove the file.
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

// SyncDir syncs a directory, so that files which were created, renamed or removed in it stay so
// after a power cut.
func SyncDir(fs FS, name string) error {
	dir, err := fs.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// CheckWhole returns [projections.ErrCorrupt] if a directory has tables but no manifest that names
// them. Pebble would open it as an empty store.
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

// DirectoryBytes returns the total size of the files in a directory, without its subdirectories. A
// file that cannot be read counts as 0.
func DirectoryBytes(fs FS, dir string) (n uint64) {
	names, _ := fs.List(dir)
	for _, name := range names {
		if info, err := fs.Stat(fs.PathJoin(dir, name)); err == nil && !info.IsDir() {
			n += uint64(max(0, info.Size()))
		}
	}
	return n
}
