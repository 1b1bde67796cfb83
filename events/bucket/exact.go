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
type exact struct {
	r    io.Reader
	left int64
	size int64
}

func newExact(r io.Reader, size int64) *exact { return &exact{r: r, left: size, size: size} }

// Read implements [io.Reader].
func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, e.end()
	}
	if int64(len(p)) > e.left {
		p = p[:e.left]
	}
	n, err := e.r.Read(p)
	e.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF) && e.left > 0:
		return n, fmt.Errorf("%w: %d of %d", errSize, e.size-e.left, e.size)
	case err != nil && !errors.Is(err, io.EOF):
		return n, err
	case e.left == 0:
		if err := e.end(); !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	return n, nil
}

// end returns io.EOF if the reader has no more.
func (e *exact) end() error {
	var more [1]byte
	for {
		n, err := e.r.Read(more[:])
		if n > 0 {
			e.r = io.MultiReader(errReader{}, e.r)
			return fmt.Errorf("%w: more than %d", errSize, e.size)
		}
		if err != nil {
			return err
		}
	}
}

// errReader keeps what was found to be too long from being read again as if it were not.
type errReader struct{}

// Read implements [io.Reader].
func (errReader) Read([]byte) (int, error) { return 0, errSize }
