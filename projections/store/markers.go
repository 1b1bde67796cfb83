package store

import (
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/skein-feed/skein/projections/internal/disk"
)

// A marker is an empty file of Pebble whose name has a value: the current manifest, or the format
// of the files. To change the value, Pebble creates the next marker, removes the old one, and then
// syncs the directory once. On a file system that does not keep the order of names, a power cut
// before the sync could leave no marker, or the marker of a manifest whose own name is lost. Pebble
// could not open such a store.

// withOrderedMarkers returns fs with additional syncs of the directory, which order the names: a
// new manifest is durable before its marker is created, and a new marker before the old one is
// removed.
func withOrderedMarkers(fs FS) FS {
	var failure atomic.Pointer[error] // of the first sync before a removal that has failed
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		// Pebble ignores that a marker cannot be removed, so its own sync must fail, too.
		if err := failure.Load(); err != nil && op.Kind == errorfs.OpFileSync {
			return *err
		}

		name := fs.PathBase(op.Path)
		createsManifestMarker := op.Kind == errorfs.OpCreate && strings.HasPrefix(name, "marker.manifest.")
		removesMarker := op.Kind == errorfs.OpRemove && strings.HasPrefix(name, "marker.")
		if !createsManifestMarker && !removesMarker {
			return nil
		}
		err := disk.SyncDir(fs, fs.PathDir(op.Path))
		// Pebble returns the error of a creation itself. That may be one in a copy of the store, whose
		// failure must not stop the store.
		if err != nil && removesMarker {
			failure.CompareAndSwap(nil, &err)
		}
		return err
	}))
}

// withDirectorySyncs returns fs, and calls handleError if a sync of the directory dir fails. If
// handleError returns, the sync returns its error to the caller.
func withDirectorySyncs(fs FS, dir string, handleError func(error)) FS {
	return &directorySyncFS{fs, dir, handleError}
}

// directorySyncFS is a file system that reports failed syncs of one directory.
type directorySyncFS struct {
	FS
	dir         string
	handleError func(error)
}

// OpenDir implements [vfs.FS].
func (fs *directorySyncFS) OpenDir(name string) (vfs.File, error) {
	f, err := fs.FS.OpenDir(name)
	if err != nil || name != fs.dir {
		return f, err
	}
	return &syncedDirectory{f, fs.handleError}, nil
}

// syncedDirectory is the open directory whose failed syncs are reported.
type syncedDirectory struct {
	vfs.File
	handleError func(error)
}

// Sync implements [vfs.File].
func (d *syncedDirectory) Sync() error {
	err := d.File.Sync()
	if err != nil {
		d.handleError(err)
	}
	return err
}
