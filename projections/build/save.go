package build

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/disk"
	"github.com/skein-feed/skein/projections/store"
)

// A build with a key continues after the end of its process. It is saved whenever the caller says
// so while events are added, again when all events were added, and then after each range of
// partitions that was folded. These files are in the directory of temporary files:
//
//	events          the events by partition (scatterFile)
//	saved           how far the build is (savedBuild)
//	range-FROM-TO   a range of partitions that was folded: its tables and runs (savedRange)
//	built           the store is complete; the other temporary files are removed
//
// Each of them is written after all that it names. A power cut may leave more events in their file
// than are saved. The build that continues writes over these, because it adds them again.
//
// A merge begins again. So does the folding of a range whose files are gone, because Finish had
// begun to move them into the store.

// savedVersion is the version of the format of these files. A file of another version counts as
// damaged.
const savedVersion = 1

// savedBuild is the content of the file "saved".
type savedBuild struct {
	// Key says what the build was made from. Only a build with the same key continues it.
	Key string
	// EventBytes is how many bytes of the file of events count.
	EventBytes int64
	// StoreRows are the keys and values of the rows of the store as a whole. The position, up to
	// which events were added, is among them. LastTick is that of the sequencer.
	StoreRows [][2][]byte
	LastTick  events.Micros
	// Ranges are the ranges from <= partition < to. They are set once all events were added.
	Ranges [][2]int
}

// savedRange is the content of a file for a range of partitions that was folded.
type savedRange struct {
	// Tables and Runs are the names of files in the directory of temporary files.
	Tables, Runs []string
	// TableRows and RunRows are the numbers of rows in them, and Samples are those of the runs.
	TableRows, RunRows int64
	Samples            [][]byte
	// Files is the number of temporary files so far: the numbers of later files must be greater.
	Files int64
}

// savedRangeBytes is about how many bytes of events a range of a large saved build has, unless it
// is a single partition. What was folded of a range when the build was interrupted is folded again,
// and that should take only some seconds.
const savedRangeBytes = 32 << 20

// rangesToSave divides the partitions into the ranges of a saved build.
func (b *Builder) rangesToSave() [][2]int {
	return b.partitionRanges(max(tasksPerWorker*b.Workers(), int(b.scatter.rawBytes()/savedRangeBytes)))
}

func (b *Builder) savedFile() string { return b.options.FS.PathJoin(b.tempDir, "saved") }

func (b *Builder) rangeFile(r [2]int) string {
	return b.options.FS.PathJoin(b.tempDir, fmt.Sprintf("range-%03d-%03d", r[0], r[1]))
}

// builtFile returns the name of the file that says that the store in dir is complete.
func builtFile(fs store.FS, dir string) string { return fs.PathJoin(dir+".parts", "built") }

// Save saves how far the build is. If it is interrupted later, a build with the same key continues
// after what was added until now.
func (b *Builder) Save() error {
	// The events must be on disk before the file that counts them.
	fs := b.options.FS
	if err := b.scatter.flush(); err != nil {
		return err
	}
	if err := b.scatter.out.Sync(); err != nil {
		return err
	}
	if err := disk.SyncDir(fs, b.tempDir); err != nil {
		return err
	}

	saved := savedBuild{
		Key: b.options.Key, EventBytes: b.scatter.size, LastTick: b.sequencer.LastTick(), Ranges: b.ranges,
	}
	it := b.sequencer.Rows()
	for it.Next() {
		saved.StoreRows = append(saved.StoreRows, [2][]byte{bytes.Clone(it.Key()), bytes.Clone(it.Value())})
	}
	if err := it.Close(); err != nil {
		return err
	}
	b.isSaved = true
	return errors.Join(b.writeSaved(b.savedFile(), saved), disk.SyncDir(fs, fs.PathDir(b.tempDir)))
}

// readSavedBuild reads what a build with the same key has saved, and sets isSaved if there is one.
func (b *Builder) readSavedBuild() (saved savedBuild, err error) {
	if b.options.Key == "" {
		return saved, nil
	}
	found, err := readSaved(b.options.FS, b.savedFile(), &saved)
	if err != nil || !found || saved.Key != b.options.Key {
		return savedBuild{}, err
	}

	b.isSaved = true
	b.ranges = saved.Ranges
	b.folded = map[[2]int]savedRange{}
	for _, r := range b.ranges {
		var folded savedRange
		found, err := readSaved(b.options.FS, b.rangeFile(r), &folded)
		if err != nil {
			return saved, err
		}
		b.files.Store(max(b.files.Load(), folded.Files))
		if found && b.hasFiles(folded) {
			b.folded[r] = folded
		}
	}
	return saved, nil
}

// HasAllEvents reports whether the build continues one to which all events were added. The caller
// then adds no more.
func (b *Builder) HasAllEvents() bool { return b.ranges != nil }

// IsBuilt reports whether a build that was saved with this key has made its store in dir. The store
// may have been folded further since.
func IsBuilt(fs store.FS, dir, key string) (bool, error) {
	var of string
	found, err := readSaved(fs, builtFile(fs, dir), &of)
	return found && of == key, err
}

// hasFiles reports whether all files of a folded range still exist.
func (b *Builder) hasFiles(r savedRange) bool {
	for _, names := range [][]string{r.Tables, r.Runs} {
		for _, name := range names {
			if _, err := b.options.FS.Stat(b.options.FS.PathJoin(b.tempDir, name)); err != nil {
				return false
			}
		}
	}
	return true
}

// foldOrLoadRange does what foldRange does. If the build is saved, it saves the range, or returns
// the one that was saved before.
func (b *Builder) foldOrLoadRange(fold func() (*tableWriter, *runSet, error), r [2]int) (names []string, rest *runSet, err error) {
	fs := b.options.FS
	if saved, ok := b.folded[r]; ok {
		rest = &runSet{builder: b, samples: saved.Samples, rowCount: saved.RunRows}
		for _, name := range saved.Tables {
			names = append(names, fs.PathJoin(b.tempDir, name))
		}
		for _, name := range saved.Runs {
			rest.names = append(rest.names, fs.PathJoin(b.tempDir, name))
		}
		b.rows.Add(saved.TableRows)
		b.options.OnFolded(b.eventsOf(r))
		return names, rest, nil
	}

	t, rest, err := fold()
	if err != nil || !b.isSaved {
		return t.names, rest, err
	}
	// The tables are synced already, and the runs are not.
	if err := syncFiles(fs, rest.names...); err != nil {
		return t.names, rest, err
	}
	saved := savedRange{TableRows: t.allRows, RunRows: rest.rowCount, Samples: rest.samples, Files: b.files.Load()}
	for _, name := range t.names {
		saved.Tables = append(saved.Tables, fs.PathBase(name))
	}
	for _, name := range rest.names {
		saved.Runs = append(saved.Runs, fs.PathBase(name))
	}
	return t.names, rest, b.writeSaved(b.rangeFile(r), saved)
}

// eventsOf returns the number of events of a range of partitions.
func (b *Builder) eventsOf(r [2]int) (n uint64) {
	for p := r[0]; p < r[1]; p++ {
		n += uint64(b.scatter.parts[p].eventCount)
	}
	return n
}

// finishSaved records that the store is complete, and removes all other temporary files.
func (b *Builder) finishSaved() error {
	fs := b.options.FS
	if err := b.writeSaved(builtFile(fs, b.options.Dir), b.options.Key); err != nil {
		return err
	}
	names, err := fs.List(b.tempDir)
	for _, name := range names {
		if name != fs.PathBase(builtFile(fs, b.options.Dir)) {
			err = errors.Join(err, fs.RemoveAll(fs.PathJoin(b.tempDir, name)))
		}
	}
	return err
}

// syncFiles syncs files that are closed.
func syncFiles(fs store.FS, names ...string) error {
	for _, name := range names {
		f, err := fs.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// savedHead returns the first line of a file with this content. It has the version and a checksum.
func savedHead(content []byte) []byte {
	return fmt.Appendf(nil, "skein build %d %08x", savedVersion, crc32.Checksum(content, castagnoli))
}

// writeSaved writes a value as JSON to a file, which appears with its content.
func (b *Builder) writeSaved(name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	data := slices.Concat(savedHead(content), []byte("\n"), content)
	fs := b.options.FS
	if err := disk.WriteFile(fs, name+".new", data); err != nil {
		return err
	}
	return errors.Join(fs.Rename(name+".new", name), disk.SyncDir(fs, b.tempDir))
}

// readSaved reads what writeSaved has written. It reports whether there is a file. It fails with
// [projections.ErrCorrupt] if the file is damaged or of another version.
func readSaved(fs store.FS, name string, to any) (found bool, err error) {
	data, err := disk.ReadFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	head, content, _ := bytes.Cut(data, []byte("\n"))
	if !bytes.Equal(head, savedHead(content)) {
		return true, fmt.Errorf("%w: %s is damaged, or of another version", projections.ErrCorrupt, name)
	}
	if err := json.Unmarshal(content, to); err != nil {
		return true, fmt.Errorf("%w: %s: %w", projections.ErrCorrupt, name, err)
	}
	return true, nil
}
