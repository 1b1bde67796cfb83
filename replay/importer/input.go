package importer

import (
	"bufio"
	"bytes"
	"compress/gzip"
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

// file is an open file, unpacked while it is read.
type file struct {
	io.Reader
	// size is the size of the file on disk, read the number of these bytes that were read.
	size int64
	read atomic.Int64

	raw    *os.File
	unpack func()
}

// openFile opens a file. Whether it is compressed, and how, is decided by its first bytes, not by its name.
func openFile(path string) (*file, error) {
	raw, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &file{raw: raw, unpack: func() {}}
	if info, err := raw.Stat(); err == nil {
		f.size = info.Size()
	}
	r := bufio.NewReaderSize(io.TeeReader(raw, (*counter)(&f.read)), 32<<10)
	f.Reader = r
	magic, _ := r.Peek(4) // a shorter file is not compressed; another error comes again on reading
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		gz, err := gzip.NewReader(r)
		if err != nil {
			return nil, f.fail(path, err)
		}
		f.Reader = gz
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		zr, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, f.fail(path, err)
		}
		f.Reader, f.unpack = zr, zr.Close
	}
	return f, nil
}

func (f *file) fail(path string, err error) error {
	_ = f.Close()
	return fmt.Errorf("%s: %w", path, err)
}

// Close closes the file.
func (f *file) Close() error {
	f.unpack()
	return f.raw.Close()
}

type counter atomic.Int64

func (c *counter) Write(b []byte) (int, error) {
	(*atomic.Int64)(c).Add(int64(len(b)))
	return len(b), nil
}

// digestFile hashes a file as it is on disk, without unpacking it.
func digestFile(path string) (string, error) {
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

// SourceOf returns the source of an import: the name of its file and the first 8 characters of a hash.
func SourceOf(path, digest string) string {
	name := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || r == ' ' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, filepath.Base(path))
	suffix := "-" + digest[:8]
	for len(name)+len(suffix) > events.MaxSourceBytes {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name + suffix
}
