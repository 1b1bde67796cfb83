package archive

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/bucket"
	"github.com/skein-feed/skein/events/eventlog"
)

const (
	// objectPrefix is the prefix of the names of all objects of an archive.
	objectPrefix = "archive/"
	// ManifestName is the name of the object that lists all others.
	ManifestName = objectPrefix + "MANIFEST"

	manifestVersion = 1
	// maxManifestBytes bounds the size of a manifest that is read. A segment takes some 300 bytes,
	// so this allows about 200 000.
	maxManifestBytes = 64 << 20
)

// manifest is the decoded object [ManifestName]. A manifest that an [Archive] has made its current
// one must not be changed.
type manifest struct {
	log          events.LogID
	epoch        uint32
	revision     uint64
	end          events.Cursor
	envelopes    uint64
	predecessors []eventlog.Predecessor
	repeats      object // file of the event ids of before the epoch; without a name if there are none
	// recent are the files of the event ids of the ranges that reach into the horizon before the
	// end, oldest first.
	recent   []recentRepeats
	segments []segment
	checksum string // of the encoding; empty if it was never written
}

// object is a file that the manifest names.
type object struct {
	name     string
	bytes    int64
	checksum string // xxh3-128 of the whole, hexadecimal
}

// recentRepeats is a file of the event ids of one sealed range.
type recentRepeats struct {
	object
	lastTime events.Micros // the last log time of the range
}

// segment is a file with the records of one class in a range of the log. The ranges follow each
// other without gaps. A range in which a class has no records has no file of that class.
type segment struct {
	object
	class       Class
	first, last uint64        // the range of sequences
	lastTime    events.Micros // the last log time that was assigned up to last
	envelopes   uint64
	events      uint64
}

// The encoding of the manifest. Fields may only be added, each with a new version.
type (
	manifestJSON struct {
		Version      int               `json:"version"`
		Log          string            `json:"log"`
		Epoch        uint32            `json:"epoch"`
		Revision     uint64            `json:"revision"`
		End          string            `json:"end"` // the cursor, hexadecimal
		LastSeq      uint64            `json:"last_seq"`
		Envelopes    uint64            `json:"envelopes"`
		Predecessors []predecessorJSON `json:"predecessors"`
		Repeats      *objectJSON       `json:"repeats"`
		Recent       []recentJSON      `json:"recent"`
		Segments     []segmentJSON     `json:"segments"`
		Checksum     string            `json:"checksum"` // xxh3-128 of the encoding without it
	}
	predecessorJSON struct {
		Epoch uint32 `json:"epoch"`
		Last  uint64 `json:"last"`
	}
	objectJSON struct {
		Name     string `json:"name"`
		Bytes    int64  `json:"bytes"`
		Checksum string `json:"checksum"`
	}
	recentJSON struct {
		objectJSON

		LastTime int64 `json:"last_time"` // microseconds since 1970
	}
	segmentJSON struct {
		objectJSON

		Class     string `json:"class"`
		First     uint64 `json:"first"`
		Last      uint64 `json:"last"`
		LastTime  int64  `json:"last_time"` // microseconds since 1970
		Envelopes uint64 `json:"envelopes"`
		Events    uint64 `json:"events"`
	}
)

// readManifest returns the manifest in the bucket, or nil if there is none.
func readManifest(ctx context.Context, b bucket.Bucket) (*manifest, error) {
	data, err := readObject(ctx, b, ManifestName, maxManifestBytes)
	if errors.Is(err, bucket.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("%s in %s: %w", ManifestName, b, err)
	}
	return m, nil
}

// writeManifest puts the manifest into the bucket and sets its checksum.
func writeManifest(ctx context.Context, b bucket.Bucket, m *manifest) error {
	data, err := encodeManifest(m)
	if err != nil {
		return err
	}
	if err := b.Put(ctx, ManifestName, bytes.NewReader(data), int64(len(data))); err != nil {
		return fmt.Errorf("archive: replace the manifest: %w", err)
	}
	return nil
}

// encodeManifest returns the encoding of a manifest and sets its checksum.
func encodeManifest(m *manifest) ([]byte, error) {
	end, err := m.end.MarshalBinary()
	if err != nil {
		return nil, err
	}
	// The lists are not nil, so that an empty one is always encoded as [].
	j := manifestJSON{
		Version: manifestVersion, Log: hex.EncodeToString(m.log[:]), Epoch: m.epoch, Revision: m.revision,
		End: hex.EncodeToString(end), LastSeq: m.end.Seq, Envelopes: m.envelopes,
		Predecessors: []predecessorJSON{}, Recent: []recentJSON{}, Segments: []segmentJSON{},
	}
	for _, p := range m.predecessors {
		j.Predecessors = append(j.Predecessors, predecessorJSON(p))
	}
	if m.repeats.name != "" {
		j.Repeats = &objectJSON{m.repeats.name, m.repeats.bytes, m.repeats.checksum}
	}
	for _, r := range m.recent {
		j.Recent = append(j.Recent, recentJSON{objectJSON{r.name, r.bytes, r.checksum}, int64(r.lastTime)})
	}
	for i := range m.segments {
		s := &m.segments[i]
		j.Segments = append(j.Segments, segmentJSON{
			objectJSON: objectJSON{s.name, s.bytes, s.checksum},
			Class:      s.class.String(), First: s.first, Last: s.last, LastTime: int64(s.lastTime),
			Envelopes: s.envelopes, Events: s.events,
		})
	}
	data, err := marshalManifest(&j)
	if err != nil {
		return nil, err
	}
	m.checksum = j.Checksum
	return data, nil
}

// marshalManifest sets the checksum and encodes the manifest. The same manifest always has the same
// encoding.
func marshalManifest(j *manifestJSON) ([]byte, error) {
	j.Checksum = ""
	data, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	j.Checksum = checksum(data)
	if data, err = json.MarshalIndent(j, "", " "); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return append(data, '\n'), nil
}

// decodeManifest decodes and checks a manifest. It fails with [ErrDamaged] or [ErrVersion].
func decodeManifest(data []byte) (*manifest, error) {
	// The version is decoded by itself, because a later version may have other fields.
	var version struct{ Version int }
	if err := json.Unmarshal(data, &version); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if version.Version > manifestVersion {
		return nil, fmt.Errorf("%w: version %d, this one knows %d", ErrVersion, version.Version, manifestVersion)
	}

	var j manifestJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}

	// A manifest has one encoding. Encoding it again and comparing the bytes also rejects unknown
	// and duplicate fields, which the checksum alone would not.
	again, err := marshalManifest(&j)
	if err != nil || !bytes.Equal(data, again) {
		return nil, fmt.Errorf("%w: the checksum does not match", ErrDamaged)
	}
	return j.decode()
}

// decode converts the encoding and validates the result.
func (j *manifestJSON) decode() (*manifest, error) {
	m := &manifest{epoch: j.Epoch, revision: j.Revision, envelopes: j.Envelopes, checksum: j.Checksum}
	id, err := hex.DecodeString(j.Log)
	if err != nil || len(id) != len(m.log) {
		return nil, fmt.Errorf("%w: the log is %q", ErrDamaged, j.Log)
	}
	copy(m.log[:], id)
	end, err := hex.DecodeString(j.End)
	if err == nil {
		err = m.end.UnmarshalBinary(end)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the end: %w", ErrDamaged, err)
	}
	for _, p := range j.Predecessors {
		m.predecessors = append(m.predecessors, eventlog.Predecessor(p))
	}
	if j.Repeats != nil {
		m.repeats = object{j.Repeats.Name, j.Repeats.Bytes, j.Repeats.Checksum}
	}
	for _, r := range j.Recent {
		m.recent = append(m.recent, recentRepeats{object{r.Name, r.Bytes, r.Checksum}, events.Micros(r.LastTime)})
	}
	for _, s := range j.Segments {
		class, ok := parseClass(s.Class)
		if !ok {
			return nil, fmt.Errorf("%w: %s is of class %q", ErrDamaged, s.Name, s.Class)
		}
		m.segments = append(m.segments, segment{
			object: object{s.Name, s.Bytes, s.Checksum},
			class:  class, first: s.First, last: s.Last, lastTime: events.Micros(s.LastTime),
			envelopes: s.Envelopes, events: s.Events,
		})
	}
	return m, m.validate()
}

// checkObject rejects an object outside the archive's folder, one named twice, and a negative size.
// This matters because the archive deletes what its manifest names: a forged manifest must not make
// it delete other objects of the bucket.
func checkObject(o object, named map[string]bool) error {
	isData := strings.HasPrefix(o.name, objectPrefix) && o.name != ManifestName
	if !isData || named[o.name] || o.bytes < 0 {
		return fmt.Errorf("%w: the manifest names %q, of %d bytes", ErrDamaged, o.name, o.bytes)
	}
	named[o.name] = true
	return nil
}

// checkObjects checks every object that the manifest names.
func (m *manifest) checkObjects() error {
	named := map[string]bool{}
	if m.repeats.name != "" {
		if err := checkObject(m.repeats, named); err != nil {
			return err
		}
	}
	for _, r := range m.recent {
		if err := checkObject(r.object, named); err != nil {
			return err
		}
	}
	for i := range m.segments {
		if err := checkObject(m.segments[i].object, named); err != nil {
			return err
		}
	}
	return nil
}

// validate returns an error unless all objects may belong to an archive, and the ranges of the
// segments follow each other without gaps up to the end.
func (m *manifest) validate() error {
	if err := m.checkObjects(); err != nil {
		return err
	}

	at := uint64(0) // the end of the range before
	for i := range m.segments {
		s := &m.segments[i]
		// A range may have a file of each class, in the order of the classes.
		isSibling := i > 0 && s.first == m.segments[i-1].first && s.last == m.segments[i-1].last &&
			s.class > m.segments[i-1].class
		if !isSibling && s.first != at+1 || s.last < s.first {
			return fmt.Errorf("%w: %s begins at sequence %d, the one before ends at %d", ErrDamaged, s.name, s.first, at)
		}
		at = s.last
	}
	if at != m.end.Seq || m.end.Log != m.log || m.end.Epoch != m.epoch {
		return fmt.Errorf("%w: the segments go to sequence %d, the end is at %d of epoch %d", ErrDamaged, at, m.end.Seq,
			m.end.Epoch)
	}
	return nil
}

// clone returns a copy that may be changed.
func (m *manifest) clone() *manifest {
	c := *m
	c.predecessors = append([]eventlog.Predecessor(nil), m.predecessors...)
	c.segments = append([]segment(nil), m.segments...)
	c.recent = append([]recentRepeats(nil), m.recent...)
	return &c
}

// readObject reads a whole object of at most limit bytes.
func readObject(ctx context.Context, b bucket.Bucket, name string, limit int64) ([]byte, error) {
	r, err := b.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("archive: read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrDamaged, name, limit)
	}
	return data, nil
}

// checksum returns the xxh3-128 of a whole object, in hexadecimal.
func checksum(data []byte) string {
	sum := xxh3.Hash128(data).Bytes()
	return hex.EncodeToString(sum[:])
}

// newObjectName returns a name that no object has yet. The random salt keeps two writers, one of
// which has lost its lease, from overwriting each other's files.
func newObjectName(kind string, first, last uint64) string {
	var salt [8]byte
	if _, err := rand.Read(salt[:]); err != nil {
		panic(err) // never: crypto/rand ends the process instead
	}
	return fmt.Sprintf("%s%s-%020d-%020d-%x", objectPrefix, kind, first, last, salt)
}
