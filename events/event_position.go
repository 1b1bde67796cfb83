package events

import (
	"encoding/base64"
	"encoding/binary"
)

// EventPosition is a position in the log that may be within an envelope: everything before the envelope at Seq, and of that envelope
// the first so many slots. It tells a reader of single events where it was. As a position, which it may be handed in as, it
// is that of the whole envelope: a state has all of it or nothing.
type EventPosition struct {
	Position
	// Slots of the envelope at Seq that are before the position; 0 means all.
	Slots int
}

// eventPositionVersion is that of a position within an envelope. One after an envelope has the string of its position.
const eventPositionVersion = 2

// String encodes the event position: as the position, and, within an envelope, with the version of its own and the slots as a varint
// at the end.
func (p EventPosition) String() string {
	if p.Slots == 0 {
		return p.Position.String()
	}
	return base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(p.encode(eventPositionVersion), uint64(p.Slots)))
}

// ParseEventPosition reads what [EventPosition.String] and [Position.String] wrote: [ErrPosition].
func ParseEventPosition(s string) (EventPosition, error) {
	if len(s) > 64 {
		return EventPosition{}, ErrPosition
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < 7 {
		return EventPosition{}, ErrPosition
	}
	var p EventPosition
	copy(p.Log[:], b[1:5])
	rest, ok := b[5:], true
	next := func() (v uint64) {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			ok = false
			return 0
		}
		rest = rest[n:]
		return v
	}
	epoch := next()
	p.Seq = next()
	if b[0] == eventPositionVersion {
		slots := next()
		ok = ok && slots > 0 && slots <= MaxEnvelopeEvents && p.Seq > 0
		p.Slots = int(min(slots, MaxEnvelopeEvents))
	}
	if !ok || len(rest) > 0 || epoch > 1<<32-1 {
		return EventPosition{}, ErrPosition
	}
	p.Epoch = uint32(epoch)
	// Base64 readers overlook line ends, and varints have longer spellings: an event position has one string.
	if p.String() != s {
		return EventPosition{}, ErrPosition
	}
	return p, nil
}
