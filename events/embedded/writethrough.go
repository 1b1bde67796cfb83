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

// blockSuffix is the suffix of the files in which the server stores messages. The files are numbered from 1.
const blockSuffix = ".blk"

// writeThrough makes sure that everything that can be read from the files of a stream is also on disk. After a failed fsync, and after a
// kill between a write and its fsync, the files may show messages that are only in the memory of the kernel. The server takes such
// messages for stored: it shows them to readers and acknowledges their repeats, and a power cut would then lose them.
//
// After a failed fsync the kernel may consider pages written that are not. Such messages are in the last two files, so writeThrough
// writes those files again in place, which needs no free space.
func writeThrough(dir string) error {
	blocks := map[string][]string{} // by directory
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, blockSuffix) {
			blocks[filepath.Dir(path)] = append(blocks[filepath.Dir(path)], path)
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil // a server that has shut down may still remove it, see below
		}
		return err
	})
	if err != nil {
		return err
	}
	for in, paths := range blocks {
		slices.SortFunc(paths, func(a, b string) int { return cmp.Compare(blockNumber(a), blockNumber(b)) })
		for i, path := range paths {
			// A server that has shut down may still remove files that it has emptied. Those need not be on disk.
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

// syncFile syncs a file or directory. If again is set, it first writes the content of the file again.
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
		// A file that cannot be read is no error here. The server reports it, and so does the salvage of the log.
		if content, rerr := os.ReadFile(path); rerr == nil { //nolint:gosec // the path is the log's own
			if _, err := f.WriteAt(content, 0); err != nil {
				return fmt.Errorf("write again: %w", err)
			}
		}
	}
	return f.Sync()
}
