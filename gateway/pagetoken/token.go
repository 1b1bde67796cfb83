package pagetoken

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/skein-feed/skein/events"
)

// Token says where the next page of a list begins. It names the list that it belongs to, so that it continues no
// other, and the position that the page before was read at, so that no page comes from an older state than the page
// before it (I9). The cursor is a time and ids, not an offset, so writes do not invalidate it.
//
// Encoded, in base64url without padding:
//
//	version 1 | key id: length, bytes | list 8 | log 4 | epoch uvarint | sequence uvarint | cursor … | MAC 16
//
// The MAC is the HMAC-SHA256 of all before it, cut to 16 bytes, under the key named. A token has no time: it does not
// expire.
type Token struct {
	List     ListID
	Position events.Position
	// Cursor is where in the list the page before ended, in the list's own encoding.
	Cursor []byte
}

const (
	// Version is the first byte of a token.
	Version = 1
	// MaxBytes bounds the text that is decoded. The longest cursor holds a time and two ids.
	MaxBytes = 1024
)

// Why a token is refused. Clients see these texts behind the name of the field.
var (
	ErrDamaged   = errors.New("is damaged")
	ErrKey       = errors.New("was signed with a key that is not in the key ring")
	ErrOtherList = errors.New("belongs to another list, or to the same list with other parameters")
)

// ListID identifies a list: a hash of what was asked for, without page_size and at_least, which may differ from page
// to page.
type ListID [8]byte

// NewListID hashes the kind of list and what it is of.
func NewListID(kind byte, of ...string) ListID {
	b := append(make([]byte, 0, 64), kind)
	for _, s := range of {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return ListID(sum[:8])
}

// Sign returns the token as clients see it.
func (r KeyRing) Sign(t Token) string {
	key := r.keys[0]
	b := make([]byte, 0, 64+len(key.id)+len(t.Cursor))
	b = append(b, Version, byte(len(key.id)))
	b = append(b, key.id...)
	b = append(b, t.List[:]...)
	b = append(b, t.Position.Log[:]...)
	b = binary.AppendUvarint(b, uint64(t.Position.Epoch))
	b = binary.AppendUvarint(b, t.Position.Seq)
	b = append(b, t.Cursor...)
	return base64.RawURLEncoding.EncodeToString(key.appendMAC(b, b))
}

// Verify reads a token of the list.
func (r KeyRing) Verify(text string, list ListID) (Token, error) {
	var t Token
	// The decoder skips line breaks, and a token must have one spelling only.
	if len(text) > MaxBytes || strings.ContainsAny(text, "\r\n") {
		return t, ErrDamaged
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 2+macBytes || b[0] != Version {
		return t, ErrDamaged
	}
	signed := b[:len(b)-macBytes]
	rest := signed[2:]
	n := int(signed[1])
	if n > len(rest) {
		return t, ErrDamaged
	}
	key, ok := r.find(string(rest[:n]))
	if !ok {
		return t, ErrKey
	}
	if !hmac.Equal(key.appendMAC(nil, signed), b[len(signed):]) {
		return t, ErrDamaged
	}
	if t, err = parseToken(rest[n:]); err != nil {
		return t, err
	}
	if t.List != list {
		return t, ErrOtherList
	}
	return t, nil
}

// Position returns the position of a token of any list, if a key of the ring has signed it.
func (r KeyRing) Position(text string) (at events.Position, ok bool) {
	t, err := r.Verify(text, ListID{})
	return t.Position, err == nil || errors.Is(err, ErrOtherList)
}

// parseToken reads what follows the key id.
func parseToken(b []byte) (t Token, err error) {
	if len(b) < len(t.List)+len(t.Position.Log) {
		return t, ErrDamaged
	}
	b = b[copy(t.List[:], b):]
	b = b[copy(t.Position.Log[:], b):]
	epoch, n := binary.Uvarint(b)
	if n <= 0 || epoch > 1<<32-1 {
		return t, ErrDamaged
	}
	seq, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return t, ErrDamaged
	}
	t.Position.Epoch, t.Position.Seq, t.Cursor = uint32(epoch), seq, b[n+m:]
	return t, nil
}
