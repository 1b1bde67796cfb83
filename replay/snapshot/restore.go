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

// ErrStore means that the target of a restore has a store already.
var ErrStore = errors.New("snapshot: there is a store already")

// RestoreOptions say which snapshot is restored into which directory.
type RestoreOptions struct {
	Bucket bucket.Bucket
	// Snapshot is the name of the snapshot; empty means the latest one of the projection.
	Snapshot string
	// Projection will fold into the store. Its version and settings must be those of the snapshot.
	Projection projections.Projection
	// FS is the file system; nil means the disk.
	FS store.FS
	// Dir is the directory that contains the stores of all projections.
	Dir string
	// CheckCursor checks the position of the snapshot before anything is downloaded, as
	// [events.Log.CheckCursor] does; nil accepts any position.
	CheckCursor func(context.Context, events.Cursor) error
	// BeforePlacing is called just before the store appears. If it returns an error, the store does
	// not appear. It may be nil.
	BeforePlacing func(*Manifest) error
	Pace          replay.Pace
	Progress      *replay.Progress

	// AnySettings accepts a store that was built with other settings. Such a store can only be
	// read.
	AnySettings bool
}

// RestoreReport describes a store that was restored.
type RestoreReport struct {
	Manifest *Manifest
	// Dir is the directory of the store.
	Dir string
	// Download is how long reading, checking and writing the files took. Open is how long opening
	// the store took.
	Download, Open time.Duration
}

const (
	// RestoringDir is the directory of the files until the store is complete. It is next to the
	// generations, so that a rename moves the store to its place. A starting service recognizes it
	// as scratch by the prefix of its name, and removes it.
	RestoringDir = "shadow-restoring"
	// firstGeneration is the directory of the generation that is restored.
	firstGeneration = "000001"
	// generationsFile says which generation is live.
	generationsFile = "GENERATIONS"
	// parallelDownloads is how many files are downloaded at a time. One download at a time would
	// mostly wait for the bucket.
	parallelDownloads = 4
	// reservedPart says how much of the free disk a restore leaves unused: one part in this many.
	reservedPart = 20
)

// generationPattern matches the names of the directories of generations.
var generationPattern = regexp.MustCompile(`^[0-9]{6,}$`)

// Restore restores a store from a snapshot. It returns [ErrStore] if the directory has a store
// already. The store appears completely or not at all: after an error, the target is as it was
// before. When the store is opened, it folds the log from the position of the snapshot on.
func Restore(ctx context.Context, o RestoreOptions) (_ RestoreReport, err error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	home := o.FS.PathJoin(o.Dir, o.Projection.Name())
	if err := o.checkNoStore(home); err != nil {
		return RestoreReport{}, err
	}
	m, err := o.findUsableManifest(ctx)
	if err != nil {
		return RestoreReport{}, err
	}

	// If the restore fails, these directories stay: they are empty.
	if err := makeSyncedDir(o.FS, home); err != nil {
		return RestoreReport{}, err
	}
	if err := o.checkDisk(home, m); err != nil {
		return RestoreReport{}, err
	}

	scratch := o.FS.PathJoin(home, RestoringDir)
	if err := o.FS.RemoveAll(scratch); err != nil {
		return RestoreReport{}, err
	}
	defer func() { err = errors.Join(err, o.FS.RemoveAll(scratch)) }()

	done, err := o.downloadStore(ctx, m, scratch)
	if err != nil {
		return RestoreReport{}, err
	}
	downloadDir := done.Dir
	done.Dir = o.FS.PathJoin(home, firstGeneration)

	// A service may have been started, and have made a store, during the download.
	if err := o.checkNoStore(home); err != nil {
		return RestoreReport{}, err
	}
	// What BeforePlacing records must be on disk before the store can be seen.
	if o.BeforePlacing != nil {
		if err := o.BeforePlacing(m); err != nil {
			return RestoreReport{}, err
		}
	}
	if err := o.FS.Rename(downloadDir, done.Dir); err != nil {
		return RestoreReport{}, err
	}
	if err := store.SyncDir(o.FS, home); err != nil {
		// Take the store back, so that nobody opens a store whose name a power cut may remove.
		return RestoreReport{}, errors.Join(err, o.FS.Rename(done.Dir, downloadDir))
	}
	return done, nil
}

// checkNoStore returns [ErrStore] if the directory of a projection has a generation.
func (o *RestoreOptions) checkNoStore(home string) error {
	names, err := o.FS.List(home)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if generationPattern.MatchString(name) || name == generationsFile {
			return fmt.Errorf("%w: %s; to restore the snapshot in its place, remove the directory", ErrStore,
				o.FS.PathJoin(home, name))
		}
	}
	return nil
}

// checkDisk returns [replay.ErrDisk] if the store might fill the disk.
func (o *RestoreOptions) checkDisk(home string, m *Manifest) error {
	usage, err := o.FS.GetDiskUsage(home)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	what := fmt.Sprintf("the store of %s at %s", o.Projection.Name(), home)
	return replay.CheckSpace(what, uint64(m.Bytes()), usage.AvailBytes-usage.AvailBytes/reservedPart)
}

// findUsableManifest returns the manifest of the snapshot, if this program can open the store in it
// and continue it.
func (o *RestoreOptions) findUsableManifest(ctx context.Context) (*Manifest, error) {
	m, err := findManifest(ctx, o.Bucket, o.Snapshot, o.Projection.Name())
	if err != nil {
		return nil, err
	}
	unusable := func(err error) (*Manifest, error) {
		return nil, fmt.Errorf("snapshot %s of %s: %w", m.Snapshot, m.Projection, err)
	}

	// This program must be able to read the files.
	if have := store.NewestFormat(); m.Format.Rows != have.Rows || m.Format.Engine > have.Engine {
		return unusable(fmt.Errorf("%w: rows %d, engine %d; this program knows rows %d, engine %d", ErrFormat,
			m.Format.Rows, m.Format.Engine, have.Rows, have.Engine))
	}

	// The fold of this program must be the one that has built the store. The comparison ignores
	// differences that are allowed.
	own := projections.FingerprintOf(o.Projection)
	own.Partitions = m.Fingerprint.Partitions // the partitions are a property of the store, so any are allowed
	if o.AnySettings {
		own.Settings = m.Fingerprint.Settings
	}
	if c, ok := o.Projection.(projections.VersionReader); ok && c.CanRead(m.Fingerprint) {
		// The program reads rows of that version. The store answers from them until it is rebuilt.
		own.Version = m.Fingerprint.Version
		own.Kinds = m.Fingerprint.Kinds
		own.Settings = sharedSettings(own.Settings, m.Fingerprint.Settings)
	}
	if own.Version != m.Fingerprint.Version {
		return unusable(fmt.Errorf("%w: %d, this program has %d; the store is built from the log",
			ErrVersion, m.Fingerprint.Version, own.Version))
	}
	if diff := m.Fingerprint.Differences(own); diff != "" {
		return unusable(fmt.Errorf("%w: fingerprint %s: %s; restore with what it was built with, or have the store built from the log",
			ErrBuiltDifferently, m.Fingerprint, diff))
	}

	// The position must be one of the log.
	cursor, err := m.Cursor.Parse()
	if err != nil {
		return unusable(err)
	}
	if o.CheckCursor != nil {
		if err := o.CheckCursor(ctx, cursor); err != nil {
			return unusable(err)
		}
	}
	return m, nil
}

// sharedSettings returns the settings with which an earlier version has built a store, but with the
// present values of the settings that still exist. So the comparison ignores the settings that this
// program does not have.
func sharedSettings(own, earlier map[string]string) map[string]string {
	settings := maps.Clone(earlier)
	for key := range settings {
		if value, ok := own[key]; ok {
			settings[key] = value
		}
	}
	return settings
}

// downloadStore downloads the files to a directory below scratch, and opens them as a store.
func (o *RestoreOptions) downloadStore(ctx context.Context, m *Manifest, scratch string) (RestoreReport, error) {
	done := RestoreReport{Manifest: m, Dir: o.FS.PathJoin(scratch, m.Projection, firstGeneration)}
	if err := o.FS.MkdirAll(done.Dir, 0o700); err != nil {
		return done, err
	}

	o.Progress.StartPhase(replay.Writing, "bytes", uint64(m.Bytes()))
	startTime := time.Now()
	g, downloadCtx := errgroup.WithContext(ctx)
	g.SetLimit(parallelDownloads)
	for _, f := range m.Files {
		g.Go(func() error {
			if err := o.downloadFile(downloadCtx, done.Dir, f); err != nil {
				return fmt.Errorf("snapshot %s of %s, file %s: %w", m.Snapshot, m.Projection, f.Name, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return done, err
	}
	// Each file was synced. Sync their names, too, before the store is moved to its place.
	if err := store.SyncDir(o.FS, done.Dir); err != nil {
		return done, err
	}
	done.Download = time.Since(startTime)

	startTime = time.Now()
	store, err := o.openAndCompare(m, scratch)
	if err != nil {
		return done, err
	}
	done.Open = time.Since(startTime)
	return done, store.Close()
}

// openAndCompare opens the downloaded store for reading, and compares its position and fingerprint
// with those in the manifest.
func (o *RestoreOptions) openAndCompare(m *Manifest, scratch string) (*store.Store, error) {
	store, err := store.Open(store.Options{
		FS: o.FS, Dir: scratch, Projection: o.Projection, Partitioned: true, ReadOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot %s of %s: %w", m.Snapshot, m.Projection, err)
	}

	cursor := cursorOf(store.Cursor())
	difference := store.Fingerprint().Differences(m.Fingerprint)
	if cursor != m.Cursor || difference != "" {
		err := fmt.Errorf("%w: snapshot %s of %s: the store is at %+v, the manifest says %+v; %s", ErrDamaged,
			m.Snapshot, m.Projection, cursor, m.Cursor, difference)
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// downloadFile writes one file to disk and syncs it. It returns [ErrDamaged] if the size or the
// checksum differ from those in the manifest.
func (o *RestoreOptions) downloadFile(ctx context.Context, dir string, f File) (err error) {
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
	// Read one byte more than the size in the manifest, so that an object that is too long is
	// noticed.
	in := &throttledReader{ctx: ctx, r: io.LimitReader(r, f.Size+1), pace: o.Pace, h: h}
	n, err := io.Copy(out, &progressReader{in, o.Progress})
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); n != f.Size || sum != f.SHA256 {
		return fmt.Errorf("%w: the object %s in %s has %d bytes with the checksum %s, the manifest says %d",
			ErrDamaged, f.object(), o.Bucket, n, sum, f.Size)
	}
	return nil
}

// progressReader adds the bytes that are read to the progress.
type progressReader struct {
	r io.Reader
	p *replay.Progress
}

// Read implements io.Reader.
func (c *progressReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.Add(uint64(n))
	return n, err
}

// makeSyncedDir creates a directory and its missing parents, and syncs the directories that contain
// them.
func makeSyncedDir(fsys store.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	above := fsys.PathDir(dir)
	if above != dir {
		if err := makeSyncedDir(fsys, above); err != nil {
			return err
		}
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return store.SyncDir(fsys, above)
}
