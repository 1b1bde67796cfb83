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

// inputFile is the file to import. The importer reads it several times, so input that can be read only once, such as a pipe, is copied to a
// temporary file first.
type inputFile struct {
	path string
	// name is the name of the file in messages, and in the source of the import.
	name string
	// outputPrefix is how the paths of the files begin that the import writes: state and rejects. For a regular file it is the path of that file.
	// For a copy it is a name in the current directory that contains a hash of the content, so that other input does not continue this import.
	outputPrefix string
	isCopy       bool
}

// openInput returns the file at a path; a dash means standard input. If the input is not a regular file, openInput copies it to a temporary file, which
// the caller must remove.
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

	to, err := os.CreateTemp("", "skein-import-*")
	if err != nil {
		return nil, fmt.Errorf("%s can be read only once, and cannot be copied: %w", path, err)
	}
	s := &inputFile{path: to.Name(), name: filepath.Base(path), isCopy: true}
	if fromStdin {
		s.name = "stdin"
	}

	// Opening a pipe that has no writer, or reading from one whose writer is silent, can block forever. A signal must still end the command, so the
	// copy runs in a goroutine of its own, which ends at the latest with the process.
	hash := xxh3.New()
	copied := make(chan error, 1)
	go func() {
		if !fromStdin {
			from, err := os.Open(path)
			if err != nil {
				copied <- err
				return
			}
			defer from.Close()
			stdin = from
		}
		_, err := io.Copy(io.MultiWriter(to, hash), stdin)
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("%s can be read only once, and cannot be copied to %s (TMPDIR names another directory): %w",
			path, filepath.Dir(s.path), err)
	}
	s.outputPrefix = importer.SourceOf(s.name, fmt.Sprintf("%016x", hash.Sum64()))
	return s, nil
}

// remove removes the temporary file, if the input was copied.
func (s *inputFile) remove() {
	if s.isCopy {
		_ = os.Remove(s.path) // what is left is in the directory for temporary files
	}
}
