package placement

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"

	"github.com/skein-feed/skein/events"
)

// Set is a set of partitions. The zero value is empty. It converts to and from projections.Partitions, and has the same text form.
type Set [events.NumPartitions / 64]uint64

// Has reports whether a partition is in the set.
func (s *Set) Has(partition uint8) bool { return s[partition/64]>>(partition%64)&1 != 0 }

// Add adds a partition.
func (s *Set) Add(partition uint8) { s[partition/64] |= 1 << (partition % 64) }

// Len is the number of partitions in the set.
func (s *Set) Len() (n int) {
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// MarshalText returns the set as 64 hexadecimal digits, of which the first four bits are those of the partitions 0 to 3.
func (s Set) MarshalText() ([]byte, error) {
	var b []byte
	for _, word := range s {
		b = binary.BigEndian.AppendUint64(b, bits.Reverse64(word))
	}
	return hex.AppendEncode(nil, b), nil
}

// UnmarshalText reads what [Set.MarshalText] returned.
func (s *Set) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != events.NumPartitions/8 {
		return fmt.Errorf("placement: a set of partitions is %d hexadecimal digits, not %q", events.NumPartitions/4, text)
	}
	for i := range s {
		s[i] = bits.Reverse64(binary.BigEndian.Uint64(b[8*i:]))
	}
	return nil
}
