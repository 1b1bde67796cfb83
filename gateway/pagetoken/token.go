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

// Token says where the next page of a list begins. It names its list, so that it cannot continue
// another one, and the position at which the last page was read, so that no page comes from an
// older state than the page before it (invariant I9). The cursor is a time and ids and not an
// offset, so that writes do not invalidate it.
//
// The encoding is base64url without padding of
//
//	version 1 | key id: length, bytes | list 8 | log 4 | epoch uvarint | sequence uvarint | cursor … | MAC 16
//
// where numbers are lengths in bytes. The MAC is the HMAC-SHA256 of everything before it under the
// named key, cut to 16 bytes. A token does not contain a time, so it does not expire.
type Token struct {
	List     ListID
	Position events.Position
	// Cursor is where the last page ended, in the list's own encoding.
	Cursor []byte
}

const (
	// Version is the first byte of a token.
	Version = 1
	// MaxBytes is the length of the longest text that Verify decodes. Most cursors have a time and
	// two ids. That of notifications also has 6 bytes for each group of one day that was shown.
	MaxBytes = 32 << 10
)

// Errors of [KeyRing.Verify]. Clients see these texts after the name of the field.
var (
	ErrDamaged   = errors.New("is damaged")
	ErrKey       = errors.New("was signed with a key that is not in the key ring")
	ErrOtherList = errors.New("belongs to another list, or to the same list with other parameters")
)

// ListID identifies a list. It is a hash of the parameters of the request, without page_size and
// at_least, which may differ from page to page.
type ListID [8]byte

// NewListID returns the id of the list of a kind with the given parameters.
func NewListID(kind byte, parameters ...string) ListID {
	b := append(make([]byte, 0, 64), kind)
	for _, s := range parameters {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return ListID(sum[:8])
}

// Sign returns the text of a token.
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

// Verify returns the token with the given text, if it is valid and belongs to the list. If it is
// valid but belongs to another list, Verify returns the token and [ErrOtherList].
func (r KeyRing) Verify(text string, list ListID) (Token, error) {
	var t Token
	// Base64 decoders skip line breaks, but a token must have only one valid text.
	if len(text) > MaxBytes || strings.ContainsAny(text, "\r\n") {
		return t, ErrDamaged
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 2+macBytes || b[0] != Version {
		return t, ErrDamaged
	}

	signed := b[:len(b)-macBytes]
	keyIDBytes := int(signed[1])
	rest := signed[2:]
	if keyIDBytes > len(rest) {
		return t, ErrDamaged
	}
	key, ok := r.findKey(string(rest[:keyIDBytes]))
	if !ok {
		return t, ErrKey
	}
	if !hmac.Equal(key.appendMAC(nil, signed), b[len(signed):]) {
		return t, ErrDamaged
	}

	t, err = parseToken(rest[keyIDBytes:])
	if err != nil {
		return t, err
	}
	if t.List != list {
		return t, ErrOtherList
	}
	return t, nil
}

// Position returns the position of a valid token of any list.
func (r KeyRing) Position(text string) (position events.Position, ok bool) {
	t, err := r.Verify(text, ListID{})
	return t.Position, err == nil || errors.Is(err, ErrOtherList)
}

// parseToken parses the bytes between the key id and the MAC.
func parseToken(b []byte) (t Token, err error) {
	if len(b) < len(t.List)+len(t.Position.Log) {
		return t, ErrDamaged
	}
	b = b[copy(t.List[:], b):]
	b = b[copy(t.Position.Log[:], b):]
	epoch, epochBytes := binary.Uvarint(b)
	if epochBytes <= 0 || epoch > 1<<32-1 {
		return t, ErrDamaged
	}
	seq, seqBytes := binary.Uvarint(b[epochBytes:])
	if seqBytes <= 0 {
		return t, ErrDamaged
	}
	t.Position.Epoch = uint32(epoch)
	t.Position.Seq = seq
	t.Cursor = b[epochBytes+seqBytes:]
	return t, nil
}
