package events

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
)

// Partitions is a set of partitions. The zero value is the empty set.
type Partitions [NumPartitions / 64]uint64

// AllPartitions returns the set of all partitions.
func AllPartitions() (all Partitions) {
	for i := range all {
		all[i] = ^uint64(0)
	}
	return all
}

// Has reports whether a partition is in the set.
func (s *Partitions) Has(partition uint8) bool { return s[partition/64]>>(partition%64)&1 != 0 }

// Add adds a partition.
func (s *Partitions) Add(partition uint8) { s[partition/64] |= 1 << (partition % 64) }

// AddHome adds the home of a user or item, which is the partition of its id.
func (s *Partitions) AddHome(id string) { s.Add(ShardOf(id).Partition()) }

// AddAll adds all partitions.
func (s *Partitions) AddAll() { *s = AllPartitions() }

// AddSet adds the partitions of another set.
func (s *Partitions) AddSet(other *Partitions) {
	for i := range s {
		s[i] |= other[i]
	}
}

// Intersect removes the partitions that are not in the other set.
func (s *Partitions) Intersect(other *Partitions) {
	for i := range s {
		s[i] &= other[i]
	}
}

// Without returns the partitions that are not in the other set.
func (s *Partitions) Without(other *Partitions) (rest Partitions) {
	for i := range s {
		rest[i] = s[i] &^ other[i]
	}
	return rest
}

// Intersects reports whether the two sets have a partition in common.
func (s *Partitions) Intersects(other *Partitions) bool {
	for i := range s {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// Each calls do for every partition of the set, in ascending order. It stops at the first error and
// returns it.
func (s *Partitions) Each(do func(partition uint8) error) error {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			if err := do(uint8(64*i + bits.TrailingZeros64(word))); err != nil {
				return err
			}
		}
	}
	return nil
}

// Len returns the number of partitions in the set.
func (s *Partitions) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// String returns the set as 64 hexadecimal digits. The four bits of the first digit stand for the
// partitions 0 to 3.
func (s *Partitions) String() string {
	var b []byte
	for _, word := range s {
		b = binary.BigEndian.AppendUint64(b, bits.Reverse64(word))
	}
	return fmt.Sprintf("%x", b)
}

// ParsePartitions parses the result of [Partitions.String].
func ParsePartitions(text string) (s Partitions, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 8*len(s) {
		return s, fmt.Errorf("events: %q is no set of partitions: those are %d hexadecimal digits", text, 16*len(s))
	}
	for i := range s {
		s[i] = bits.Reverse64(binary.BigEndian.Uint64(b[8*i:]))
	}
	return s, nil
}

// MarshalText returns the result of [Partitions.String]. It implements [encoding.TextMarshaler].
func (s Partitions) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the text with [ParsePartitions]. It implements [encoding.TextUnmarshaler].
func (s *Partitions) UnmarshalText(text []byte) (err error) {
	*s, err = ParsePartitions(string(text))
	return err
}
