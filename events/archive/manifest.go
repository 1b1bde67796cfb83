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
	// ManifestName is the name of the object that lists all other objects of the archive.
	ManifestName = objectPrefix + "MANIFEST"

	manifestVersion = 1
	// maxManifestBytes is the size of the largest manifest that is read or written. The entry of a
	// segment takes some 300 bytes, so a manifest of this size lists about 200 000 segments.
	maxManifestBytes = 64 << 20
)

// manifest is the decoded content of the object [ManifestName]. Once an [Archive] has made a
// manifest its current one, several goroutines read the value, so nobody may modify it any more. To
// change the archive, modify a clone and pass it to Archive.replaceManifest.
type manifest struct {
	log          events.LogID
	epoch        uint32                 // the epoch of end
	revision     uint64                 // rises by one with each replacement
	end          events.Cursor          // after the last archived envelope
	envelopes    uint64                 // the number of archived envelopes
	predecessors []eventlog.Predecessor // the earlier epochs, oldest first
	// repeats is the file of the event ids that a reader at the start of the epoch must know: those
	// of the last [events.Horizon] before the epoch. Its name is empty if there are no such ids. If
	// the ids are lost, it has a name, but neither a size nor a checksum (isLost).
	repeats object
	// recent are the files of the other event ids that a reader at end must know, oldest first.
	// Seal drops a file when its last time is older than the horizon before the new end.
	recent []recentRepeats
	// segments are in the order of their ranges, and within a range in the order of their classes.
	segments []segment
	// checksum is the checksum of the manifest's encoding. encodeManifest and decodeManifest set
	// it. It is empty in the manifest of an archive that is not in the bucket yet; a clone has that
	// of its original until it is encoded.
	checksum string
}

// object is a file that the manifest names.
type object struct {
	name  string
	bytes int64
	// checksum is an xxh3-128 in hexadecimal: for a segment that of segmentChecksum, and for a file
	// of event ids that of the whole file.
	checksum string
}

// isLost reports whether the object stands for a damaged file of event ids that
// [Archive.ReplaceRepeats] has removed.
func (o object) isLost() bool { return o.name != "" && o.checksum == "" }

// recentRepeats is a file of event ids. [Writer.Seal] writes one for the range that it seals, with
// the ids that are still within the horizon at the end of the range. [Archive.ReplaceRepeats]
// writes one in place of damaged files, with the ids of the whole horizon before the end.
type recentRepeats struct {
	object
	lastTime events.Micros // no id of the file has a later log time
}

// segment is a file with the records of one class in a range of the log. The ranges follow each
// other without gaps. A range in which a class has no records has no file of that class, but it has
// a file of another class.
type segment struct {
	object
	class Class
	// first and last are the first and last sequence of the range. The records of the class may
	// begin later and end earlier.
	first, last uint64
	// lastTime is the LastTime of the cursor after the envelope at last, whatever classes that
	// envelope has events of.
	lastTime  events.Micros
	envelopes uint64 // the number of records; an envelope may have one in the file of each class
	events    uint64
}

// These types are the JSON encoding of the manifest. Fields may only be added, each with a new
// version. decodeManifest encodes what it has decoded and compares the bytes, so a manifest of an
// older version must be encoded without the fields that it did not have.
type (
	manifestJSON struct {
		Version      int               `json:"version"`
		Log          string            `json:"log"`
		Epoch        uint32            `json:"epoch"`
		Revision     uint64            `json:"revision"`
		End          string            `json:"end"`      // Cursor.MarshalBinary in hexadecimal
		LastSeq      uint64            `json:"last_seq"` // the sequence of end; decode ignores it
		Envelopes    uint64            `json:"envelopes"`
		Predecessors []predecessorJSON `json:"predecessors"`
		Repeats      *objectJSON       `json:"repeats"`
		Recent       []recentJSON      `json:"recent"`
		Segments     []segmentJSON     `json:"segments"`
		Checksum     string            `json:"checksum"` // see marshalManifest
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

// errManifestTooLarge means that a manifest was not written because it is larger than what
// readManifest reads. Merges make the manifest smaller, so a later attempt may succeed.
var errManifestTooLarge = errors.New("archive: the manifest has too many segments")

// writeManifest sets the checksum of a manifest and puts its encoding into the bucket, where it
// replaces the previous manifest. After errManifestTooLarge, the previous manifest is still there;
// after an error of the bucket, either the new or the previous one.
func writeManifest(ctx context.Context, b bucket.Bucket, m *manifest) error {
	data, err := encodeManifest(m)
	if err != nil {
		return err
	}
	return putManifest(ctx, b, data)
}

// putManifest is the part of writeManifest that puts the encoding into the bucket.
func putManifest(ctx context.Context, b bucket.Bucket, data []byte) error {
	if len(data) > maxManifestBytes {
		return fmt.Errorf("%w: it would have %d bytes, of at most %d", errManifestTooLarge, len(data), maxManifestBytes)
	}
	if err := b.Put(ctx, ManifestName, bytes.NewReader(data), int64(len(data))); err != nil {
		return fmt.Errorf("archive: replace the manifest: %w", err)
	}
	return nil
}

// encodeManifest returns the encoding of a manifest, and sets m.checksum.
func encodeManifest(m *manifest) ([]byte, error) {
	end, err := m.end.MarshalBinary()
	if err != nil {
		return nil, err
	}
	// The lists are not nil, because JSON encodes a nil list as null and an empty one as []. The
	// same manifest must always have the same encoding.
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

// marshalManifest sets the checksum and returns the encoding with a newline at its end. The
// checksum is the xxh3-128 of the encoding in which the field of the checksum is an empty string
// and the newline is missing. The same manifest always has the same encoding.
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

// decodeManifest decodes a manifest and checks its checksum and its content. It fails with
// [ErrVersion] if a newer version of skein wrote the manifest, and with [ErrDamaged] if anything
// else is wrong.
func decodeManifest(data []byte) (*manifest, error) {
	// The version is decoded alone and first. The checks below would take the fields of a later
	// version for damage.
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

	// A manifest has only one encoding, so encoding it again with a new checksum must give the same
	// bytes. Comparing all bytes also rejects what json.Unmarshal ignores, such as unknown fields,
	// duplicate fields and other white space. Comparing only the checksums would accept it.
	again, err := marshalManifest(&j)
	if err != nil || !bytes.Equal(data, again) {
		return nil, fmt.Errorf("%w: the checksum does not match", ErrDamaged)
	}
	return j.decode()
}

// decode converts the encoding to a manifest and validates the result. It fails with [ErrDamaged].
// If only the validation fails, decode returns the manifest together with the error.
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

// checkObject fails with [ErrDamaged] if the name of an object does not begin with objectPrefix or
// is that of the manifest, if named already contains the name, or if the size is negative.
// Otherwise it adds the name to named. The names matter because the archive deletes objects that
// its manifest has named, for example after a merge. A forged manifest must not make it delete the
// manifest or other objects of the bucket.
func checkObject(o object, named map[string]bool) error {
	isData := strings.HasPrefix(o.name, objectPrefix) && o.name != ManifestName
	if !isData || named[o.name] || o.bytes < 0 {
		return fmt.Errorf("%w: the manifest names %q, of %d bytes", ErrDamaged, o.name, o.bytes)
	}
	named[o.name] = true
	return nil
}

// checkObjects calls checkObject for every object that the manifest names.
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

// validate fails with [ErrDamaged] unless all objects pass checkObject, the ranges of the segments
// follow each other without gaps from sequence 1 to that of end, and end is of the log and epoch of
// the manifest. It does not check the numbers of envelopes and events, the times, or the
// predecessors.
func (m *manifest) validate() error {
	if err := m.checkObjects(); err != nil {
		return err
	}

	at := uint64(0) // the last sequence of the segment before
	for i := range m.segments {
		s := &m.segments[i]
		// A range may have one file of each class, in the order of the classes. A sibling is
		// another file of the same range as the segment before.
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

// clone returns a copy that may be modified: it shares no slice with the original.
func (m *manifest) clone() *manifest {
	c := *m
	c.predecessors = append([]eventlog.Predecessor(nil), m.predecessors...)
	c.segments = append([]segment(nil), m.segments...)
	c.recent = append([]recentRepeats(nil), m.recent...)
	return &c
}

// readObject reads a whole object. It fails with [ErrDamaged] if the object has more than limit
// bytes, and with an error of the bucket such as [bucket.ErrNotFound] if it cannot be read.
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

// checksum returns the xxh3-128 of data in hexadecimal.
func checksum(data []byte) string {
	sum := xxh3.Hash128(data).Bytes()
	return hex.EncodeToString(sum[:])
}

// newObjectName returns a name for a new object, with a random salt of 64 bits. kind is the name of
// a class, "recent" or "repeats". first and last are the range of sequences; for "repeats", first
// is the epoch and last is the last sequence before it.
//
// The salt keeps objects of the same range from overwriting each other. A scrub writes a segment
// again while the manifest still names the old one, and a process that has lost its lease may write
// a range that the new holder of the lease is writing, too.
func newObjectName(kind string, first, last uint64) string {
	var salt [8]byte
	if _, err := rand.Read(salt[:]); err != nil {
		panic(err) // never: crypto/rand ends the process instead
	}
	return fmt.Sprintf("%s%s-%020d-%020d-%x", objectPrefix, kind, first, last, salt)
}
