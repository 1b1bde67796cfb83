package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	// GenerationsFile says which directory beside it is what. Where there is none, the highest generation is live.
	GenerationsFile = "GENERATIONS"
	// generationsVersion is that of the format of the file.
	generationsVersion = 1
	// ShadowPrefix begins the names of scratch directories: what a start finds of them is left over from a crash.
	ShadowPrefix = "shadow-"
)

// Generations says which generations of a projection count. Directories that are not named are garbage: there is a file before a
// second directory is made, and it is written before one is removed. At every moment exactly one is live, and it is whole:
// it becomes live when its rows are on disk.
type Generations struct {
	Version int `json:"version"`
	// Live is the generation that serves.
	Live uint32 `json:"live"`
	// Previous is the one that served before and is kept for a rollback; 0 means none.
	Previous uint32 `json:"former,omitempty"`
}

func (g Generations) has(n uint32) bool { return n == g.Live || n == g.Previous }

// ReadGenerations reads the file in the directory of a projection. Without a file, the highest directory is live, or 1.
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
		return Generations{}, true, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	if g.Version != generationsVersion {
		return Generations{}, true, fmt.Errorf("%s: version %d, this program knows %d", name, g.Version, generationsVersion)
	}
	if g.Live == 0 || g.Live == g.Previous {
		return Generations{}, true, fmt.Errorf("%w: %s: %s", ErrCorrupt, name, data)
	}
	return g, true, nil
}

// WriteGenerations replaces the file. When it returns, the new one survives a power cut; until then one of both does. After
// an error it may be either. This is package atomicfile on a file system that tests cut the power of.
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
	// A listing that fails is an empty one: the directory is made by the opening, which fails loudly.
	names, _ := fs.List(dir)
	for _, name := range names {
		if n, err := strconv.ParseUint(name, 10, 32); err == nil && len(name) >= 6 {
			found = append(found, uint32(n))
		}
	}
	slices.Sort(found)
	return found
}

// RemoveStale removes the generations that g does not name, and scratch directories if those too are asked for.
func RemoveStale(fs FS, dir string, g Generations, scratch bool) (removed []string, err error) {
	names, _ := fs.List(dir)
	slices.Sort(names)
	for _, name := range names {
		n, parsed := strconv.ParseUint(name, 10, 32)
		stale := parsed == nil && len(name) >= 6 && !g.has(uint32(n))
		if !stale && (!scratch || !strings.HasPrefix(name, ShadowPrefix)) {
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
