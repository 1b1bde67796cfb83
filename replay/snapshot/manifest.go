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

// Errors of this package. They are returned wrapped, in errors that name the snapshot or object.
var (
	// ErrNone means that there is no such snapshot.
	ErrNone = errors.New("snapshot: no such snapshot")
	// ErrExists means that there already is a snapshot of that name.
	ErrExists = errors.New("snapshot: there is a snapshot of that name")
	// ErrDamaged means that an object does not have the content that was written to it.
	ErrDamaged = errors.New("snapshot: damaged")
	// ErrFormat means that an object or store has a format that this program does not know.
	ErrFormat = errors.New("snapshot: unknown format")
	// ErrVersion means that the store was built by a version of the projection whose rows this
	// program cannot read.
	ErrVersion = errors.New("snapshot: of another version")
	// ErrBuiltDifferently means that the store was built by another fold or with other settings.
	ErrBuiltDifferently = errors.New("snapshot: built differently")
	// ErrBusy means that another snapshot is being taken or removed. A later attempt may succeed.
	ErrBusy = errors.New("snapshot: another one is at work")
	// ErrRebuildPending means that the stores must be rebuilt before a snapshot of them is taken. A
	// later attempt may succeed.
	ErrRebuildPending = errors.New("snapshot: the stores must be rebuilt first")
	// ErrName means that a text is not a valid name for a snapshot.
	ErrName = errors.New("snapshot: a name has at most 128 of the characters a-z, 0-9, \".\" \"_\" and \"-\", " +
		"a letter or digit first")
)

// The prefixes of the objects in the bucket.
const (
	manifestPrefix = "snapshots/"      // <name>/<projection>.json
	filePrefix     = "snapshot-files/" // <sha256 of the content, hexadecimal>
	claimPrefix    = "snapshot-claims/"
	manifestSuffix = ".json"
)

// manifestFormat is the version of the format of manifests.
const manifestFormat = 1

// maxManifestBytes is the size of the largest manifest that is read. The manifest of a store of one
// terabyte names about 20 000 tables, and is smaller.
const maxManifestBytes = 64 << 20

// maxFiles and maxStoreBytes limit the number and the total size of the files that a manifest may
// name. No store reaches them.
const (
	maxFiles      = 1 << 18
	maxStoreBytes = 1 << 50
)

// Manifest describes the snapshot of one projection.
type Manifest struct {
	Snapshot   string `json:"snapshot"`
	Projection string `json:"projection"`
	// Time is when the snapshot was taken, by the clock of the process.
	Time time.Time `json:"time"`
	// Scheduled says whether pruning may remove the snapshot. A snapshot that was taken on request
	// stays until it is removed by its name.
	Scheduled bool   `json:"scheduled"`
	Cursor    Cursor `json:"cursor"`
	// Fingerprint identifies the version and the settings of the fold that has built the store.
	Fingerprint projections.Fingerprint `json:"fingerprint"`
	Format      store.FileFormat        `json:"store_format"`
	// Erased says which erasures the stores of the node have gone through. nil means that the
	// process was not a node of a cluster.
	Erased *ErasureState `json:"erased,omitempty"`
	// Files are the files of the store, sorted by name.
	Files []File `json:"files"`
}

// ErasureState says which erasures of users the stores of a node have gone through. See package
// erase.
type ErasureState struct {
	// Epoch means that no file of the stores contains anything that was scrubbed from the epochs
	// before this one.
	Epoch uint32 `json:"epoch"`
	// Flushed means that the stores have folded all deletions up to this sequence from the log as
	// it was before the deleted users were erased.
	Flushed uint64 `json:"flushed"`
}

// File is a file of a store.
type File struct {
	Name string `json:"name"`
	// Size is the size in bytes.
	Size int64 `json:"size"`
	// SHA256 is the hash of the content, in hexadecimal digits. It is part of the name of the
	// object.
	SHA256 string `json:"sha256"`
}

// object returns the name of the object that has the content of the file.
func (f File) object() string { return filePrefix + f.SHA256 }

// Bytes returns the total size of the files.
func (m *Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Cursor is an [events.Cursor] in the form in which manifests contain it.
type Cursor struct {
	Log      string        `json:"log"`
	Epoch    uint32        `json:"epoch"`
	Seq      uint64        `json:"seq"`
	Checksum string        `json:"checksum"`
	LastTime events.Micros `json:"last_time"`
	WarmSeq  uint64        `json:"warm_seq"`
	WarmTime events.Micros `json:"warm_time"`
}

// cursorOf returns a cursor in the form of manifests.
func cursorOf(c events.Cursor) Cursor {
	return Cursor{
		Log:      hex.EncodeToString(c.Log[:]),
		Epoch:    c.Epoch,
		Seq:      c.Seq,
		Checksum: fmt.Sprintf("%016x", c.Checksum),
		LastTime: c.LastTime,
		WarmSeq:  c.WarmSeq,
		WarmTime: c.WarmTime,
	}
}

// Parse returns the cursor as an [events.Cursor], or [ErrDamaged].
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

// manifestObject is the content of the object of a manifest: the manifest together with its
// checksum.
type manifestObject struct {
	Format int `json:"format"`
	// SHA256 is the hash of the bytes of Manifest.
	SHA256   string          `json:"sha256"`
	Manifest json.RawMessage `json:"manifest"`
}

// encode returns the content of the object of the manifest.
func (m *Manifest) encode() ([]byte, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return json.Marshal(manifestObject{Format: manifestFormat, SHA256: hex.EncodeToString(sum[:]), Manifest: body})
}

// decodeManifest decodes the content of an object. It returns [ErrDamaged] for all bytes that
// encode would not write.
func decodeManifest(data []byte) (*Manifest, error) {
	var e manifestObject
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if e.Format != manifestFormat {
		return nil, fmt.Errorf("%w: version %d of a manifest, this program knows %d", ErrFormat, e.Format, manifestFormat)
	}
	if sum := sha256.Sum256(e.Manifest); hex.EncodeToString(sum[:]) != e.SHA256 {
		return nil, fmt.Errorf("%w: the checksum of the manifest is wrong", ErrDamaged)
	}

	var m Manifest
	if err := json.Unmarshal(e.Manifest, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}

	// Fields that this program does not know would be lost, and could hide damage, so the encoding
	// must be the same.
	if again, err := m.encode(); err != nil || !bytes.Equal(again, data) {
		return nil, fmt.Errorf("%w: the manifest is not as it was written", ErrDamaged)
	}
	return &m, m.check()
}

var (
	sumPattern      = regexp.MustCompile(`^[0-9a-f]{64}$`)
	fileNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	namePattern     = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,127}$`)
)

// check returns [ErrDamaged] if the manifest cannot be restored safely. File names become paths, so
// they must not lead out of the directory.
func (m *Manifest) check() error {
	if _, err := m.Cursor.Parse(); err != nil {
		return err
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("%w: the manifest names %d files, and a store has at most %d", ErrDamaged, len(m.Files), maxFiles)
	}

	seenNames := map[string]bool{}
	total := int64(0)
	for _, f := range m.Files {
		// Subtract instead of adding f.Size, which could overflow.
		if f.Size > maxStoreBytes-total {
			return fmt.Errorf("%w: the manifest names files of more than %d bytes", ErrDamaged, int64(maxStoreBytes))
		}
		total += max(f.Size, 0)

		isValid := f.Size >= 0 && fileNamePattern.MatchString(f.Name) && sumPattern.MatchString(f.SHA256)
		if !isValid || seenNames[f.Name] {
			return fmt.Errorf("%w: the manifest names the file %q", ErrDamaged, f.Name)
		}
		seenNames[f.Name] = true
	}
	return nil
}

// manifestName returns the name of the object of a manifest.
func manifestName(snapshot, projection string) string {
	return manifestPrefix + snapshot + "/" + projection + manifestSuffix
}

// parseManifestName is the inverse of manifestName.
func parseManifestName(object string) (snapshot, projection string, ok bool) {
	rest, hasPrefix := strings.CutPrefix(object, manifestPrefix)
	rest, hasSuffix := strings.CutSuffix(rest, manifestSuffix)
	snapshot, projection = path.Split(rest)
	snapshot = strings.TrimSuffix(snapshot, "/")
	ok = hasPrefix && hasSuffix && namePattern.MatchString(snapshot) && projection != ""
	return snapshot, projection, ok
}

// readManifest reads the manifest from an object. It must be the manifest of the snapshot and
// projection that are in the name of the object.
func readManifest(ctx context.Context, b bucket.Bucket, object string) (m *Manifest, err error) {
	r, err := b.Get(ctx, object, 0, -1)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, fmt.Errorf("%w: %s in %s", ErrNone, object, b)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()

	data, err := io.ReadAll(io.LimitReader(r, maxManifestBytes))
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

// ListedSnapshot is the snapshot of one projection, as [List] returns it.
type ListedSnapshot struct {
	Snapshot, Projection string
	// Manifest is nil if it cannot be read. Err says why.
	Manifest *Manifest
	Err      error
	// Time is the time in the manifest. If the manifest cannot be read, it is the time of the
	// object.
	Time time.Time
}

// List returns the snapshots of all projections, sorted by time with the latest last. It includes
// snapshots whose manifests cannot be read.
func List(ctx context.Context, b bucket.Bucket) ([]ListedSnapshot, error) {
	objects, err := b.List(ctx, manifestPrefix)
	if err != nil {
		return nil, err
	}
	var list []ListedSnapshot
	for _, o := range objects {
		snapshot, projection, ok := parseManifestName(o.Name)
		if !ok {
			continue
		}

		l := ListedSnapshot{Snapshot: snapshot, Projection: projection, Time: o.Time}
		l.Manifest, l.Err = readManifest(ctx, b, o.Name)
		switch {
		case errors.Is(l.Err, ErrNone):
			continue // it was removed in the meantime
		case l.Err != nil && !errors.Is(l.Err, ErrDamaged) && !errors.Is(l.Err, ErrFormat):
			return nil, l.Err // the bucket has failed, and the list would not be complete
		case l.Err == nil:
			l.Time = l.Manifest.Time
		}
		list = append(list, l)
	}
	sortByTime(list)
	return list, nil
}
