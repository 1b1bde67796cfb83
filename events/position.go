package events

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// LogID identifies a log forever. It is chosen at random when the stream is created.
type LogID [16]byte

// Position is a point in the log: after the envelope at Seq, in an epoch of the log. In the API its
// string form is opaque.
type Position struct {
	// Log is the first 4 bytes of the id of the log. It distinguishes positions of different logs.
	Log   [4]byte
	Epoch uint32
	Seq   uint64
}

// ErrPosition is returned for a string that [Position.String] did not make.
var ErrPosition = errors.New("events: malformed position")

// positionVersion is the first byte of an encoded position.
const positionVersion = 1

// String encodes the position: a version byte, the log, and epoch and sequence as varints, in
// base64url without padding.
func (p Position) String() string {
	return base64.RawURLEncoding.EncodeToString(p.encode(positionVersion))
}

// encode returns the version, the log, and epoch and sequence as varints.
func (p Position) encode(version byte) []byte {
	// Room for the version, the log, both varints, and the slots that an EventPosition appends.
	b := make([]byte, 0, 1+4+binary.MaxVarintLen32+binary.MaxVarintLen64+2)
	b = append(b, version)
	b = append(b, p.Log[:]...)
	b = binary.AppendUvarint(b, uint64(p.Epoch))
	return binary.AppendUvarint(b, p.Seq)
}

// ParsePosition parses the result of [Position.String]. It also parses the result of
// [EventPosition.String] and returns the position after the whole envelope, because no store holds
// only a part of an envelope.
func ParsePosition(s string) (Position, error) {
	p, err := ParseEventPosition(s)
	return p.Position, err
}

// Cursor is the state with which a reader continues after an envelope as if it had never stopped. A
// store commits it together with the rows that it has folded up to there (I3). A reader compares it
// with the log when it starts and whenever it reconnects.
type Cursor struct {
	Log   LogID
	Epoch uint32
	// Seq is the sequence of the last envelope, or 0 before the first one.
	Seq uint64
	// Checksum is xxh3-64 of the body of the message at Seq. It shows whether the log was
	// rewritten.
	Checksum uint64
	// LastTime is the last time that was assigned to an event at or before Seq (I5).
	LastTime Micros
	// WarmSeq is the sequence from which a reader that starts here must read again to know every
	// event id of the horizon (I6): all envelopes with times within the horizon before LastTime are
	// at or after it. WarmTime is the last time that was assigned before WarmSeq. Both depend on
	// the log alone.
	WarmSeq  uint64
	WarmTime Micros
}

// Position returns the position of the cursor.
func (c Cursor) Position() Position {
	return Position{Log: [4]byte(c.Log[:4]), Epoch: c.Epoch, Seq: c.Seq}
}

// IsArchival reports whether a cursor comes from the archive. Such a cursor has neither a checksum
// nor a start of the warm-up.
func (c Cursor) IsArchival() bool { return c.Seq > 0 && c.Checksum == 0 && c.WarmSeq == 0 }

// AgreesWith reports whether two cursors can be cursors of the same position. If one of them comes
// from the archive, it compares only what both of them have.
func (c Cursor) AgreesWith(other Cursor) bool {
	if c.IsArchival() || other.IsArchival() {
		return c.Log == other.Log && c.Epoch == other.Epoch && c.Seq == other.Seq && c.LastTime == other.LastTime
	}
	return c == other
}

const (
	cursorVersion = 1
	cursorLen     = 1 + 16 + 4 + 8*5
)

// ErrCursor is returned for bytes that [Cursor.MarshalBinary] did not write.
var ErrCursor = errors.New("events: malformed cursor")

// AppendBinary appends the encoding of the cursor: a version and fixed-width fields, 61 bytes. The
// error is always nil.
func (c Cursor) AppendBinary(b []byte) ([]byte, error) {
	b = append(b, cursorVersion)
	b = append(b, c.Log[:]...)
	b = binary.BigEndian.AppendUint32(b, c.Epoch)
	for _, v := range []uint64{c.Seq, c.Checksum, uint64(c.LastTime), c.WarmSeq, uint64(c.WarmTime)} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	return b, nil
}

// MarshalBinary returns the encoding of [Cursor.AppendBinary].
func (c Cursor) MarshalBinary() ([]byte, error) { return c.AppendBinary(make([]byte, 0, cursorLen)) }

// UnmarshalBinary decodes the result of [Cursor.MarshalBinary]. It returns [ErrCursor] for other
// bytes.
func (c *Cursor) UnmarshalBinary(b []byte) error {
	if len(b) != cursorLen || b[0] != cursorVersion {
		return ErrCursor
	}
	copy(c.Log[:], b[1:17])
	c.Epoch = binary.BigEndian.Uint32(b[17:])

	// Five numbers of 8 bytes follow, in the order in which AppendBinary wrote them.
	number := func(i int) uint64 { return binary.BigEndian.Uint64(b[21+8*i:]) }
	c.Seq = number(0)
	c.Checksum = number(1)
	c.LastTime = Micros(number(2))
	c.WarmSeq = number(3)
	c.WarmTime = Micros(number(4))
	return nil
}
