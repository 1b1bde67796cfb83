package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/store"
)

// Errors. They are returned wrapped, with the names of snapshots and objects.
var (
	// ErrNone means that there is no such snapshot.
	ErrNone = errors.New("snapshot: no such snapshot")
	// ErrExists means that there is a snapshot of that name already.
	ErrExists = errors.New("snapshot: there is a snapshot of that name")
	// ErrDamaged means that an object does not have the content that was written.
	ErrDamaged = errors.New("snapshot: damaged")
	// ErrFormat means that this program does not know the format of an object or store.
	ErrFormat = errors.New("snapshot: unknown format")
	// ErrVersion means that a version of the fold has built the store whose rows this program does not read.
	ErrVersion = errors.New("snapshot: of another version")
	// ErrBuiltDifferently means that the store was built by another fold or with other settings.
	ErrBuiltDifferently = errors.New("snapshot: built differently")
	// ErrBusy means that another snapshot is being taken or removed.
	ErrBusy = errors.New("snapshot: another one is at work")
	// ErrName means that a text is not a valid name of a snapshot.
	ErrName = errors.New("snapshot: a name has at most 128 of the characters a-z, 0-9, \".\" \"_\" and \"-\", " +
		"a letter or digit first")
)

// Prefixes of objects in the bucket.
const (
	manifestPrefix = "snapshots/"      // <name>/<projection>.json
	filePrefix     = "snapshot-files/" // <sha256 of the content, hexadecimal>
	claimPrefix    = "snapshot-claims/"
	manifestSuffix = ".json"
)

// manifestFormat is the version of the encoding of manifests.
const manifestFormat = 1

// maxManifest is the largest manifest that is read, in bytes: a store of a terabyte has some 20 000 tables.
const maxManifest = 64 << 20

// maxFiles and maxBytes bound the files that a manifest may name. No store has as many.
const (
	maxFiles = 1 << 18
	maxBytes = 1 << 50
)

// Manifest describes the snapshot of one projection.
type Manifest struct {
	Snapshot   string `json:"snapshot"`
	Projection string `json:"projection"`
	// Time is when it was taken, by the clock of the process.
	Time time.Time `json:"time"`
	// Scheduled reports whether pruning may remove it. A snapshot that was taken on request stays until it is removed by name.
	Scheduled bool   `json:"scheduled"`
	Cursor    Cursor `json:"cursor"`
	// Fingerprint is that of the fold and settings that have built the store.
	Fingerprint projections.Fingerprint `json:"fingerprint"`
	Format      store.FileFormat        `json:"store_format"`
	// Erased is that of the node that took it; nil means that the process was no node of a cluster.
	Erased *Erased `json:"erased,omitempty"`
	// Files are the files of the store, sorted by name.
	Files []File `json:"files"`
}

// Erased says which erasures of users the stores of a node have gone through (package erase).
type Erased struct {
	// Epoch: no file of the stores has anything that was scrubbed from the epochs before it.
	Epoch uint32 `json:"epoch"`
	// Flushed: the stores have folded the deletions up to this sequence from the log as it was before these users were erased.
	Flushed uint64 `json:"flushed"`
}

// File is a file of a store.
type File struct {
	Name string `json:"name"`
	// Size in bytes.
	Size int64 `json:"size"`
	// SHA256 is the hash of the content, in hexadecimal digits. It is part of the object's name.
	SHA256 string `json:"sha256"`
}

func (f File) object() string { return filePrefix + f.SHA256 }

// Bytes returns the size of the store in bytes.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Cursor is an [events.Cursor] in the encoding of a manifest.
type Cursor struct {
	Log      string        `json:"log"`
	Epoch    uint32        `json:"epoch"`
	Seq      uint64        `json:"seq"`
	Checksum string        `json:"checksum"`
	LastTime events.Micros `json:"last_time"`
	WarmSeq  uint64        `json:"warm_seq"`
	WarmTime events.Micros `json:"warm_time"`
}

func cursorOf(c events.Cursor) Cursor {
	return Cursor{
		Log: hex.EncodeToString(c.Log[:]), Epoch: c.Epoch, Seq: c.Seq, Checksum: fmt.Sprintf("%016x", c.Checksum),
		LastTime: c.LastTime, WarmSeq: c.WarmSeq, WarmTime: c.WarmTime,
	}
}

// Parse returns the cursor.
func (c Cursor) Parse() (events.Cursor, error) {
	out := events.Cursor{Epoch: c.Epoch, Seq: c.Seq, LastTime: c.LastTime, WarmSeq: c.WarmSeq, WarmTime: c.WarmTime}
	id, err := hex.DecodeString(c.Log)
	if err != nil || len(id) != len(out.Log) {
		return events.Cursor{}, fmt.Errorf("%w: log id %q", ErrDamaged, c.Log)
	}
	copy(out.Log[:], id)
	if _, err := fmt.Sscanf(c.Checksum, "%16x", &out.Checksum); err != nil {
		return events.Cursor{}, fmt.Errorf("%w: checksum %q", ErrDamaged, c.Checksum)
	}
	return out, nil
}

// envelope is the object of a manifest: the manifest and its checksum.
type envelope struct {
	Format int `json:"format"`
	// SHA256 of the bytes of Manifest.
	SHA256   string          `json:"sha256"`
	Manifest json.RawMessage `json:"manifest"`
}

func (m *Manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return json.Marshal(envelope{Format: manifestFormat, SHA256: hex.EncodeToString(sum[:]), Manifest: body})
}

// decodeManifest decodes a manifest. It accepts only the bytes that encode writes; all others are [ErrDamaged].
func decodeManifest(data []byte) (*Manifest, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if e.Format != manifestFormat {
		return nil, fmt.Errorf("%w: version %d of a manifest, this program knows %d", ErrFormat, e.Format, manifestFormat)
	}
	if sum := sha256.Sum256(e.Manifest); hex.EncodeToString(sum[:]) != e.SHA256 {
		return nil, fmt.Errorf("%w: the manifest has another checksum than it says", ErrDamaged)
	}
	var m Manifest
	if err := json.Unmarshal(e.Manifest, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, data) {
		return nil, fmt.Errorf("%w: the manifest is not as it was written", ErrDamaged)
	}
	return &m, m.check()
}

var (
	sumForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	fileForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)
)

// check rejects a manifest that cannot be restored safely. File names become paths, so they must not leave the directory.
func (m *Manifest) check() error {
	if _, err := m.Cursor.Parse(); err != nil {
		return err
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("%w: the manifest names %d files, and a store has at most %d", ErrDamaged, len(m.Files), maxFiles)
	}
	seen := map[string]bool{}
	total := int64(0)
	for _, f := range m.Files {
		if f.Size > maxBytes-total {
			return fmt.Errorf("%w: the manifest names files of more than %d bytes", ErrDamaged, int64(maxBytes))
		}
		total += max(f.Size, 0)
		if !fileForm.MatchString(f.Name) || !sumForm.MatchString(f.SHA256) || f.Size < 0 || seen[f.Name] {
			return fmt.Errorf("%w: the manifest names the file %q", ErrDamaged, f.Name)
		}
		seen[f.Name] = true
	}
	return nil
}

func manifestName(snapshot, projection string) string {
	return manifestPrefix + snapshot + "/" + projection + manifestSuffix
}

// parseManifestName is the reverse of manifestName.
func parseManifestName(object string) (snapshot, projection string, ok bool) {
	rest, ok1 := strings.CutPrefix(object, manifestPrefix)
	rest, ok2 := strings.CutSuffix(rest, manifestSuffix)
	snapshot, projection = path.Split(rest)
	snapshot = strings.TrimSuffix(snapshot, "/")
	return snapshot, projection, ok1 && ok2 && nameForm.MatchString(snapshot) && projection != ""
}

// readManifest reads the manifest in an object. It must belong to the snapshot and projection in the object's name.
func readManifest(ctx context.Context, b bucket.Bucket, object string) (m *Manifest, err error) {
	r, err := b.Get(ctx, object, 0, -1)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s in %s", ErrNone, object, b)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	data, err := io.ReadAll(io.LimitReader(r, maxManifest))
	if err != nil {
		return nil, err
	}
	m, err = decodeManifest(data)
	if err == nil && manifestName(m.Snapshot, m.Projection) != object {
		err = fmt.Errorf("%w: it is that of %s", ErrDamaged, manifestName(m.Snapshot, m.Projection))
	}
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", object, b, err)
	}
	return m, nil
}

// Listed is an entry of [List]: the snapshot of one projection.
type Listed struct {
	Snapshot, Projection string
	// Manifest is nil if it cannot be read; Err says why.
	Manifest *Manifest
	Err      error
	// Time is the time of the manifest, or of its object if it cannot be read.
	Time time.Time
}

// List returns the snapshots of all projections, sorted by time, the latest last. Snapshots whose manifest cannot be read are included.
func List(ctx context.Context, b bucket.Bucket) ([]Listed, error) {
	objects, err := b.List(ctx, manifestPrefix)
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, o := range objects {
		snapshot, projection, ok := parseManifestName(o.Name)
		if !ok {
			continue
		}
		l := Listed{Snapshot: snapshot, Projection: projection, Time: o.Time}
		l.Manifest, l.Err = readManifest(ctx, b, o.Name)
		switch {
		case errors.Is(l.Err, ErrNone):
			continue // removed meanwhile
		case l.Err != nil && !errors.Is(l.Err, ErrDamaged) && !errors.Is(l.Err, ErrFormat):
			return nil, l.Err // the bucket fails, so that the list would not be complete
		case l.Err == nil:
			l.Time = l.Manifest.Time
		}
		list = append(list, l)
	}
	sortByTime(list)
	return list, nil
}
