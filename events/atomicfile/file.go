// Package atomicfile replaces files. A reader finds the old content or the new one, and never a part, also after a power
// cut: the content is on disk before the file gets its name, and the name is on disk when the call returns.
//
// It works on the disk of the operating system. A store writes through the file system of package store, of which
// tests cut the power, and a bucket reaches its files through an [os.Root]: both have their own few lines.
package atomicfile

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
)

// Suffix ends the names of files that are being written. The owner of a directory may remove those of a crash.
const Suffix = ".tmp"

// File is a file that appears under its name when it is committed, or not at all.
type File struct {
	name string
	temp *os.File
	buf  *bufio.Writer
}

// Create makes a file beside the place where it will be: its name, a number and [Suffix]. Only its owner may read it.
func Create(name string) (*File, error) {
	temp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*"+Suffix)
	if err != nil {
		return nil, err
	}
	return &File{name: name, temp: temp, buf: bufio.NewWriterSize(temp, 64<<10)}, nil
}

// Write appends.
func (f *File) Write(b []byte) (int, error) { return f.buf.Write(b) }

// Commit puts the file in its place, and replaces one that is there. When it returns, the file survives a power cut.
// After an error the place may hold either.
func (f *File) Commit() error {
	err := f.buf.Flush()
	if err == nil {
		err = f.temp.Sync()
	}
	if err = errors.Join(err, f.temp.Close()); err == nil {
		err = os.Rename(f.temp.Name(), f.name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	f.temp = nil
	return SyncDir(filepath.Dir(f.name))
}

// Close removes the file unless it was committed.
func (f *File) Close() error {
	if f.temp == nil {
		return nil
	}
	_ = f.temp.Close() // closed already after a Commit that failed
	err := os.Remove(f.temp.Name())
	f.temp = nil
	return err
}

// Write replaces a file by one with this content.
func Write(name string, data []byte) error {
	f, err := Create(name)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Commit()
}

// SyncDir makes durable which files a directory has.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
