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
	// GenerationsFile is the name of the file that says which generation is live, beside their directories. Without the file, the
	// highest generation is live.
	GenerationsFile = "GENERATIONS"
	// generationsVersion is the version of the file's format.
	generationsVersion = 1
	// ShadowPrefix begins the names of scratch directories. A start that finds one removes it: a crash has left it behind.
	ShadowPrefix = "shadow-"
)

// Generations says which generations of a projection are in use. A directory that it does not name is garbage. That is safe, because the
// file is written before a second directory is made, and again before one is removed. At every moment exactly one generation is live,
// and it is complete: a generation becomes live only when its rows are on disk.
type Generations struct {
	Version int `json:"version"`
	// Live is the number of the generation that serves, from 1.
	Live uint32 `json:"live"`
	// Previous is the generation that served before and is kept for a rollback; 0 means none.
	Previous uint32 `json:"former,omitempty"`
	// Partitions is the set that the live generation holds, as its fingerprint has it: what to build when its rows cannot be read. Empty
	// means all.
	Partitions string `json:"partitions,omitempty"`
}

func (g Generations) has(n uint32) bool { return n == g.Live || n == g.Previous }

// ReadGenerations reads the file in the directory of a projection, and reports whether there is one. Without a file, the highest
// directory is live, or 1 if there is no directory. A file that cannot be decoded is [projections.ErrCorrupt].
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

// WriteGenerations replaces the file atomically: after a power cut the old or the new file is there, whole, and once WriteGenerations
// has returned nil it is the new one. After an error it may be either. The content is synced before the rename, or a power cut could
// leave the new name with an empty file; the directory is synced last, to make the rename durable. It does the same as package
// atomicfile, on a file system of which tests cut the power.
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

// ListGenerations returns the numbers of the generations that have a directory, in order.
func ListGenerations(fs FS, dir string) (found []uint32) {
	// A failed listing counts as empty: the caller creates the directory when it opens the store, and that reports the error.
	names, _ := fs.List(dir)
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 32); err == nil && len(name) >= 6 {
			found = append(found, uint32(n))
		}
	}
	slices.Sort(found)
	return found
}

// RemoveStale removes the generations that g does not name, except a prepared one that a crash has kept from being named, and with scratch
// also the scratch directories. It returns the names that it has removed, and joins the errors of the others.
func RemoveStale(fs FS, dir string, g Generations, scratch bool) (removed []string, err error) {
	names, _ := fs.List(dir)
	slices.Sort(names)
	for _, name := range names {
		n, parsed := strconv.ParseUint(name, 10, 32)
		stale := parsed == nil && len(name) >= 6 && !g.has(uint32(n))
		if !stale && (!scratch || !strings.HasPrefix(name, ShadowPrefix)) {
			continue
		}
		if _, prepared, _ := ReadPrepared(fs, fs.PathJoin(dir, name)); prepared {
			continue
		}
		if failed := fs.RemoveAll(fs.PathJoin(dir, name)); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		removed = append(removed, name)
	}
	return removed, err
}
