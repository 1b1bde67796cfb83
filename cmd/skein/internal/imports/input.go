package imports

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/replay/importer"
)

// inputFile is the file to import. The importer reads it several times, so input that can be read
// only once, such as a pipe, is copied to a temporary file first.
type inputFile struct {
	path string
	// name is the name of the file in messages. The log names the import after it too, unless
	// --source does.
	name string
	// outputPrefix is the beginning of the paths of the two files that the import writes, for its
	// progress and for rejects. For a regular file it is the path of that file. For a copy it is a
	// name in the current directory that contains a hash of the content, so that an import of other
	// content does not continue this one.
	outputPrefix string
	// isCopy is set if path is a temporary file.
	isCopy bool
}

// openInput returns the file at a path; a dash means standard input. If the input is not a regular
// file, openInput copies it to a temporary file. The caller must call remove in any case.
func openInput(ctx context.Context, path string, stdin io.Reader) (*inputFile, error) {
	fromStdin := path == "-" || path == "/dev/stdin" || path == "/dev/fd/0" || path == "/proc/self/fd/0"
	if !fromStdin {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			return &inputFile{path: path, name: filepath.Base(path), outputPrefix: path}, nil
		}
	}

	copyFile, err := os.CreateTemp("", "skein-import-*")
	if err != nil {
		return nil, fmt.Errorf("%s can be read only once, and cannot be copied: %w", path, err)
	}
	input := &inputFile{path: copyFile.Name(), name: filepath.Base(path), isCopy: true}
	if fromStdin {
		// All paths of standard input have the same name, so that any of them continues an import.
		input.name = "stdin"
	}

	// Opening a pipe that has no writer, or reading from one whose writer is silent, can block
	// forever. A signal must still end the command, so the copying runs in a goroutine of its own,
	// which ends at the latest with the process.
	hash := xxh3.New()
	copyErr := make(chan error, 1) // buffered, so that the goroutine can end after a signal
	go func() {
		source := stdin
		if !fromStdin {
			file, err := os.Open(path)
			if err != nil {
				copyErr <- err
				return
			}
			defer file.Close()
			source = file
		}
		_, err := io.Copy(io.MultiWriter(copyFile, hash), source)
		copyErr <- err
	}()
	select {
	case err = <-copyErr:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}

	if err == nil {
		err = copyFile.Close()
	}
	if err != nil {
		input.remove()
		return nil, fmt.Errorf("%s can be read only once, and cannot be copied to %s (TMPDIR names another directory): %w",
			path, filepath.Dir(input.path), err)
	}
	input.outputPrefix = importer.SourceOf(input.name, fmt.Sprintf("%016x", hash.Sum64()))
	return input, nil
}

// remove removes the temporary file, if the input was copied.
func (f *inputFile) remove() {
	if f.isCopy {
		// An error is not reported: the file is in the directory for temporary files, which the
		// system cleans.
		_ = os.Remove(f.path)
	}
}
