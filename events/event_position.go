package events

import (
	"encoding/base64"
	"encoding/binary"
)

// EventPosition is a position in the log that may be within an envelope. A reader of single events
// continues from it. Where a call expects a [Position], an EventPosition stands for the position
// after its whole envelope, because no store holds only a part of one.
type EventPosition struct {
	Position
	// Slots is the number of slots of the envelope at Seq that are before the position. 0 means all
	// of them.
	Slots int
}

// eventPositionVersion is the version byte of a position within an envelope. A position after an
// envelope is encoded like a [Position].
const eventPositionVersion = 2

// String encodes the event position. After a whole envelope the result is that of
// [Position.String]. Within an envelope it has another version byte, and the number of slots as a
// varint at the end.
func (p EventPosition) String() string {
	if p.Slots == 0 {
		return p.Position.String()
	}
	b := binary.AppendUvarint(p.encode(eventPositionVersion), uint64(p.Slots))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseEventPosition parses the result of [EventPosition.String] or [Position.String]. It returns
// [ErrPosition] for other strings.
func ParseEventPosition(s string) (EventPosition, error) {
	const (
		maxTextBytes = 64            // more than any position has; a hostile text must not cost much
		minBytes     = 1 + 4 + 1 + 1 // the version, the log, and an epoch and a sequence of one byte each
	)
	if len(s) > maxTextBytes {
		return EventPosition{}, ErrPosition
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < minBytes {
		return EventPosition{}, ErrPosition
	}

	var p EventPosition
	copy(p.Log[:], b[1:5])
	rest := b[5:]
	ok := true
	nextVarint := func() (v uint64) {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			ok = false
			return 0
		}
		rest = rest[n:]
		return v
	}

	epoch := nextVarint()
	p.Seq = nextVarint()
	if b[0] == eventPositionVersion {
		slots := nextVarint()
		ok = ok && slots > 0 && slots <= MaxEnvelopeEvents && p.Seq > 0
		p.Slots = int(min(slots, MaxEnvelopeEvents))
	}
	if !ok || len(rest) > 0 || epoch > 1<<32-1 {
		return EventPosition{}, ErrPosition
	}
	p.Epoch = uint32(epoch)

	// The base64 decoder ignores line breaks, and a varint has longer encodings. Only the one
	// string that String returns is valid.
	if p.String() != s {
		return EventPosition{}, ErrPosition
	}
	return p, nil
}
