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
	// Name returns the name of the projection.
	Name() string
	// Dir returns the directory of the files.
	Dir() string
	// Fingerprint returns that of the fold and settings that have built the store.
	Fingerprint() projections.Fingerprint
	// Checkpoint copies the files to dir, and returns the position of the copy; see [store.Store.Checkpoint].
	Checkpoint(ctx context.Context, dir string) (events.Cursor, error)
}

// Taken is the snapshot of one projection.
type Taken struct {
	Manifest *Manifest
	// Uploaded is the number of bytes that the bucket did not have before.
	Uploaded int64
}

// taking is a snapshot while it is taken.
type taking struct {
	bucket  bucket.Bucket
	fs      store.FS
	scratch string
	pace    replay.Pace
	sums    *sums
	p       *replay.Progress

	name      string
	now       time.Time
	scheduled bool
	erased    *Erased

	// there has the files in the bucket, with their sizes in bytes.
	there map[string]int64
}

// copied is the copy of a store.
type copied struct {
	store  Store
	dir    string
	cursor events.Cursor
	format store.FileFormat
	files  []copiedFile
}

type copiedFile struct {
	name string
	size int64
}

// run takes a snapshot of the stores. It copies all of them first, so that their positions are close together. Then it uploads, for each
// store, the files and at last the manifest. A store that has folded nothing is left out.
func (t *taking) run(ctx context.Context, stores []Store) (done []Taken, err error) {
	if err := t.look(ctx, stores); err != nil {
		return nil, err
	}
	if err := t.fs.RemoveAll(t.scratch); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.fs.RemoveAll(t.scratch)) }()
	t.p.StartPhase(replay.Writing, "bytes", 0)
	var copies []copied
	var total uint64
	for _, s := range stores {
		c, err := t.copy(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
		if c.cursor.Seq == 0 {
			continue
		}
		for _, f := range c.files {
			total += uint64(f.size)
		}
		copies = append(copies, c)
	}
	t.p.SetTotal(total)
	for _, c := range copies {
		one, err := t.upload(ctx, c)
		if err != nil {
			return done, fmt.Errorf("%s: %w", c.store.Name(), err)
		}
		done = append(done, one)
		if err := t.fs.RemoveAll(c.dir); err != nil {
			return done, err
		}
	}
	return done, nil
}

// look lists the files in the bucket, and returns [ErrExists] if the name is taken.
func (t *taking) look(ctx context.Context, stores []Store) error {
	old, err := t.bucket.List(ctx, manifestPrefix+t.name+"/")
	if err != nil {
		return err
	}
	for _, o := range old {
		if slices.ContainsFunc(stores, func(s Store) bool { return o.Name == manifestName(t.name, s.Name()) }) {
			return fmt.Errorf("%w: %s in %s", ErrExists, o.Name, t.bucket)
		}
	}
	t.there, err = listFiles(ctx, t.bucket)
	return err
}

func listFiles(ctx context.Context, b bucket.Bucket) (map[string]int64, error) {
	list, err := b.List(ctx, filePrefix)
	if err != nil {
		return nil, err
	}
	there := make(map[string]int64, len(list))
	for _, o := range list {
		there[o.Name] = o.Size
	}
	return there, nil
}

func (t *taking) copy(ctx context.Context, s Store) (c copied, err error) {
	c = copied{store: s, dir: t.fs.PathJoin(t.scratch, s.Name())}
	if c.cursor, err = s.Checkpoint(ctx, c.dir); err != nil {
		return c, err
	}
	if c.format, err = store.FormatOf(t.fs, c.dir); err != nil {
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

// upload uploads the files of a copy that the bucket does not have, checks that the bucket lists all of them, then writes the manifest.
func (t *taking) upload(ctx context.Context, c copied) (Taken, error) {
	m := &Manifest{
		Snapshot: t.name, Projection: c.store.Name(), Time: t.now, Scheduled: t.scheduled, Cursor: cursorOf(c.cursor),
		Fingerprint: c.store.Fingerprint(), Format: c.format, Erased: t.erased,
	}
	var uploaded int64
	for _, file := range c.files {
		f, err := t.sum(ctx, c, file)
		if err != nil {
			return Taken{}, fmt.Errorf("read %s: %w", file.name, err)
		}
		if size, ok := t.there[f.object()]; !ok || size != f.Size {
			if err := t.put(ctx, c.dir, f); err != nil {
				return Taken{}, fmt.Errorf("write %s to %s: %w", file.name, t.bucket, err)
			}
			uploaded += f.Size
		}
		m.Files = append(m.Files, f)
		t.p.Add(uint64(f.Size))
	}
	if err := t.verify(ctx, m); err != nil {
		return Taken{}, err
	}
	data, err := m.encode()
	if err != nil {
		return Taken{}, err
	}
	err = t.bucket.Put(ctx, manifestName(m.Snapshot, m.Projection), strings.NewReader(string(data)), int64(len(data)))
	if err != nil {
		return Taken{}, fmt.Errorf("write the manifest to %s: %w", t.bucket, err)
	}
	return Taken{Manifest: m, Uploaded: uploaded}, nil
}

// verify checks that the bucket lists every file of a manifest, with its size. It comes before the manifest is written, since the list
// from the begin of the snapshot is old by now.
func (t *taking) verify(ctx context.Context, m *Manifest) (err error) {
	if t.there, err = listFiles(ctx, t.bucket); err != nil {
		return err
	}
	for _, f := range m.Files {
		if size, ok := t.there[f.object()]; !ok || size != f.Size {
			return fmt.Errorf("%w: %s was written to %s with %d bytes, it lists %d", ErrDamaged, f.object(), t.bucket, f.Size, size)
		}
	}
	return nil
}

// sum returns the name, size and checksum of a file. Tables never change, so their checksums are cached.
func (t *taking) sum(ctx context.Context, c copied, file copiedFile) (File, error) {
	f := File{Name: file.name, Size: file.size}
	table := path.Ext(file.name) == ".sst"
	key := sumKey{c.store.Dir(), file.name, file.size}
	if table {
		if f.SHA256 = t.sums.get(key); f.SHA256 != "" {
			return f, nil
		}
	}
	in, err := t.fs.Open(t.fs.PathJoin(c.dir, file.name))
	if err != nil {
		return f, err
	}
	h := sha256.New()
	n, err := io.Copy(h, &paced{ctx: ctx, r: in, pace: t.pace})
	if err = errors.Join(err, in.Close()); err != nil {
		return f, err
	}
	if n != f.Size {
		return f, fmt.Errorf("%w: it has %d bytes, and had %d", ErrDamaged, n, f.Size)
	}
	f.SHA256 = hex.EncodeToString(h.Sum(nil))
	if table {
		t.sums.put(key, f.SHA256)
	}
	return f, nil
}

// put writes a file to the bucket under its checksum, and checks that the bytes it has sent have this checksum.
func (t *taking) put(ctx context.Context, dir string, f File) error {
	in, err := t.fs.Open(t.fs.PathJoin(dir, f.Name))
	if err != nil {
		return err
	}
	h := sha256.New()
	err = t.bucket.Put(ctx, f.object(), &paced{ctx: ctx, r: in, pace: t.pace, h: h}, f.Size)
	if err = errors.Join(err, in.Close()); err != nil {
		return err
	}
	if sum := hex.EncodeToString(h.Sum(nil)); sum != f.SHA256 {
		err := fmt.Errorf("%w: %s has changed on disk: its checksum was %s, is %s", ErrDamaged, f.Name, f.SHA256, sum)
		return errors.Join(err, t.bucket.Delete(ctx, f.object()))
	}
	return nil
}

// paced reads no faster than the pace allows, and hashes what it reads.
type paced struct {
	ctx    context.Context //nolint:containedctx // a reader has no other way to end early
	r      io.Reader
	pace   replay.Pace
	h      hash.Hash
	worked time.Duration
}

// restEvery is the shortest work that is worth a pause.
const restEvery = 5 * time.Millisecond

// Read is part of io.Reader.
func (p *paced) Read(b []byte) (int, error) {
	if p.worked >= restEvery {
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
