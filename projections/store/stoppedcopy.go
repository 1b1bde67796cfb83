package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
)

// CopyStopped copies the files of a store that has stopped to the directory to. The store must not
// write any more, but it may still remove obsolete tables meanwhile. CopyStopped reads the manifest
// before it lists the tables. If a table that the manifest names is removed in between, the copy
// cannot be opened, so no row is silently missing.
//
// CopyStopped creates the marker files last. Pebble finds the manifest through them, so an
// incomplete copy is not taken for a store.
func CopyStopped(fs FS, from, to string) error {
	desc, err := pebble.Peek(from, fs)
	if err != nil {
		return err
	}
	if !desc.Exists {
		return fmt.Errorf("%w: %s has no manifest", projections.ErrCorrupt, from)
	}
	manifest, err := disk.ReadFile(fs, desc.ManifestFilename)
	if err != nil {
		return err
	}

	names, err := fs.List(from)
	if err != nil {
		return err
	}
	if err := fs.MkdirAll(to, 0o700); err != nil {
		return err
	}
	var markers []string
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, "marker."):
			markers = append(markers, name)
		case strings.HasSuffix(name, ".sst"), strings.HasPrefix(name, "OPTIONS-"):
			if err := vfs.LinkOrCopy(fs, fs.PathJoin(from, name), fs.PathJoin(to, name)); err != nil {
				return err
			}
		}
	}
	if err := disk.WriteFile(fs, fs.PathJoin(to, fs.PathBase(desc.ManifestFilename)), manifest); err != nil {
		return err
	}

	// Sync everything else before the markers, so that after a power cut there is no marker without
	// the files that it stands for.
	if err := disk.SyncDir(fs, to); err != nil {
		return err
	}
	for _, name := range markers {
		if err := disk.WriteFile(fs, fs.PathJoin(to, name), nil); err != nil {
			return err
		}
	}
	return errors.Join(disk.SyncDir(fs, to), disk.SyncDir(fs, fs.PathDir(to)))
}
