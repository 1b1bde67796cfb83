package embedded

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// blockSuffix ends the names of the files in which the server has messages; they are numbered from 1.
const blockSuffix = ".blk"

// writeThrough has what is read from the files of a stream on disk as well. After an fsync that failed, and after a kill between a write
// and its fsync, the files may show messages that are in the memory of the kernel alone. The server takes them for stored: it
// shows them to readers and acknowledges their repeats, and the power may be cut then.
//
// The kernel may hold pages of a failed fsync for written: those of the last two files, to which such messages belong, are written
// again where they are, which takes no room.
func writeThrough(dir string) error {
	blocks := map[string][]string{} // by directory
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, blockSuffix) {
			blocks[filepath.Dir(path)] = append(blocks[filepath.Dir(path)], path)
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil // as below
		}
		return err
	})
	if err != nil {
		return err
	}
	for in, paths := range blocks {
		slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(blockNumber(a), blockNumber(b)) })
		for i, path := range paths {
			// A server that has shut down may still remove what it has emptied: that need not be on disk.
			if err := syncFile(path, i >= len(paths)-2); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := syncFile(in, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// syncFile syncs a file or directory, and writes it again before if that is asked for.
func syncFile(path string, again bool) (err error) {
	flag := os.O_RDONLY
	if again {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0) //nolint:gosec // the path is the log's own
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if again {
		// The server reports a file that cannot be read, and so does the salvage of the log.
		if content, rerr := os.ReadFile(path); rerr == nil { //nolint:gosec // the path is the log's own
			if _, err := f.WriteAt(content, 0); err != nil {
				return fmt.Errorf("write again: %w", err)
			}
		}
	}
	return f.Sync()
}
