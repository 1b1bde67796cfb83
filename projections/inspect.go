package projections

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
)

// IsRuntimeKey tells whether a row belongs to the runtime and not to the projection.
func IsRuntimeKey(key []byte) bool { return len(key) >= 3 && Tag(key[2]) <= LastRuntimeTag }

// DescribeKey tells people in one line what a row of the runtime says. It returns [ErrCorrupt] for a row that the
// runtime cannot have written. The rows of a projection are described by its own package.
func DescribeKey(key, value []byte) (string, error) {
	if !IsRuntimeKey(key) || events.Shard(binary.BigEndian.Uint16(key)) != StoreShard {
		return "", fmt.Errorf("%w: key %x", ErrCorrupt, key)
	}
	rest := key[3:]
	text, err := describeRuntime(Tag(key[2]), rest, value)
	return fmt.Sprintf("%04x %s", uint16(StoreShard), text), err
}

func describeRuntime(tag Tag, rest, value []byte) (string, error) {
	bad := fmt.Errorf("%w: runtime row %02x %x: %x", ErrCorrupt, byte(tag), rest, value)
	switch tag {
	case tagFormat:
		if len(value) == 4 {
			return fmt.Sprintf("format version=%d", binary.BigEndian.Uint32(value)), nil
		}
	case tagFingerprint:
		return fmt.Sprintf("fingerprint %s", value), nil
	case tagCheckpoint:
		c, p, err := parseCheckpoint(value)
		text := fmt.Sprintf("checkpoint log=%x epoch=%d seq=%d last-time=%s", c.Log, c.Epoch, c.Seq,
			c.LastTime.Time().Format("2006-01-02T15:04:05.000000Z"))
		if p != (progress{}) {
			text += fmt.Sprintf(" in-progress: seq=%d slot=%d step=%d", p.Seq, p.Slot, p.Step)
		}
		return text, err
	case tagBackfill:
		if len(rest) >= 2 && len(value) == 8 {
			return fmt.Sprintf("backfill kind=%v source=%s highest-offset=%d", events.Kind(rest[0]), rest[1:],
				binary.BigEndian.Uint64(value)), nil
		}
	case tagClosed:
		return fmt.Sprintf("backfill-closed source=%q", rest), nil
	case tagRejectCount:
		if len(value) == 8 {
			return fmt.Sprintf("rejects count=%d", binary.BigEndian.Uint64(value)), nil
		}
	case tagReject:
		r, err := parseReject(value)
		return fmt.Sprintf("reject number=%d seq=%d slot=%d: %s", r.Number, r.Seq, r.Slot, r.Rejection.Message), err
	}
	return "", bad
}
