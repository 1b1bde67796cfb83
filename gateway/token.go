package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"github.com/skein-feed/skein/events"
)

// pageToken says where the next page of a list begins. It names the list that it belongs to, so that it continues no
// other, and the position that the page before was read at, so that no page comes from an older state than the page
// before it (I9). The place is a time and ids, not an offset: it stays right whatever is written meanwhile.
//
// Encoded, in base64url without padding:
//
//	version 1 | key id: length, bytes | list 8 | log 4 | epoch uvarint | sequence uvarint | mark … | MAC 16
//
// The MAC is the HMAC-SHA256 of all before it, cut to 16 bytes, under the key named. A token has no time: it does not
// expire.
type pageToken struct {
	list listID
	pos  events.Position
	mark []byte
}

const (
	tokenVersion = 1
	// maxTokenBytes bounds what is decoded. The longest mark holds a time and two ids.
	maxTokenBytes = 1024
)

// Why a token is refused. Clients see these texts behind the name of the field, and before [demand.badToken]'s.
var (
	errTokenDamaged = errors.New("is damaged")
	errTokenKey     = errors.New("was signed with a key that is not in the key ring")
	errTokenList    = errors.New("belongs to another list, or to the same list with other parameters")
)

// listID identifies a list: a hash of what was asked for, without page_size and at_least, which may differ from page
// to page.
type listID [8]byte

// newListID hashes the kind of list and what it is of.
func newListID(kind byte, of ...string) listID {
	b := append(make([]byte, 0, 64), kind)
	for _, s := range of {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(b)
	return listID(sum[:8])
}

// sign returns the token as clients see it.
func (r KeyRing) sign(t pageToken) string {
	key := r.keys[0]
	b := make([]byte, 0, 64+len(key.id)+len(t.mark))
	b = append(b, tokenVersion, byte(len(key.id)))
	b = append(b, key.id...)
	b = append(b, t.list[:]...)
	b = append(b, t.pos.Log[:]...)
	b = binary.AppendUvarint(b, uint64(t.pos.Epoch))
	b = binary.AppendUvarint(b, t.pos.Seq)
	b = append(b, t.mark...)
	return base64.RawURLEncoding.EncodeToString(key.appendMAC(b, b))
}

// verify reads a token of the list.
func (r KeyRing) verify(text string, list listID) (pageToken, error) {
	var t pageToken
	if len(text) > maxTokenBytes {
		return t, errTokenDamaged
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < 2+macBytes || b[0] != tokenVersion {
		return t, errTokenDamaged
	}
	signed := b[:len(b)-macBytes]
	rest := signed[2:]
	n := int(signed[1])
	if n > len(rest) {
		return t, errTokenDamaged
	}
	key, ok := r.find(string(rest[:n]))
	if !ok {
		return t, errTokenKey
	}
	if !hmac.Equal(key.appendMAC(nil, signed), b[len(signed):]) {
		return t, errTokenDamaged
	}
	if t, err = parseToken(rest[n:]); err != nil {
		return t, err
	}
	if t.list != list {
		return t, errTokenList
	}
	return t, nil
}

// parseToken reads what follows the key id.
func parseToken(b []byte) (t pageToken, err error) {
	if len(b) < len(t.list)+len(t.pos.Log) {
		return t, errTokenDamaged
	}
	b = b[copy(t.list[:], b):]
	b = b[copy(t.pos.Log[:], b):]
	epoch, n := binary.Uvarint(b)
	if n <= 0 || epoch > 1<<32-1 {
		return t, errTokenDamaged
	}
	seq, m := binary.Uvarint(b[n:])
	if m <= 0 {
		return t, errTokenDamaged
	}
	t.pos.Epoch, t.pos.Seq, t.mark = uint32(epoch), seq, b[n+m:]
	return t, nil
}
