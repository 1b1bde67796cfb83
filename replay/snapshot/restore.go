package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// ErrStore means that there is a store where one should be restored.
var ErrStore = errors.New("snapshot: there is a store already")

// RestoreOptions say which snapshot is restored, and to which directory.
type RestoreOptions struct {
	Bucket bucket.Bucket
	// Snapshot is the name; empty means the latest of the projection.
	Snapshot string
	// Projection is the projection that will fold into the store. Its version and settings must be those of the snapshot.
	Projection projections.Projection
	// FS is the file system; nil means the disk. Dir is the directory with the stores of all projections.
	FS  store.FS
	Dir string
	// Accept checks the position before anything is downloaded, as [events.Log.CheckCursor] does; nil accepts any.
	Accept func(context.Context, events.Cursor) error
	// Place is called before the store appears, which it does not after an error; nil does nothing.
	Place    func(*Manifest) error
	Pace     replay.Pace
	Progress *replay.Progress

	// AnySettings accepts a store with other settings, for reading.
	AnySettings bool
}

// Restored is a store that was restored.
type Restored struct {
	Manifest *Manifest
	// Dir is its directory.
	Dir string
	// Download is the time to read, check and write the files, Open the time to open the store.
	Download, Open time.Duration
}

const (
	// restoringDir is the directory of the files until the store is complete. It is beside the generations, so that a rename can move the
	// store into place. By its prefix a start of the service recognizes it as scratch, and removes it.
	restoringDir = "shadow-restoring"
	// firstGeneration is the directory of the generation that is restored.
	firstGeneration = "000001"
	// generationsFile says which generation is live.
	generationsFile = "GENERATIONS"
	// streams is the number of downloads at a time.
	streams = 4
	// left: a restore leaves one part in so many of the free disk unused.
	left = 20
)

var generationForm = regexp.MustCompile(`^[0-9]{6,}$`)

// Restore restores a store from a snapshot, and returns [ErrStore] if the directory has a store already. The store appears complete or not
// at all: on an error the target is as it was. Once opened, it folds the log from the snapshot's position.
func Restore(ctx context.Context, o RestoreOptions) (_ Restored, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	home := o.FS.PathJoin(o.Dir, o.Projection.Name())
	if err := o.vacant(home); err != nil {
		return Restored{}, err
	}
	m, err := o.find(ctx)
	if err != nil {
		return Restored{}, err
	}
	// If the restore fails, these directories stay: they are empty.
	if err := makeDir(o.FS, home); err != nil {
		return Restored{}, err
	}
	if err := o.room(home, m); err != nil {
		return Restored{}, err
	}
	scratch := o.FS.PathJoin(home, restoringDir)
	if err := o.FS.RemoveAll(scratch); err != nil {
		return Restored{}, err
	}
	defer func() { err = errors.Join(err, o.FS.RemoveAll(scratch)) }()
	done, err := o.fetch(ctx, m, scratch)
	if err != nil {
		return Restored{}, err
	}
	from := done.Dir
	done.Dir = o.FS.PathJoin(home, firstGeneration)
	if err := o.vacant(home); err != nil { // a service may have been started during the download
		return Restored{}, err
	}
	if o.Place != nil {
		if err := o.Place(m); err != nil {
			return Restored{}, err
		}
	}
	if err := o.FS.Rename(from, done.Dir); err != nil {
		return Restored{}, err
	}
	return done, store.SyncDir(o.FS, home)
}

// vacant returns [ErrStore] for a directory that has a generation.
func (o *RestoreOptions) vacant(home string) error {
	names, err := o.FS.List(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if generationForm.MatchString(name) || name == generationsFile {
			return fmt.Errorf("%w: %s; remove the directory if the snapshot shall take its place", ErrStore,
				o.FS.PathJoin(home, name))
		}
	}
	return nil
}

// room returns [replay.ErrDisk] if the store would fill the disk.
func (o *RestoreOptions) room(home string, m *Manifest) error {
	usage, err := o.FS.GetDiskUsage(home)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the store of %s at %s", o.Projection.Name(), home)
	return replay.CheckRoom(what, uint64(m.Bytes()), usage.AvailBytes-usage.AvailBytes/left)
}

// find returns the manifest, if this program can open its store and continue it.
func (o *RestoreOptions) find(ctx context.Context) (*Manifest, error) {
	m, err := find(ctx, o.Bucket, o.Snapshot, o.Projection.Name())
	if err != nil {
		return nil, err
	}
	bad := func(err error) (*Manifest, error) {
		return nil, fmt.Errorf("snapshot %s of %s: %w", m.Snapshot, m.Projection, err)
	}
	if have := store.NewestFormat(); m.Format.Rows != have.Rows || m.Format.Engine > have.Engine {
		return bad(fmt.Errorf("%w: rows %d, engine %d; this program knows rows %d, engine %d", ErrFormat,
			m.Format.Rows, m.Format.Engine, have.Rows, have.Engine))
	}
	now := projections.FingerprintOf(o.Projection)
	now.Partitions = m.Fingerprint.Partitions // any set can be restored: it belongs to the store
	if o.AnySettings {
		now.Settings = m.Fingerprint.Settings
	}
	if c, ok := o.Projection.(projections.Compatible); ok && c.Reads(m.Fingerprint) {
		// The program reads rows of that version: the store answers from them until it is rebuilt.
		now.Version, now.Kinds = m.Fingerprint.Version, m.Fingerprint.Kinds
		now.Settings = shared(now.Settings, m.Fingerprint.Settings)
	}
	if now.Version != m.Fingerprint.Version {
		return bad(fmt.Errorf("%w: %d, this program has %d; the store is built from the log", ErrVersion, m.Fingerprint.Version, now.Version))
	}
	if diff := m.Fingerprint.Differences(now); diff != "" {
		return bad(fmt.Errorf("%w: fingerprint %s: %s; restore with what it was built with, or have the store built from the log",
			ErrBuiltDifferently, m.Fingerprint, diff))
	}
	cursor, err := m.Cursor.Parse()
	if err != nil {
		return bad(err)
	}
	if o.Accept != nil {
		if err := o.Accept(ctx, cursor); err != nil {
			return bad(err)
		}
	}
	return m, nil
}

// shared returns the settings of an earlier version, with the present values of those that still exist.
func shared(now, was map[string]string) map[string]string {
	both := maps.Clone(was)
	for key := range both {
		if value, ok := now[key]; ok {
			both[key] = value
		}
	}
	return both
}

// fetch downloads the files to a directory below scratch, and opens them as a store.
func (o *RestoreOptions) fetch(ctx context.Context, m *Manifest, scratch string) (Restored, error) {
	done := Restored{Manifest: m, Dir: o.FS.PathJoin(scratch, m.Projection, firstGeneration)}
	if err := o.FS.MkdirAll(done.Dir, 0o700); err != nil {
		return done, err
	}
	o.Progress.StartPhase(replay.Writing, "bytes", uint64(m.Bytes()))
	began := time.Now()
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(streams)
	for _, f := range m.Files {
		g.Go(func() error {
			if err := o.download(within, done.Dir, f); err != nil {
				return fmt.Errorf("snapshot %s of %s, file %s: %w", m.Snapshot, m.Projection, f.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	if err := store.SyncDir(o.FS, done.Dir); err != nil {
		return done, err
	}
	done.Download = time.Since(began)
	began = time.Now()
	store, err := o.open(m, scratch)
	if err != nil {
		return done, err
	}
	done.Open = time.Since(began)
	return done, store.Close()
}

// open opens the downloaded store for reading, and compares its position and fingerprint with the manifest.
func (o *RestoreOptions) open(m *Manifest, scratch string) (*store.Store, error) {
	store, err := store.Open(store.Options{
		FS: o.FS, Dir: scratch, Projection: o.Projection, Partitioned: true, ReadOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot %s of %s: %w", m.Snapshot, m.Projection, err)
	}
	at, differs := cursorOf(store.Cursor()), store.Fingerprint().Differences(m.Fingerprint)
	if at != m.Cursor || differs != "" {
		err := fmt.Errorf("%w: snapshot %s of %s: the store is at %+v, the manifest says %+v; %s", ErrDamaged,
			m.Snapshot, m.Projection, at, m.Cursor, differs)
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// download writes one file to disk, synced. It returns [ErrDamaged] if size or checksum differ from the manifest.
func (o *RestoreOptions) download(ctx context.Context, dir string, f File) (err error) {
	r, err := o.Bucket.Get(ctx, f.object(), 0, -1)
	if errors.Is(err, bucket.ErrNotFound) {
		return fmt.Errorf("%w: the object %s is missing in %s", ErrDamaged, f.object(), o.Bucket)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out, err := o.FS.Create(o.FS.PathJoin(dir, f.Name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	h := sha256.New()
	// One byte more than the size of the manifest, so that a longer object is noticed.
	in := &paced{ctx: ctx, r: io.LimitReader(r, f.Size+1), pace: o.Pace, h: h}
	n, err := io.Copy(out, &counted{in, o.Progress})
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != f.Size || sum != f.SHA256 {
		return fmt.Errorf("%w: the object %s in %s has %d bytes with the checksum %s, the manifest says %d",
			ErrDamaged, f.object(), o.Bucket, n, sum, f.Size)
	}
	return nil
}

// counted reports the progress of reading.
type counted struct {
	r io.Reader
	p *replay.Progress
}

// Read is part of io.Reader.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.Add(uint64(n))
	return n, err
}

// makeDir creates a directory and its missing parents, and syncs their entries.
func makeDir(fsys store.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	above := fsys.PathDir(dir)
	if above != dir {
		if err := makeDir(fsys, above); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return store.SyncDir(fsys, above)
}
