package projections

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// generationsFile says which directory beside it is what. Where there is none, the highest generation is live.
	generationsFile = "GENERATIONS"
	// generationsVersion is that of the format of the file.
	generationsVersion = 1
	// shadowPrefix begins the names of scratch directories: what a start finds of them is left over from a crash.
	shadowPrefix = "shadow-"
)

// generations says which generations of a projection count. Directories that are not named are garbage: there is a file before a
// second directory is made, and it is written before one is removed. At every moment exactly one is live, and it is whole:
// it becomes live when its rows are on disk.
type generations struct {
	Version int `json:"version"`
	// Live is the generation that serves.
	Live uint32 `json:"live"`
	// Previous is the one that served before and is kept for a rollback; 0 means none.
	Previous uint32 `json:"former,omitempty"`
}

func (g generations) has(n uint32) bool { return n == g.Live || n == g.Previous }

// readGenerations reads the file in the directory of a projection. Without a file, the highest directory is live, or 1.
func readGenerations(fs FS, dir string) (g generations, found bool, err error) {
	name := fs.PathJoin(dir, generationsFile)
	data, err := readFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return generations{Live: max(1, slices.Max(append(listGenerations(fs, dir), 0)))}, false, nil
	}
	if err != nil {
		return g, false, err
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return generations{}, true, fmt.Errorf("%w: %s: %w", ErrCorrupt, name, err)
	}
	if g.Version != generationsVersion {
		return generations{}, true, fmt.Errorf("%s: version %d, this program knows %d", name, g.Version, generationsVersion)
	}
	if g.Live == 0 || g.Live == g.Previous {
		return generations{}, true, fmt.Errorf("%w: %s: %s", ErrCorrupt, name, data)
	}
	return g, true, nil
}

// writeGenerations replaces the file. When it returns, the new one survives a power cut; until then one of both does. After
// an error it may be either. This is package atomicfile on a file system that tests cut the power of.
func writeGenerations(fs FS, dir string, g generations) error {
	g.Version = generationsVersion
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	name := fs.PathJoin(dir, generationsFile)
	next := name + ".new"
	if err := writeFile(fs, next, append(data, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", next, err)
	}
	if err := fs.Rename(next, name); err != nil {
		return err
	}
	return SyncDir(fs, dir)
}

func readFile(fs FS, name string) (data []byte, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(f)
}

func writeFile(fs FS, name string, data []byte) (err error) {
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

// listGenerations returns the numbers of the generations that have a directory, in order.
func listGenerations(fs FS, dir string) (found []uint32) {
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

// removeStale removes the generations that g does not name, and scratch directories if those too are asked for.
func removeStale(fs FS, dir string, g generations, scratch bool) (removed []string, err error) {
	names, _ := fs.List(dir)
	slices.Sort(names)
	for _, name := range names {
		n, parsed := strconv.ParseUint(name, 10, 32)
		stale := parsed == nil && len(name) >= 6 && !g.has(uint32(n))
		if !stale && (!scratch || !strings.HasPrefix(name, shadowPrefix)) {
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

// checkWhole refuses a directory with tables and without the file that says which of them count: the storage engine would
// take it for an empty store.
func checkWhole(fs FS, dir string) error {
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

// directoryBytes returns what the files of a directory take, those in directories below it left out.
func directoryBytes(fs FS, dir string) (n uint64) {
	names, _ := fs.List(dir)
	for _, name := range names {
		if info, err := fs.Stat(fs.PathJoin(dir, name)); err == nil && !info.IsDir() {
			n += uint64(max(0, info.Size()))
		}
	}
	return n
}
