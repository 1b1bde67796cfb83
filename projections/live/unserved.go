package live

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/skein-feed/skein/projections/internal/disk"
)

// RemoveUnserved removes the stores of all projections that are not among those given, which must
// be all projections that this process has. It returns their names. Such stores are left if another
// version of the program has served or prepared a projection that this version does not have. They
// do not fold the log, so after an erasure they have rows of the user, and could not continue with
// the scrubbed log.
func RemoveUnserved(served []*Live) (removed []string, err error) {
	if len(served) == 0 {
		return nil, nil
	}
	// All stores of a process are in one directory.
	fs := served[0].opts.FS
	dir := served[0].opts.Dir
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}

	slices.Sort(names)
	for _, name := range names {
		// The temporary directories in this place belong to snapshots, which remove them.
		isServed := slices.ContainsFunc(served, func(l *Live) bool { return l.name == name })
		if isServed || strings.HasPrefix(name, disk.ShadowPrefix) {
			continue
		}
		path := fs.PathJoin(dir, name)
		info, statErr := fs.Stat(path)
		if statErr == nil && !info.IsDir() {
			continue
		}
		content, listErr := fs.List(path)
		failure := errors.Join(statErr, listErr)
		switch {
		case errors.Is(failure, os.ErrNotExist), errors.Is(failure, os.ErrPermission):
			continue // skein can list what it has made, so this is lost+found, for example
		case failure != nil:
			err = errors.Join(err, failure)
			continue
		}
		if !slices.ContainsFunc(content, isOfProjection) {
			continue // an operator or the file system has made the directory
		}
		if removeErr := fs.RemoveAll(path); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		removed = append(removed, name)
	}

	// Without a sync, a power cut could bring the directories back, and no start removes them.
	return removed, errors.Join(err, disk.SyncDir(fs, dir))
}

// isOfProjection reports whether a file or directory of this name is one that a Live or a
// [Preparation] makes in the directory of a projection.
func isOfProjection(name string) bool {
	_, isGeneration := disk.GenerationNumber(name)
	isTemporary := strings.HasPrefix(name, disk.ShadowPrefix)
	return isGeneration || isTemporary || name == disk.GenerationsFile || name == disk.PreparedDir
}
