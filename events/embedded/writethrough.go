package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// blockSuffix is the suffix of the block files, in which the server stores messages. Their names
// are numbers, from 1 on.
const blockSuffix = ".blk"

// writeThrough makes sure that everything that can be read from the files of a stream is also on
// disk. After a failed fsync, and after a kill between a write and its fsync, the files may show
// messages that are only in the memory of the kernel. The server treats such messages as stored: it
// shows them to readers and acknowledges their repeats, and a power failure would then lose them.
//
// After a failed fsync the kernel may consider pages written that are not, so a second fsync would
// do nothing. Such messages are in the last two files, so writeThrough writes the content of those
// files again in place, which needs no free space.
func writeThrough(dir string) error {
	blocksByDir := map[string][]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, blockSuffix) {
			blocksByDir[filepath.Dir(path)] = append(blocksByDir[filepath.Dir(path)], path)
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			return nil // a server that has shut down may still remove it, see below
		}
		return err
	})
	if err != nil {
		return err
	}

	for blockDir, paths := range blocksByDir {
		sortBlocks(paths)
		for i, path := range paths {
			// A server that has shut down may still remove files that it has emptied. Those need
			// not be on disk.
			isLastTwo := i >= len(paths)-2
			if err := syncFile(path, isLastTwo); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := syncFile(blockDir, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// syncFile syncs a file or directory. If rewrite is set, it first writes the content of the file
// again.
func syncFile(path string, rewrite bool) (err error) {
	flag := os.O_RDONLY
	if rewrite {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(path, flag, 0) //nolint:gosec // the path is the log's own
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if rewrite {
		// A file that cannot be read is no error here. The server reports it, and so does the
		// salvage of the log.
		if content, readErr := os.ReadFile(path); readErr == nil { //nolint:gosec // the path is the log's own
			if _, err := f.WriteAt(content, 0); err != nil {
				return fmt.Errorf("write again: %w", err)
			}
		}
	}
	return f.Sync()
}
