package events

import (
	"crypto/sha256"
	"encoding/hex"
)

// A KeyedHash hashes ids under a key that depends on the id of a log alone: a hash does not give its id away, and all who
// fold the log agree on it. The zero KeyedHash hashes nothing that may be kept.
type KeyedHash struct{ key [32]byte }

// NewKeyedHash returns the hash of a log.
func NewKeyedHash(log LogID) KeyedHash {
	return KeyedHash{sha256.Sum256(append([]byte("skein keyed hash\x00"), log[:]...))}
}

// Of returns the hash of an id. For a pseudonym it is the hash of the id that the pseudonym replaced.
func (h KeyedHash) Of(id string) [16]byte {
	if _, hash, ok := cutPseudonym(id); ok {
		return hash
	}
	buf := make([]byte, 0, 32+MaxIDBytes)
	sum := sha256.Sum256(append(append(buf, h.key[:]...), id...))
	return [16]byte(sum[:16])
}

// A pseudonym is what stands in a scrubbed log for the id of an erased user: a space, with which no id begins, the shard
// of the id in 4 hexadecimal digits and its keyed hash in 32. The rows of the pseudonym are in the shard in which those of
// the user were, and its tombstone is the tombstone of the user: [ShardOf] and [KeyedHash.Of] know it.
const (
	pseudonymPrefix = ' '
	pseudonymBytes  = 1 + 4 + 32
)

// Pseudonym returns what stands for the id of an erased user.
func (h KeyedHash) Pseudonym(id string) string {
	shard, hash := ShardOf(id), h.Of(id)
	b := append(make([]byte, 0, pseudonymBytes), pseudonymPrefix)
	b = hex.AppendEncode(b, []byte{byte(shard >> 8), byte(shard)})
	return string(hex.AppendEncode(b, hash[:]))
}

func cutPseudonym(id string) (shard Shard, hash [16]byte, ok bool) {
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
