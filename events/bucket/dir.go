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
	// tempPrefix begins the names of files that are being written. No object has such a name.
	tempPrefix = ".put-"
	// tempAge is when such a file is what a crash left behind: several processes may share a directory.
	staleTempAge = 24 * time.Hour
)

// dir is a bucket in a directory: an object is the file of its name.
type dir struct{ path string }

// NewDir returns the bucket in a directory, which is created if it does not exist. Files that interrupted calls of Put left
// behind are removed after a day, and never listed. Files whose names are none are not touched. No object can have a name
// that is a folder of another's.
func NewDir(path string) (Bucket, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("bucket: %w", err)
	}
	if err := makeDirsDurably(path); err != nil {
		return nil, err
	}
	d := &dir{path}
	if err := d.Clean(time.Now().Add(-staleTempAge)); err != nil {
		return nil, err
	}
	return d, nil
}

// CheckWritable returns an error if the process lacks the permission to write to a bucket in a directory, as to a volume that belongs to
// another user. It says nothing about other buckets, nor about a full disk: those may work later.
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
		return nil //nolint:nilerr // it may work later
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// Clean implements [Cleaner].
func (d *dir) Clean(before time.Time) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("bucket: %w", err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if info, err := e.Info(); err == nil && info.ModTime().Before(before) {
			os.Remove(filepath.Join(d.path, e.Name()))
		}
	}
	return nil
}

// Directory returns the path of a bucket in a directory; false: it is elsewhere.
func Directory(b Bucket) (path string, ok bool) {
	d, ok := b.(*dir)
	if !ok {
		return "", false
	}
	return d.path, true
}

// String returns the path.
func (d *dir) String() string { return d.path }

func (d *dir) filePath(name string) string { return filepath.Join(d.path, filepath.FromSlash(name)) }

// within calls f with the directory as the root of what it can reach: no symbolic link in it leads elsewhere.
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

// fill writes a file durably and closes it.
func writeDurably(ctx context.Context, f *os.File, r io.Reader) error {
	_, err := io.Copy(f, contextReader{ctx, r})
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// publish makes a file the object of a name, durably. The rename goes through the root, unlike that of package atomicfile.
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
	return errors.Join(atomicfile.SyncDir(filepath.Dir(file)), atomicfile.SyncDir(d.path))
}

// makeDirs creates a directory and those above it, durably.
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
	f, err := d.open(name)
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

// errNoFile: an object is a link, a device or the like, which this package does not make. Opening a pipe might never end.
var errNotRegular = errors.New("it is no regular file")

// open opens the file of an object.
func (d *dir) open(name string) (f *os.File, err error) {
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

// reader reads until a context ends.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of the one call that reads
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
	err := filepath.WalkDir(d.path, func(path string, e fs.DirEntry, err error) error {
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
		if wanted := strings.HasPrefix(name, prefix) && checkName(name) == nil && e.Type().IsRegular(); !wanted {
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
	// A walk visits "a/b" before "a-b".
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
