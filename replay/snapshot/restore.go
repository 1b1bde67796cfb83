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

// ErrStore means that the target directory of a restore has a store of the projection already. A
// restore never replaces a store.
var ErrStore = errors.New("snapshot: there is a store already")

// RestoreOptions say which snapshot is restored into which directory.
type RestoreOptions struct {
	Bucket bucket.Bucket
	// Snapshot is the name of the snapshot; empty means the latest one of the projection.
	Snapshot string
	// Projection is the projection whose snapshot is restored. Its version and settings must be
	// those of the snapshot, except for AnySettings, and except for versions that the projection
	// can read as a [projections.VersionReader].
	Projection projections.Projection
	// FS is the file system; nil means the disk.
	FS store.FS
	// Dir is the directory that contains the stores of all projections. The store is restored to
	// the subdirectory that has the name of the projection.
	Dir string
	// CheckCursor returns an error if the log cannot be read from the position of the snapshot on,
	// as [events.Log.CheckCursor] does. It is called before any file is downloaded. nil accepts
	// every position.
	CheckCursor func(context.Context, events.Cursor) error
	// BeforePlacing is called when the files were downloaded and checked, just before the store
	// appears in Dir. If it returns an error, the store does not appear. It may be nil.
	BeforePlacing func(*Manifest) error
	// Pace limits each of the downloads that run in parallel by itself, and not their total.
	Pace replay.Pace
	// Progress counts the downloaded bytes. It may be nil.
	Progress *replay.Progress

	// AnySettings accepts a store that was built with other settings. Such a store can only be
	// opened for reading: [store.Open] refuses to open it for folding.
	AnySettings bool
}

// RestoreReport describes a store that was restored.
type RestoreReport struct {
	Manifest *Manifest
	// Dir is the directory of the files of the store.
	Dir string
	// Download is how long it took to read the files from the bucket, to check them and to write
	// them. Open is how long it took to open the store and to compare it with the manifest.
	Download, Open time.Duration
}

const (
	// RestoringDir is the name of the directory in which Restore assembles the store. It is in the
	// directory of the projection, next to the generations, so it is on the same file system, and a
	// rename can move the complete store to its place. If a restore is killed, the directory stays.
	// The next restore removes it, and so does the next start of the service, which removes
	// directories whose names begin with "shadow-".
	RestoringDir = "shadow-restoring"
	// firstGeneration is the name of the directory of generation 1. A restored store becomes
	// generation 1, whatever generation the snapshot was taken of.
	firstGeneration = "000001"
	// generationsFile is the name of the file that says which generation is live. A restore does
	// not write the file: without it, the highest generation is live, and a restored store is the
	// only generation.
	generationsFile = "GENERATIONS"
	// parallelDownloads is how many files are downloaded at a time. One download at a time would
	// mostly wait for the bucket.
	parallelDownloads = 4
	// reservedPart says how much of the free space on the disk a restore must leave free: the space
	// divided by reservedPart, which is 5 %.
	reservedPart = 20
)

// generationPattern matches the names of the directories of generations.
var generationPattern = regexp.MustCompile(`^[0-9]{6,}$`)

// Restore restores the store of one projection from a snapshot. It returns [ErrStore] if there is a
// store of the projection in Dir already. It downloads the files to a scratch directory, checks
// them, and moves the complete store to its place. So the store appears completely or not at all.
// Whoever opens the store for folding continues with the log at the position of the snapshot.
//
// After an error other than [ErrStore] there is no store, with two exceptions: the scratch
// directory could not be removed after the store was moved, or the move could not be made durable
// and could not be undone either.
// Restore does not undo what BeforePlacing has done, and it does not remove directories that it has
// created on the way to the store.
//
// No other restore of the projection to the same Dir may run at the same time, because it would use
// the same scratch directory.
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

	// If the restore fails, the directories that makeSyncedDir creates stay. They are empty and do
	// no harm.
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

	// Check again: a service may have been started during the download, and have made a store.
	if err := o.checkNoStore(home); err != nil {
		return RestoreReport{}, err
	}
	// Call BeforePlacing before the rename. The caller may record something about the store, and
	// the record must be on disk before a service can find the store.
	if o.BeforePlacing != nil {
		if err := o.BeforePlacing(m); err != nil {
			return RestoreReport{}, err
		}
	}
	if err := o.FS.Rename(downloadDir, done.Dir); err != nil {
		return RestoreReport{}, err
	}
	if err := store.SyncDir(o.FS, home); err != nil {
		// Move the store back to the scratch directory, which is removed. The rename is not known
		// to be on disk, so after a power cut the store could be gone although somebody has used
		// it.
		return RestoreReport{}, errors.Join(err, o.FS.Rename(done.Dir, downloadDir))
	}
	return done, nil
}

// checkNoStore returns [ErrStore] if home, the directory of the projection, has a generation or the
// file that says which generation is live. It returns nil if home does not exist.
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

// checkDisk returns [replay.ErrDisk] if the disk does not have enough free space for the files of
// the manifest and for the reserve (see reservedPart). It returns nil if the file system does not
// say how much space is free.
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

// findUsableManifest returns the manifest of the snapshot, or an error if this program cannot use
// the store. It checks the format of the files, the fingerprint, and the position in the log. With
// AnySettings, or if an earlier version has built the store and Projection can read the rows of
// that version, it accepts a store that this program can read but not continue to fold.
func (o *RestoreOptions) findUsableManifest(ctx context.Context) (*Manifest, error) {
	m, err := findManifest(ctx, o.Bucket, o.Snapshot, o.Projection.Name())
	if err != nil {
		return nil, err
	}
	unusable := func(err error) (*Manifest, error) {
		return nil, fmt.Errorf("snapshot %s of %s: %w", m.Snapshot, m.Projection, err)
	}

	// This program must be able to read the files. It reads only its own version of the rows, but
	// also older formats of the storage engine than the newest that it knows.
	if have := store.NewestFormat(); m.Format.Rows != have.Rows || m.Format.Engine > have.Engine {
		return unusable(fmt.Errorf("%w: rows %d, engine %d; this program knows rows %d, engine %d", ErrFormat,
			m.Format.Rows, m.Format.Engine, have.Rows, have.Engine))
	}

	// The fold that has built the store must be the one of this program. Some differences are
	// allowed: for each of them, copy the value of the manifest to own, so that the comparison
	// below does not find the difference.
	own := projections.FingerprintOf(o.Projection)
	own.Partitions = m.Fingerprint.Partitions // the partitions are a property of the store, so any are allowed
	if o.AnySettings {
		own.Settings = m.Fingerprint.Settings
	}
	if c, ok := o.Projection.(projections.VersionReader); ok && c.CanRead(m.Fingerprint) {
		// The queries of the program can read the rows of this version. If it is an earlier one,
		// the service answers from the restored store, and folds nothing into it, until it is
		// rebuilt.
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

	// The log must have the position, so that the fold can continue there.
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

// sharedSettings returns the settings with which this program is compared to a store that another
// version of the fold may have built. They have exactly the keys of earlier, the settings of the
// store. A key that is also in own, the settings of this program, has the value of own, so the
// comparison finds a difference if the values differ. The comparison ignores settings that only one
// of the two has, because a version may add or remove settings.
func sharedSettings(own, earlier map[string]string) map[string]string {
	settings := maps.Clone(earlier)
	for key := range settings {
		if value, ok := own[key]; ok {
			settings[key] = value
		}
	}
	return settings
}

// downloadStore downloads the files to the directory scratch/PROJECTION/000001, opens them as a
// store in scratch, compares the store with the manifest, and closes it. The Dir of the report that
// it returns is this directory.
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
	// downloadFile has synced the content of each file. Sync the directory, too: otherwise, after
	// the store was moved to its place, a power cut could remove files from it.
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

// openAndCompare opens the downloaded store for reading only, and returns [ErrDamaged] if its
// position or its fingerprint differs from that in the manifest. The caller must close the store.
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

// downloadFile downloads one file of the store to dir and syncs its content. It returns
// [ErrDamaged] if the object is missing, or if its size or checksum differs from that in the
// manifest. After an error, a part of the file may be in dir.
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
	// Read at most one byte more than the size in the manifest. This byte shows that an object is
	// too long, and an object of any length cannot fill the disk.
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

// progressReader reads from r, and adds the number of bytes that it has read to p.
type progressReader struct {
	r io.Reader
	p *replay.Progress
}

// Read implements [io.Reader].
func (c *progressReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.Add(uint64(n))
	return n, err
}

// makeSyncedDir creates a directory and those of its parents that do not exist. For each directory
// that it creates, it syncs the directory that contains the new one, so that a power cut does not
// remove it. It syncs nothing for directories that exist already.
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
