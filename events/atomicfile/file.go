// Package atomicfile replaces files atomically. A reader finds either the old content or the new
// content, and never a part of it, even after a power cut: the content is on disk before the file
// gets its name, and the name is on disk when the call returns.
//
// The package uses the file system of the operating system directly. Two other places replace files
// with code of their own: a store writes through the file system of package store, whose power
// tests can cut, and a bucket accesses its files through an [os.Root].
package atomicfile

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
)

// Suffix is the suffix of the names of files that are being written. After a crash the owner of a
// directory may remove such files.
const Suffix = ".tmp"

// File is a file that appears under its name when [File.Commit] is called, or not at all. It is not
// safe for concurrent use.
type File struct {
	name string
	temp *os.File // nil once the file was committed or removed
	buf  *bufio.Writer
}

// Create creates a temporary file in the directory in which the file will be. Its name is the final
// name, followed by a random number and [Suffix]. Only the owner of the file may read it. The
// caller must call Commit or Close.
func Create(name string) (*File, error) {
	temp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*"+Suffix)
	if err != nil {
		return nil, err
	}
	return &File{name: name, temp: temp, buf: bufio.NewWriterSize(temp, 64<<10)}, nil
}

// Write appends to the file.
func (f *File) Write(b []byte) (int, error) { return f.buf.Write(b) }

// Commit gives the file its name, and replaces an existing file of that name. After Commit has
// returned nil, the file survives a power cut. After an error the name may stand for the old file
// or the new one.
func (f *File) Commit() error {
	err := f.buf.Flush()
	if err == nil {
		err = f.temp.Sync()
	}

	// The rename must come after the sync. Otherwise a power cut could leave a file without its
	// content under the name.
	if err = errors.Join(err, f.temp.Close()); err == nil {
		err = os.Rename(f.temp.Name(), f.name)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}

	f.temp = nil
	return SyncDir(filepath.Dir(f.name))
}

// Close removes the temporary file unless the file was committed. It is safe to call more than
// once.
func (f *File) Close() error {
	if f.temp == nil {
		return nil
	}
	_ = f.temp.Close() // fails if a failed Commit has closed the file already
	err := os.Remove(f.temp.Name())
	f.temp = nil
	return err
}

// Write replaces the content of a file, or creates the file.
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

// SyncDir makes the entries of a directory durable, which created, renamed and removed files need
// to survive a power cut.
func SyncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
