package events

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
)

// LogID names a log for ever: random, made when the stream is created.
type LogID [16]byte

// Position is a point in the log: everything up to and including Seq, in the epoch of the log. Its string form
// is opaque in the API.
type Position struct {
	// Log is the first 4 bytes of the log's id. It distinguishes positions of different logs.
	Log   [4]byte
	Epoch uint32
	Seq   uint64
}

// ErrPosition is returned for a string that [Position.String] did not make.
var ErrPosition = errors.New("events: malformed position")

const positionVersion = 1

// String encodes the position: version byte, log, epoch and sequence as varints, base64url without padding.
func (p Position) String() string {
	return base64.RawURLEncoding.EncodeToString(p.encode(positionVersion))
}

func (p Position) encode(version byte) []byte {
	b := make([]byte, 0, 1+4+5+10+2)
	b = append(b, version)
	b = append(b, p.Log[:]...)
	b = binary.AppendUvarint(b, uint64(p.Epoch))
	return binary.AppendUvarint(b, p.Seq)
}

// ParsePosition reads what [Position.String] wrote, and [EventPosition.String]: what is within an envelope is in no state without
// the rest of it.
func ParsePosition(s string) (Position, error) {
	p, err := ParseEventPosition(s)
	return p.Position, err
}

// Cursor is what a reader must know to continue after an envelope as if it had never stopped. It is committed with
// the rows that it stands for (I3) and checked against the log at start and at every reconnect.
type Cursor struct {
	Log   LogID
	Epoch uint32
	// Seq is the sequence of the last envelope read; 0 means none.
	Seq uint64
	// Checksum is xxh3-64 of the body of the message at Seq: a log that was rewritten is noticed.
	Checksum uint64
	// LastTime is the last time given (I5), to an event in or before Seq.
	LastTime Micros
	// WarmSeq is the first envelope that must be read again, and WarmTime the last time given before it, for a
	// reader that starts here to know every event id of the horizon (I6). All envelopes with times within
	// the horizon before LastTime are at or above it. Both depend on the log alone.
	WarmSeq  uint64
	WarmTime Micros
}

// Position returns the position of the cursor.
func (c Cursor) Position() Position {
	return Position{Log: [4]byte(c.Log[:4]), Epoch: c.Epoch, Seq: c.Seq}
}

// Archival reports whether a cursor was taken in the archive: it has no checksum, and nothing to warm up from.
func (c Cursor) Archival() bool { return c.Seq > 0 && c.Checksum == 0 && c.WarmSeq == 0 }

// Agrees reports whether two cursors may be of one position, for all that both of them know.
func (c Cursor) Agrees(other Cursor) bool {
	if c.Archival() || other.Archival() {
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

// AppendBinary appends the versioned fixed-width encoding of the cursor (61 bytes).
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

// UnmarshalBinary reads what [Cursor.MarshalBinary] wrote.
func (c *Cursor) UnmarshalBinary(b []byte) error {
	if len(b) != cursorLen || b[0] != cursorVersion {
		return ErrCursor
	}
	copy(c.Log[:], b[1:17])
	c.Epoch = binary.BigEndian.Uint32(b[17:])
	u := func(i int) uint64 { return binary.BigEndian.Uint64(b[21+8*i:]) }
	c.Seq, c.Checksum, c.LastTime, c.WarmSeq, c.WarmTime = u(0), u(1), Micros(u(2)), u(3), Micros(u(4))
	return nil
}
