package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/skein-feed/skein/projections"
)

const (
	// GenerationsFile is the name of the file that says which generation is live. It is in the
	// directory that has the directories of the generations. Without the file, the highest
	// generation is live.
	GenerationsFile = "GENERATIONS"
	// generationsVersion is the version of the format of the file.
	generationsVersion = 1
	// ShadowPrefix begins the names of temporary directories. The next start removes those that a
	// crash has left.
	ShadowPrefix = "shadow-"
)

// Generations says which generations of a projection are in use. Directories of other generations
// are removed. That is safe, because the file is written before a second directory is created, and
// again before a directory is removed. At every moment exactly one generation is live, and it is
// complete, because a generation becomes live only when its rows are on disk.
type Generations struct {
	Version int `json:"version"`
	// Live is the number of the generation that serves, from 1.
	Live uint32 `json:"live"`
	// Previous is the generation that served before and is kept for a rollback. 0 means none. Its
	// JSON name is older than the field name.
	Previous uint32 `json:"former,omitempty"`
	// Partitions is the set of partitions that the live generation holds, in the form of its
	// fingerprint. A rebuild uses it if the rows cannot be read. Empty means all.
	Partitions string `json:"partitions,omitempty"`
}

// has reports whether a generation is in use.
func (g Generations) has(n uint32) bool { return n == g.Live || n == g.Previous }

// ReadGenerations reads the file of generations in the directory of a projection. found reports
// whether there is one. Without it, the highest generation that has a directory is live, or 1 if
// none has. ReadGenerations fails with [projections.ErrCorrupt] if the file cannot be decoded. It
// fails with another error if the file has another version.
func ReadGenerations(fs FS, dir string) (g Generations, found bool, err error) {
	name := fs.PathJoin(dir, GenerationsFile)
	data, err := ReadFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return Generations{Live: max(1, slices.Max(append(ListGenerations(fs, dir), 0)))}, false, nil
	}
	if err != nil {
		return g, false, err
	}

	if err := json.Unmarshal(data, &g); err != nil {
		return Generations{}, true, fmt.Errorf("%w: %s: %w", projections.ErrCorrupt, name, err)
	}
	if g.Version != generationsVersion {
		return Generations{}, true, fmt.Errorf("%s: version %d, this program knows %d", name, g.Version, generationsVersion)
	}
	if g.Live == 0 || g.Live == g.Previous {
		return Generations{}, true, fmt.Errorf("%w: %s: %s", projections.ErrCorrupt, name, data)
	}
	return g, true, nil
}

// WriteGenerations atomically replaces the file of generations. After a power cut, either the old
// or the new file is there, complete, and it is the new one if WriteGenerations had returned nil.
// After an error it may be either. WriteGenerations syncs the content before it renames the file,
// because otherwise a power cut could leave an empty file with the final name. It syncs the
// directory last, so that the rename is durable. Package atomicfile does the same, but not on a
// file system of which tests cut the power.
func WriteGenerations(fs FS, dir string, g Generations) error {
	g.Version = generationsVersion
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	name := fs.PathJoin(dir, GenerationsFile)
	next := name + ".new"
	if err := WriteFile(fs, next, append(data, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", next, err)
	}
	if err := fs.Rename(next, name); err != nil {
		return err
	}
	return SyncDir(fs, dir)
}

// GenerationNumber returns the number of a generation whose directory has this name. ok is false if
// this is not the name of the directory of a generation.
func GenerationNumber(name string) (n uint32, ok bool) {
	parsed, err := strconv.ParseUint(name, 10, 32)
	return uint32(parsed), err == nil && len(name) >= 6
}

// ListGenerations returns the sorted numbers of the generations that have a directory.
func ListGenerations(fs FS, dir string) (found []uint32) {
	// A directory that cannot be listed counts as empty. Opening the store in it will return the
	// error.
	names, _ := fs.List(dir)
	for _, name := range names {
		if n, ok := GenerationNumber(name); ok {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found
}

// RemoveStale removes the directories of the generations that g does not name, and if shadows is
// set, also temporary directories. It keeps those directories for which keep returns true; a nil
// keep keeps none. It returns the names that it has removed, and the joined errors of those that it
// could not remove.
func RemoveStale(fs FS, dir string, g Generations, shadows bool, keep func(dir string) bool) (removed []string, err error) {
	names, err := fs.List(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	err = nil // without the directory there is nothing to remove
	slices.Sort(names)
	for _, name := range names {
		n, isGeneration := GenerationNumber(name)
		isStale := isGeneration && !g.has(n)
		isShadow := strings.HasPrefix(name, ShadowPrefix)
		if !isStale && (!shadows || !isShadow) {
			continue
		}
		path := fs.PathJoin(dir, name)
		if keep != nil && keep(path) {
			continue
		}
		if removeErr := fs.RemoveAll(path); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", path, removeErr))
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
