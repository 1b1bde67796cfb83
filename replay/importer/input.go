package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
)

// file is an open file. It is unpacked while it is read.
type file struct {
	*bufio.Reader
	// size is the size of the file on disk. read is how many of these bytes were read.
	size int64
	read atomic.Int64

	raw           io.Closer
	closeUnpacker func()
}

// openFile opens a file. It decides by the first bytes, not by the name, whether and how the file
// is compressed. If the file is not text, it returns an error that names its format.
func openFile(path string) (*file, error) {
	raw, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	size := int64(0)
	if info, err := raw.Stat(); err == nil {
		size = info.Size()
	}
	return newFile(raw, size)
}

// newFile returns an open file, from which size bytes can be read.
func newFile(raw io.ReadCloser, size int64) (*file, error) {
	f := &file{raw: raw, size: size, closeUnpacker: func() {}}
	f.Reader = bufio.NewReaderSize(io.TeeReader(raw, (*byteCounter)(&f.read)), 32<<10)
	if err := f.unpackText(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// unpackText replaces the reader of a compressed file by a reader of the unpacked content, and
// skips a byte order mark.
func (f *file) unpackText() error {
	// The file may be shorter, which no recognized format is. Other errors will occur again when
	// the file is read.
	begin, _ := f.Peek(formatBytes)
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		gz, err := gzip.NewReader(f.Reader)
		if err != nil {
			return err
		}
		f.Reader = bufio.NewReaderSize(gz, 32<<10)
	case isZstd(begin):
		zr, err := zstd.NewReader(f.Reader, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return err
		}
		f.Reader = bufio.NewReaderSize(zr, 32<<10)
		f.closeUnpacker = zr.Close
	}

	begin, err := f.Peek(formatBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := checkFormat(begin); err != nil {
		return err
	}
	// Some programs write a byte order mark.
	if mark := []byte("\xef\xbb\xbf"); bytes.HasPrefix(begin, mark) {
		_, _ = f.Discard(len(mark)) // Peek has buffered it
	}
	return nil
}

// isZstd reports whether a file begins with a frame of zstd, or with a skippable frame, as some
// parallel compressors write them.
func isZstd(begin []byte) bool {
	if len(begin) < 4 {
		return false
	}
	isFrame := bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd})
	isSkippable := begin[0]&0xf0 == 0x50 && bytes.Equal(begin[1:4], []byte{0x2a, 0x4d, 0x18})
	return isFrame || isSkippable
}

// Close closes the file.
func (f *file) Close() error {
	f.closeUnpacker()
	return f.raw.Close()
}

// byteCounter counts the bytes that are written to it.
type byteCounter atomic.Int64

func (c *byteCounter) Write(b []byte) (int, error) {
	(*atomic.Int64)(c).Add(int64(len(b)))
	return len(b), nil
}

// hashFile returns a hash of a file as it is on disk, without unpacking it.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := xxh3.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Sprintf("%016x", h.Sum64()), nil
}

// SourceOf returns a source for an import: the name of its file and the first 8 characters of a
// hash.
func SourceOf(path, digest string) string {
	name := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !events.IsIDRune(r) {
			return '_'
		}
		return r
	}, filepath.Base(path))
	suffix := "-" + digest[:8]
	for len(name)+len(suffix) > events.MaxSourceBytes {
		// Remove whole characters, not bytes.
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name + suffix
}
