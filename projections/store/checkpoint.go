package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The tags of the rows of the runtime, all of which have keys in StoreShard. Before the arrow is
// what follows the tag in the key, after it is the value. Numbers are big endian.
const (
	tagFormat      projections.Tag = 0x00 // → version of the format, 4 bytes
	tagFingerprint projections.Tag = 0x01 // → fingerprint, as JSON
	tagCheckpoint  projections.Tag = 0x02 // → position, see encodeCheckpoint
	tagBackfill    projections.Tag = 0x03 // kind (1 byte), source → highest offset that was folded, 8 bytes
	tagClosed      projections.Tag = 0x04 // source, or nothing for all sources → nothing
	tagRejectCount projections.Tag = 0x05 // → number of rejected events so far, 8 bytes
	tagReject      projections.Tag = 0x06 // index in the ring (2 bytes) → reject, see StoredReject.encode
)

var (
	formatKey      = projections.AppendPrefix(nil, projections.StoreShard, tagFormat)
	fingerprintKey = projections.AppendPrefix(nil, projections.StoreShard, tagFingerprint)
	checkpointKey  = projections.AppendPrefix(nil, projections.StoreShard, tagCheckpoint)
	rejectCountKey = projections.AppendPrefix(nil, projections.StoreShard, tagRejectCount)
)

// progress is how far an envelope is folded that takes several commits. The zero progress means
// that no envelope is folded in part.
type progress struct {
	// Seq is the sequence of the envelope.
	Seq uint64
	// Slot is the first event of the envelope that may not be folded completely. All events before
	// it are.
	Slot uint16
	// Step is the number of commits inside that event. To resume the event, the fold looks at the
	// rows that the commits wrote. It does not use the number, which is for people.
	Step uint32
}

const checkpointVersion = 1

// encodeCheckpoint returns the value of the checkpoint row: the version (1 byte), 1 if an envelope
// is folded in part and else 0 (1 byte), the cursor after the last whole envelope, and then, if it
// is not zero, the progress (8 bytes, 2 bytes, 4 bytes).
func encodeCheckpoint(c events.Cursor, p progress) []byte {
	inProgress := byte(0)
	if p != (progress{}) {
		inProgress = 1
	}
	dst, _ := c.AppendBinary([]byte{checkpointVersion, inProgress}) // never fails

	if inProgress == 1 {
		dst = binary.BigEndian.AppendUint64(dst, p.Seq)
		dst = binary.BigEndian.AppendUint16(dst, p.Slot)
		dst = binary.BigEndian.AppendUint32(dst, p.Step)
	}
	return dst
}

// progressLen is the encoded length of a progress, in bytes.
const progressLen = 8 + 2 + 4

var errCheckpoint = fmt.Errorf("%w: checkpoint", projections.ErrCorrupt)

// parseCheckpoint decodes what encodeCheckpoint wrote. It fails with [projections.ErrCorrupt].
func parseCheckpoint(b []byte) (c events.Cursor, p progress, err error) {
	if len(b) < 2 || b[0] != checkpointVersion || b[1] > 1 {
		return c, p, errCheckpoint
	}

	// The cursor has no length of its own: it is everything before the progress.
	rest := b[2:]
	if b[1] == 1 {
		n := len(rest) - progressLen
		if n < 0 {
			return c, p, errCheckpoint
		}
		tail := rest[n:]
		rest = rest[:n]
		p.Seq = binary.BigEndian.Uint64(tail)
		p.Slot = binary.BigEndian.Uint16(tail[8:])
		p.Step = binary.BigEndian.Uint32(tail[10:])
	}

	if err := c.UnmarshalBinary(rest); err != nil || (b[1] == 1 && p.Seq <= c.Seq) {
		return c, p, errCheckpoint
	}
	return c, p, nil
}

// readRow returns a copy of the committed value of a row, or nil if there is no row.
func (s *Store) readRow(key []byte) ([]byte, error) { return readRow(s.db, key) }

// readRow returns a copy of the value of a row, or nil if there is no row. An empty value is not
// nil.
func readRow(rows pebble.Reader, key []byte) ([]byte, error) {
	value, closer, err := rows.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	row := append([]byte{}, value...)
	return row, closer.Close()
}
