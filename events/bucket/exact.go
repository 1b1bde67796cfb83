package bucket

import (
	"errors"
	"fmt"
	"io"
)

// errSize means that a reader returned more or fewer bytes than the caller of Put stated.
var errSize = errors.New("bucket: not as many bytes as were said")

// exactReader returns the bytes of source, and fails unless there are exactly size of them. It
// checks that source has ended before it returns the last of these bytes. Otherwise its user, which
// stops after size bytes, would take an object that is too long for a whole one.
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

// checkEnd returns io.EOF if source has ended, errSize if source returns another byte, and
// otherwise the error of source.
func (e *exactReader) checkEnd() error {
	var extra [1]byte
	for {
		n, err := e.source.Read(extra[:])
		if n > 0 {
			e.source = io.MultiReader(tooLongReader{}, e.source)
			return fmt.Errorf("%w: more than %d", errSize, e.size)
		}
		if err != nil {
			return err
		}
	}
}

// tooLongReader always fails with errSize. An exactReader whose source was too long reads from it,
// so that a retry fails, too: the extra byte was consumed, and the source might now seem to have
// the right length.
type tooLongReader struct{}

// Read implements [io.Reader].
func (tooLongReader) Read([]byte) (int, error) { return 0, errSize }
