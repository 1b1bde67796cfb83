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

// inputFile is a file that is imported. The importer reads a file several times, so what can be read only once, such as a pipe, is copied to
// a temporary file first.
type inputFile struct {
	path string
	// name is the name of the file for people, and in the source of the import.
	name string
	// outputPrefix is the beginning of the names of the files that an import keeps. Those of a copy are in the current directory, and have a hash of
	// the content in their names: what comes from a pipe next time is another file, unless it is the same.
	outputPrefix string
	isCopy       bool
}

// openInput copies a file that can be read only once to the directory for temporary files. A dash is standard input.
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

	// Opening a pipe without a writer, or reading one whose writer is silent, can last forever. So a signal must end the command meanwhile;
	// the goroutine ends with the process.
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

// remove removes the copy, if the file is one.
func (s *inputFile) remove() {
	if s.isCopy {
		_ = os.Remove(s.path) // it is in the directory for temporary files
	}
}
