package events

import (
	"crypto/sha256"
	"encoding/hex"
)

// A KeyedHash hashes ids with a key that depends only on the id of a log. The hash does not reveal
// the id, and all folds of the same log compute the same hash. Do not store hashes of the zero
// KeyedHash, whose key belongs to no log.
type KeyedHash struct{ key [32]byte }

// NewKeyedHash returns the keyed hash of a log.
func NewKeyedHash(log LogID) KeyedHash {
	return KeyedHash{sha256.Sum256(append([]byte("skein keyed hash\x00"), log[:]...))}
}

// HashID returns the hash of an id. The hash of a pseudonym is the hash of the id that the
// pseudonym replaced.
func (h KeyedHash) HashID(id string) [16]byte {
	if _, hash, ok := parsePseudonym(id); ok {
		return hash
	}

	buf := make([]byte, 0, 32+MaxIDBytes)
	sum := sha256.Sum256(append(append(buf, h.key[:]...), id...))
	return [16]byte(sum[:16])
}

// A pseudonym replaces the id of an erased user in a scrubbed log. It consists of a space, which no
// valid id contains, the shard of the id in 4 hexadecimal digits, and the keyed hash of the id in
// 32. [ShardOf] and [KeyedHash.HashID] recognize pseudonyms, so the rows of a pseudonym are in the
// shard of the erased user, and the tombstone of the user also applies to the pseudonym.
const (
	pseudonymPrefix = ' '
	pseudonymBytes  = 1 + 4 + 32
)

// Pseudonym returns the pseudonym that replaces the id of an erased user.
func (h KeyedHash) Pseudonym(id string) string {
	shard := ShardOf(id)
	hash := h.HashID(id)

	b := append(make([]byte, 0, pseudonymBytes), pseudonymPrefix)
	b = hex.AppendEncode(b, []byte{byte(shard >> 8), byte(shard)})
	return string(hex.AppendEncode(b, hash[:]))
}

// parsePseudonym returns the shard and the hash that a pseudonym contains. It returns false if the
// id is no pseudonym.
func parsePseudonym(id string) (shard Shard, hash [16]byte, ok bool) {
	if len(id) != pseudonymBytes || id[0] != pseudonymPrefix {
		return 0, hash, false
	}
	var b [18]byte
	if _, err := hex.Decode(b[:], []byte(id[1:])); err != nil {
		return 0, hash, false
	}
	shard = Shard(b[0])<<8 | Shard(b[1])
	return shard, [16]byte(b[2:]), shard < NumShards
}
