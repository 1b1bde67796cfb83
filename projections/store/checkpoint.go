package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Tags of the rows of the runtime. All stand in StoreShard.
const (
	tagFormat      projections.Tag = 0x00 // → version of the format, 4 bytes
	tagFingerprint projections.Tag = 0x01 // → the fingerprint as JSON
	tagCheckpoint  projections.Tag = 0x02 // → checkpoint
	tagBackfill    projections.Tag = 0x03 // kind (1 byte), source → highest offset accepted, 8 bytes
	tagClosed      projections.Tag = 0x04 // source; empty means all → nothing
	tagRejectCount projections.Tag = 0x05 // → how many events were rejected so far, 8 bytes
	tagReject      projections.Tag = 0x06 // index in the ring, 2 bytes → reject
)

var (
	formatKey      = projections.AppendPrefix(nil, projections.StoreShard, tagFormat)
	fingerprintKey = projections.AppendPrefix(nil, projections.StoreShard, tagFingerprint)
	checkpointKey  = projections.AppendPrefix(nil, projections.StoreShard, tagCheckpoint)
	rejectCountKey = projections.AppendPrefix(nil, projections.StoreShard, tagRejectCount)
)

// progress is how far an envelope has been folded that takes several commits. The zero progress means that no envelope is in progress.
type progress struct {
	// Seq is the envelope.
	Seq uint64
	// Slot is the first event that is not known to be finished; those before it are.
	Slot uint16
	// Step counts the commits inside that event. Its fold continues by what they left behind; the number is for people.
	Step uint32
}

const checkpointVersion = 1

// encodeCheckpoint returns the encoding of a checkpoint: version, 1 if an envelope is in progress, the cursor of the
// last whole envelope, then the envelope in progress, if any.
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

const progressLen = 8 + 2 + 4

var errCheckpoint = fmt.Errorf("%w: checkpoint", projections.ErrCorrupt)

func parseCheckpoint(b []byte) (c events.Cursor, p progress, err error) {
	if len(b) < 2 || b[0] != checkpointVersion || b[1] > 1 {
		return c, p, errCheckpoint
	}
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

// row returns a copy of a row as it stands now; nil means there is none.
func (s *Store) readRow(key []byte) ([]byte, error) { return readRow(s.db, key) }

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
