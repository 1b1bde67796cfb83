package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// Store is a store of which a snapshot can be taken.
type Store interface {
	// Name returns the name of the store's projection.
	Name() string
	// Dir returns the directory that contains the files of the store.
	Dir() string
	// Fingerprint identifies the version and the settings of the fold that has built the store.
	Fingerprint() projections.Fingerprint
	// Checkpoint copies the files to dir, and returns the position of the copy in the log. Where
	// the file system supports it, the copies of tables are hard links. See
	// [store.Store.Checkpoint].
	Checkpoint(ctx context.Context, dir string) (events.Cursor, error)
}

// ProjectionReport describes a snapshot of one projection. There is a report only if the manifest
// was written.
type ProjectionReport struct {
	Manifest *Manifest
	// Uploaded is the total size of the files that were uploaded because the bucket did not have
	// them. The manifest is not included.
	Uploaded int64
}

// snapshotTaker takes one snapshot, of one or more stores.
type snapshotTaker struct {
	bucket bucket.Bucket
	fs     store.FS
	// scratch is the directory for the copies of the stores.
	scratch string
	pace    replay.Pace
	sums    *checksumCache
	// progress counts the bytes of all files, including the files that are not uploaded because the
	// bucket has them.
	progress *replay.Progress

	// These become part of the manifest of every store. See [Manifest].
	name      string
	now       time.Time
	scheduled bool
	erased    *ErasureState

	// filesInBucket maps the names of the objects of files to their sizes in bytes. The bucket is
	// listed at the start, and again after the files of each store were uploaded.
	filesInBucket map[string]int64
}

// storeCopy is the copy of a store in the directory dir.
type storeCopy struct {
	store Store
	dir   string
	// cursor is the position of the copy in the log. The store itself may have folded more.
	cursor events.Cursor
	format store.FileFormat
	files  []copiedFile
}

// copiedFile is a file of a storeCopy. Its size is in bytes.
type copiedFile struct {
	name string
	size int64
}

// takeAll takes a snapshot of the stores. It first copies all stores, so that their positions are
// close together. Then it goes through the copies: it uploads the files of a copy, then its
// manifest, and continues with the next copy. It skips a store that has folded nothing yet. The
// caller holds the claim and makes sure that nobody else uses the scratch directory.
//
// If takeAll fails, it returns the reports of the stores whose manifests it has written. These
// manifests stay in the bucket, so a snapshot may have only some of the stores.
func (t *snapshotTaker) takeAll(ctx context.Context, stores []Store) (done []ProjectionReport, err error) {
	if err := t.listBucket(ctx, stores); err != nil {
		return nil, err
	}
	if err := t.fs.RemoveAll(t.scratch); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.fs.RemoveAll(t.scratch)) }()

	// Copy all stores.
	t.progress.StartPhase(replay.Writing, "bytes", 0)
	var copies []storeCopy
	var total uint64
	for _, s := range stores {
		c, err := t.copyStore(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
		if c.cursor.Seq == 0 {
			continue // the store has folded nothing yet
		}
		for _, f := range c.files {
			total += uint64(f.size)
		}
		copies = append(copies, c)
	}
	t.progress.SetTotal(total)

	for _, c := range copies {
		taken, err := t.uploadCopy(ctx, c)
		if err != nil {
			return done, fmt.Errorf("%s: %w", c.store.Name(), err)
		}
		done = append(done, taken)
		// Remove this copy now, and not at the end: tables that the store has replaced since stay
		// on disk as long as the copy has hard links to them.
		if err := t.fs.RemoveAll(c.dir); err != nil {
			return done, err
		}
	}
	return done, nil
}

// listBucket sets filesInBucket. It returns [ErrExists] if the bucket has a snapshot with the name
// t.name of at least one of the stores. A snapshot with this name of other projections is no
// obstacle.
func (t *snapshotTaker) listBucket(ctx context.Context, stores []Store) error {
	old, err := t.bucket.List(ctx, manifestPrefix+t.name+"/")
	if err != nil {
		return err
	}
	for _, o := range old {
		if slices.ContainsFunc(stores, func(s Store) bool { return o.Name == manifestName(t.name, s.Name()) }) {
			return fmt.Errorf("%w: %s in %s", ErrExists, o.Name, t.bucket)
		}
	}
	t.filesInBucket, err = listFiles(ctx, t.bucket)
	return err
}

// listFiles returns the sizes in bytes of all files in the bucket, by the names of their objects.
// Manifests and claims are not included.
func listFiles(ctx context.Context, b bucket.Bucket) (map[string]int64, error) {
	list, err := b.List(ctx, filePrefix)
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(list))
	for _, o := range list {
		sizes[o.Name] = o.Size
	}
	return sizes, nil
}

// copyStore makes a copy of a store and lists the files of the copy, sorted by name.
func (t *snapshotTaker) copyStore(ctx context.Context, s Store) (c storeCopy, err error) {
	c = storeCopy{store: s, dir: t.fs.PathJoin(t.scratch, s.Name())}
	c.cursor, err = s.Checkpoint(ctx, c.dir)
	if err != nil {
		return c, err
	}
	c.format, err = store.FormatOf(t.fs, c.dir)
	if err != nil {
		return c, err
	}

	names, err := t.fs.List(c.dir)
	if err != nil {
		return c, err
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := t.fs.Stat(t.fs.PathJoin(c.dir, name))
		if err != nil {
			return c, err
		}
		c.files = append(c.files, copiedFile{name: name, size: info.Size()})
	}
	return c, nil
}

// uploadCopy uploads the files of a copy that the bucket does not have. A file that the bucket
// lists with another size counts as one that it does not have, and is replaced. Then uploadCopy
// checks that the bucket lists all files of the copy, and writes the manifest.
func (t *snapshotTaker) uploadCopy(ctx context.Context, c storeCopy) (ProjectionReport, error) {
	m := &Manifest{
		Snapshot:    t.name,
		Projection:  c.store.Name(),
		Time:        t.now,
		Scheduled:   t.scheduled,
		Cursor:      cursorOf(c.cursor),
		Fingerprint: c.store.Fingerprint(),
		Format:      c.format,
		Erased:      t.erased,
	}

	var uploaded int64
	for _, file := range c.files {
		f, err := t.checksum(ctx, c, file)
		if err != nil {
			return ProjectionReport{}, fmt.Errorf("read %s: %w", file.name, err)
		}
		if size, ok := t.filesInBucket[f.object()]; !ok || size != f.Size {
			if err := t.uploadFile(ctx, c.dir, f); err != nil {
				return ProjectionReport{}, fmt.Errorf("write %s to %s: %w", file.name, t.bucket, err)
			}
			uploaded += f.Size
		}
		m.Files = append(m.Files, f)
		t.progress.Add(uint64(f.Size))
	}

	// Write the manifest last, when everything that it names is in the bucket. If the process dies
	// before that, there is no manifest, and the next pruning removes the files.
	if err := t.checkUploaded(ctx, m); err != nil {
		return ProjectionReport{}, err
	}

	data, err := m.encode()
	if err != nil {
		return ProjectionReport{}, err
	}
	err = t.bucket.Put(ctx, manifestName(m.Snapshot, m.Projection), strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		return ProjectionReport{}, fmt.Errorf("write the manifest to %s: %w", t.bucket, err)
	}
	return ProjectionReport{Manifest: m, Uploaded: uploaded}, nil
}

// checkUploaded returns [ErrDamaged] unless the bucket lists every file of a manifest with its
// size. It lists the bucket again, because the last list does not have the files that were uploaded
// since, and may have files that somebody has removed since without a claim. The new list replaces
// filesInBucket. checkUploaded does not read the files.
func (t *snapshotTaker) checkUploaded(ctx context.Context, m *Manifest) (err error) {
	t.filesInBucket, err = listFiles(ctx, t.bucket)
	if err != nil {
		return err
	}
	for _, f := range m.Files {
		if size, ok := t.filesInBucket[f.object()]; !ok || size != f.Size {
			return fmt.Errorf("%w: %s was written to %s with %d bytes, it lists %d", ErrDamaged, f.object(), t.bucket, f.Size, size)
		}
	}
	return nil
}

// checksum returns the name, size and checksum of a file. A table never changes once it is written,
// so checksum caches the checksums of tables, and does not read a table again for the next
// snapshot. It reads all other files every time. It returns [ErrDamaged] if a file does not have
// the size that it had when copyStore listed it.
func (t *snapshotTaker) checksum(ctx context.Context, c storeCopy, file copiedFile) (File, error) {
	f := File{Name: file.name, Size: file.size}
	isTable := path.Ext(file.name) == ".sst"
	key := tableKey{c.store.Dir(), file.name, file.size}
	if isTable {
		f.SHA256 = t.sums.get(key)
		if f.SHA256 != "" {
			return f, nil
		}
	}

	in, err := t.fs.Open(t.fs.PathJoin(c.dir, file.name))
	if err != nil {
		return f, err
	}
	// The hash is computed before the upload, because it is the name of the object.
	h := sha256.New()
	n, err := io.Copy(h, &throttledReader{ctx: ctx, r: in, pace: t.pace})
	if err = errors.Join(err, in.Close()); err != nil {
		return f, err
	}

	if n != f.Size {
		return f, fmt.Errorf("%w: it has %d bytes, and had %d", ErrDamaged, n, f.Size)
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	if isTable {
		t.sums.put(key, f.SHA256)
	}
	return f, nil
}

// uploadFile uploads a file to the object that is named after the checksum f.SHA256. Afterwards it
// compares the bytes that it has sent with f.SHA256, because the file is read a second time here,
// or its checksum is from the cache. If they differ, it deletes the object and returns
// [ErrDamaged].
func (t *snapshotTaker) uploadFile(ctx context.Context, dir string, f File) error {
	in, err := t.fs.Open(t.fs.PathJoin(dir, f.Name))
	if err != nil {
		return err
	}
	h := sha256.New()
	err = t.bucket.Put(ctx, f.object(), &throttledReader{ctx: ctx, r: in, pace: t.pace, h: h}, f.Size)
	if err = errors.Join(err, in.Close()); err != nil {
		return err
	}

	if sum := hex.EncodeToString(h.Sum(nil)); sum != f.SHA256 {
		err := fmt.Errorf("%w: %s has changed on disk: its checksum was %s, is %s", ErrDamaged, f.Name, f.SHA256, sum)
		return errors.Join(err, t.bucket.Delete(ctx, f.object()))
	}
	return nil
}

// throttledReader reads from r and rests between reads as the pace requires. It also hashes what it
// reads, if h is not nil. Only the time in the Read method of r and in h counts as work, even if r
// waits for a disk or a network. What the caller does with the bytes does not count.
type throttledReader struct {
	ctx    context.Context //nolint:containedctx // a reader has no other way to end early
	r      io.Reader
	pace   replay.Pace
	h      hash.Hash
	worked time.Duration // the work since the last rest
}

// minWork is how long a throttledReader works at least before it rests. Timers are too coarse for
// the short rests that less work would require.
const minWork = 5 * time.Millisecond

// Read implements [io.Reader]. It fails with the error of the context once the context has ended,
// but does not interrupt a read that has begun.
func (p *throttledReader) Read(b []byte) (int, error) {
	if p.worked >= minWork {
		if err := p.pace.Rest(p.ctx, p.worked); err != nil {
			return 0, err
		}
		p.worked = 0
	}
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}

	began := time.Now()
	n, err := p.r.Read(b)
	if p.h != nil {
		p.h.Write(b[:n])
	}
	p.worked += time.Since(began)
	return n, err
}
