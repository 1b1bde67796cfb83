package bucket

import (
	"errors"
	"fmt"
	"io"
)

// errSize: what a reader gave is not as much as was said.
var errSize = errors.New("bucket: not as many bytes as were said")

// exact passes on what a reader gives, and fails if that is not as many bytes as were said: before the last of them is
// passed on, so that a reader never takes it for whole.
type exactReader struct {
	source    io.Reader
	remaining int64
	size      int64
}

func newExactReader(r io.Reader, size int64) *exactReader {
	return &exactReader{source: r, remaining: size, size: size}
}

// Read implements [io.Reader].
func (e *exactReader) Read(p []byte) (int, error) {
	if e.remaining == 0 {
		return 0, e.checkEnd()
	}
	if int64(len(p)) > e.remaining {
		p = p[:e.remaining]
	}
	n, err := e.source.Read(p)
	e.remaining -= int64(n)
	switch {
	case errors.Is(err, io.EOF) && e.remaining > 0:
		return n, fmt.Errorf("%w: %d of %d", errSize, e.size-e.remaining, e.size)
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case e.remaining == 0:
		if err := e.checkEnd(); !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	return n, nil
}

// end returns io.EOF if the reader has no more.
func (e *exactReader) checkEnd() error {
	var more [1]byte
	for {
		n, err := e.source.Read(more[:])
		if n > 0 {
			e.source = io.MultiReader(tooLongReader{}, e.source)
			return fmt.Errorf("%w: more than %d", errSize, e.size)
		}
		if err != nil {
			return err
		}
	}
}

// errReader keeps what was found to be too long from being read again as if it were not.
type tooLongReader struct{}

// Read implements [io.Reader].
func (tooLongReader) Read([]byte) (int, error) { return 0, errSize }
