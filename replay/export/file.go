package export

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
)

// File is a file that appears under its name when it is committed, or not at all.
type File struct {
	name string
	tmp  *os.File
	buf  *bufio.Writer
}

// CreateFile makes a file, beside the place where it will be. Only its owner may read it.
func CreateFile(name string) (*File, error) {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return nil, err
	}
	return &File{name: name, tmp: tmp, buf: bufio.NewWriterSize(tmp, 1<<18)}, nil
}

// Write appends.
func (f *File) Write(b []byte) (int, error) { return f.buf.Write(b) }

// Commit puts the file in its place, instead of one that is there. When it returns, it survives a power cut.
func (f *File) Commit() error {
	err := errors.Join(f.buf.Flush(), f.tmp.Sync(), f.tmp.Close())
	if err == nil {
		err = os.Rename(f.tmp.Name(), f.name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	f.tmp = nil
	dir, err := os.Open(filepath.Dir(f.name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Close removes the file unless it was committed.
func (f *File) Close() error {
	if f.tmp == nil {
		return nil
	}
	_ = f.tmp.Close() // closed already after a Commit that failed
	err := os.Remove(f.tmp.Name())
	f.tmp = nil
	return err
}
