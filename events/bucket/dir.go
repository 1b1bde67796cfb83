package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/skein-feed/skein/events/atomicfile"
)

const (
	// tempPrefix is the prefix of the names of files that are being written. Names of objects
	// cannot begin with a dot.
	tempPrefix = ".put-"
	// staleTempAge is the age at which such a file counts as left behind by a crash. Younger ones
	// may belong to another process, because several processes may share a directory.
	staleTempAge = 24 * time.Hour
)

// dir is a bucket in a directory. Each object is a file whose path below the directory is the name
// of the object.
type dir struct{ path string }

// NewDir returns the bucket in a directory, which it creates if it does not exist. Files that
// interrupted calls of Put left behind are never listed, and NewDir removes them if they are older
// than a day. Files whose names are not valid names of objects are not touched. The name of an
// object cannot be the name of another object followed by a slash and more, because a file cannot
// also be a folder.
func NewDir(path string) (Bucket, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("bucket: %w", err)
	}
	if err := makeDirsDurably(path); err != nil {
		return nil, err
	}

	d := &dir{path}
	// Files that cannot be removed do not make the bucket unusable: this process may only read it.
	if _, err := d.removeTemps(time.Now().Add(-staleTempAge)); err != nil {
		return nil, err
	}
	return d, nil
}

// CheckWritable returns an error if the process lacks the permission to write to a bucket in a
// directory, for example to a volume that belongs to another user. It returns nil for other buckets
// and for other errors such as a full disk, because writing may work later.
func CheckWritable(b Bucket) error {
	d, ok := b.(*dir)
	if !ok {
		return nil
	}
	probe, err := os.CreateTemp(d.path, tempPrefix+"*")
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("bucket: user %d of group %d must be able to write to the directory %s: %w", os.Getuid(), os.Getgid(), d.path, err)
	}
	if err != nil {
		return nil //nolint:nilerr // writing may work later
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Clean implements [Cleaner].
func (d *dir) Clean(before time.Time) error {
	left, err := d.removeTemps(before)
	if err == nil {
		err = left
	}
	if err == nil {
		err = atomicfile.SyncDir(d.path) // a power cut must not bring the files back
	}
	return err
}

// removeTemps removes the temporary files that were last written to before a time. left says which
// of them it could not remove. err means that it could not list them.
func (d *dir) removeTemps(before time.Time) (left, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("bucket: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			err = os.Remove(filepath.Join(d.path, e.Name()))
		}
		// Another process may remove the file at the same time.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = errors.Join(left, fmt.Errorf("bucket: %w", err))
		}
	}
	return left, nil
}

// Directory returns the path of a bucket in a directory. ok is false for other buckets.
func Directory(b Bucket) (path string, ok bool) {
	d, ok := b.(*dir)
	if !ok {
		return "", false
	}
	return d.path, true
}

// String returns the absolute path of the directory.
func (d *dir) String() string { return d.path }

// filePath returns the path of the file of an object.
func (d *dir) filePath(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// withRoot calls f with the directory as an [os.Root], through which no symbolic link can lead out
// of the directory.
func (d *dir) withRoot(f func(root *os.Root) error) error {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return err
	}
	return errors.Join(f(root), root.Close())
}

// Put implements [Bucket].
func (d *dir) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	if err := checkName(name); err != nil {
		return err
	}
	// The temporary file is in the directory of the bucket, so the rename stays within a file
	// system.
	temp, err := os.CreateTemp(d.path, tempPrefix+"*")
	if err != nil {
		return fmt.Errorf("bucket: write %s: %w", name, err)
	}

	err = writeDurably(ctx, temp, newExactReader(r, size))
	if err == nil {
		err = d.moveIntoPlace(temp.Name(), name)
	}
	if err != nil {
		os.Remove(temp.Name())
		return fmt.Errorf("bucket: write %s in %s: %w", name, d.path, err)
	}
	return nil
}

// writeDurably copies r to a file, syncs the file and closes it.
func writeDurably(ctx context.Context, f *os.File, r io.Reader) error {
	_, err := io.Copy(f, contextReader{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// moveIntoPlace durably renames a temporary file to the file of an object. It does not use package
// atomicfile, because the rename must go through the root.
func (d *dir) moveIntoPlace(temp, name string) error {
	file := d.filePath(name)
	err := d.withRoot(func(root *os.Root) error {
		folder := filepath.Dir(filepath.FromSlash(name))
		if _, err := root.Stat(folder); errors.Is(err, fs.ErrNotExist) {
			if err := makeDirsDurably(filepath.Dir(file)); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
		return root.Rename(filepath.Base(temp), filepath.FromSlash(name))
	})
	if err != nil {
		return err
	}

	// The rename changes two directories, unless they are the same.
	return errors.Join(atomicfile.SyncDir(filepath.Dir(file)), atomicfile.SyncDir(d.path))
}

// makeDirsDurably creates a directory and the missing ones above it, durably.
func makeDirsDurably(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	parent := filepath.Dir(path)
	if parent != path {
		if err := makeDirsDurably(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("bucket: %w", err)
	}
	return atomicfile.SyncDir(parent)
}

// Get implements [Bucket].
func (d *dir) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}

	f, err := d.openObject(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s in %s", ErrNotFound, name, d.path)
	}
	if err != nil {
		return nil, fmt.Errorf("bucket: read %s in %s: %w", name, d.path, err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("bucket: %w", err), f.Close())
	}

	part := contextReader{ctx, f}
	if length >= 0 {
		part.Reader = io.LimitReader(f, length)
	}
	return struct {
		io.Reader
		io.Closer
	}{part, f}, nil
}

// errNotRegular means that the file of an object is a link, a device or the like, which this
// package never creates. Such files are not opened, because opening a pipe might block forever.
var errNotRegular = errors.New("it is no regular file")

// openObject opens the file of an object. A folder counts as no object.
func (d *dir) openObject(name string) (f *os.File, err error) {
	err = d.withRoot(func(root *os.Root) error {
		file := filepath.FromSlash(name)
		info, err := root.Lstat(file)
		switch {
		case err != nil:
			return err
		case info.IsDir():
			return fs.ErrNotExist
		case !info.Mode().IsRegular():
			return errNotRegular
		}
		f, err = root.Open(file)
		return err
	})
	return f, err
}

// contextReader fails with the context's error once the context has ended.
type contextReader struct {
	ctx context.Context //nolint:containedctx // the context of the call that made the reader
	io.Reader
}

// Read implements [io.Reader].
func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// List implements [Bucket].
func (d *dir) List(ctx context.Context, prefix string) ([]Object, error) {
	var objects []Object
	// A walk does not follow links. With a separator behind it, the path names the directory itself,
	// even if the last part of the path is a link.
	root := d.path + string(filepath.Separator)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err = errors.Join(err, ctx.Err()); err != nil {
			return err
		}

		relative, err := filepath.Rel(d.path, path)
		if err != nil || e.IsDir() {
			return err
		}
		name := filepath.ToSlash(relative)
		isObject := checkName(name) == nil && e.Type().IsRegular()
		if !isObject || !strings.HasPrefix(name, prefix) {
			return nil
		}

		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		objects = append(objects, Object{Name: name, Size: info.Size(), Time: info.ModTime()})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("bucket: list %s: %w", d.path, err)
	}
	// The order of a walk is not that of the names: it visits "a/b" before "a-b".
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	return objects, nil
}

// Delete implements [Bucket].
func (d *dir) Delete(_ context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	file := d.filePath(name)
	err := d.withRoot(func(root *os.Root) error { return root.Remove(filepath.FromSlash(name)) })
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = atomicfile.SyncDir(filepath.Dir(file))
	}
	if err != nil {
		return fmt.Errorf("bucket: delete %s: %w", name, err)
	}
	return nil
}
