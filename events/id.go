package events

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/zeebo/xxh3"
)

// Limits of ids and other fields in bytes, and of the number of items of a Served.
const (
	MaxIDBytes         = 128
	MaxEventIDBytes    = 64
	MaxSourceBytes     = 64
	MaxGroupBytes      = 160
	MaxTitleBytes      = 256
	MaxAttributesBytes = 256
	MaxServedItems     = 100
)

// Ids are spread over NumShards virtual shards. Each of the NumPartitions partitions consists of
// adjacent shards.
const (
	NumShards     = 8192
	NumPartitions = 256
)

// Shard is a virtual shard, 0 ≤ Shard < [NumShards]: the top 13 bits of xxh3-64 of an id.
type Shard uint16

// ShardOf returns the shard of the id of a user or item. A pseudonym has the shard of the erased
// user (see [KeyedHash.Pseudonym]).
func ShardOf(id string) Shard {
	if len(id) == pseudonymBytes && id[0] == pseudonymPrefix {
		if shard, _, ok := parsePseudonym(id); ok {
			return shard
		}
	}
	return Shard(xxh3.HashString(id) >> (64 - 13))
}

// Partition returns the partition that contains the shard. It is the top 8 bits of the same hash.
func (s Shard) Partition() uint8 { return uint8(s >> 5) }

// Errors of [ValidateID].
var (
	ErrIDEmpty   = errors.New("must not be empty")
	ErrIDTooLong = errors.New("is too long")
	ErrIDChars   = errors.New("must be " + idRule)
)

// idRule is the rule of [IsIDRune], for errors.
const idRule = "UTF-8 without white space, control characters, bidirectional controls and noncharacters"

// ValidateID returns an error unless the id is 1 to 128 bytes of UTF-8 that consists of characters
// that ids may contain ([IsIDRune]).
func ValidateID(id string) error { return validateText(id, MaxIDBytes) }

// validateText is ValidateID with another limit.
func validateText(s string, limit int) error {
	if s == "" {
		return ErrIDEmpty
	}
	if len(s) > limit {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrIDTooLong, len(s), limit)
	}

	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf { // most ids are ASCII, which is cheaper to check
			if c <= ' ' || c == 0x7f {
				return ErrIDChars
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if (r == utf8.RuneError && n == 1) || !IsIDRune(r) {
			return ErrIDChars
		}
		i += n
	}
	return nil
}

// Tags of the key encoding of an id, in sort order.
const (
	tagNumber = 0x01 // 8 bytes, big endian
	tagUUID   = 0x02 // 16 bytes
	tagRaw    = 0x03 // the bytes of the id, then 0x00, which no id contains
)

// ErrKeyID is returned by [CutID] for bytes that [AppendID] did not write.
var ErrKeyID = errors.New("events: malformed id in key")

// AppendID appends the key encoding of an id. Encodings are ordered like ids ([CompareIDs]), and
// none is a prefix of another. Canonical unsigned decimals come first, by value, in 8 bytes; then
// canonical UUIDs in 16 bytes; then all other ids, byte by byte, with a terminator. The empty id,
// which is that of the default board, is the first of those.
func AppendID(dst []byte, id string) []byte {
	if n, ok := parseNumber(id); ok {
		return binary.BigEndian.AppendUint64(append(dst, tagNumber), n)
	}
	if u, ok := parseUUID(id); ok {
		return append(append(dst, tagUUID), u[:]...)
	}
	return append(append(append(dst, tagRaw), id...), 0)
}

// CutID returns the id that [AppendID] wrote at the start of a key, and the rest of the key. It
// returns [ErrKeyID] for other bytes.
func CutID(key []byte) (id string, rest []byte, err error) {
	if rest, err = SkipID(key); err != nil {
		return "", nil, err
	}
	switch body := key[1 : len(key)-len(rest)]; key[0] {
	case tagNumber:
		return strconv.FormatUint(binary.BigEndian.Uint64(body), 10), rest, nil
	case tagUUID:
		return formatUUID(body), rest, nil
	default:
		// AppendID never writes a number or UUID in this form: otherwise the same id would have two
		// keys.
		id = string(body[:len(body)-1])
		if keyTagOf(id) != tagRaw {
			return "", nil, ErrKeyID
		}
		return id, rest, nil
	}
}

// SkipID returns the rest of a key after the id that [AppendID] wrote at its start. It checks less
// than [CutID] and allocates nothing.
func SkipID(key []byte) (rest []byte, err error) {
	if len(key) > 0 {
		switch body := key[1:]; key[0] {
		case tagNumber:
			if len(body) >= 8 {
				return body[8:], nil
			}
		case tagUUID:
			if len(body) >= 16 {
				return body[16:], nil
			}
		case tagRaw:
			if _, rest, ok := bytes.Cut(body, []byte{0}); ok {
				return rest, nil
			}
		}
	}
	return nil, ErrKeyID
}

// CompareIDs compares two ids in the order of their key encodings.
func CompareIDs(a, b string) int {
	if a == b {
		return 0
	}

	// The numbers differ, because a number has only one canonical form.
	numberA, isNumberA := parseNumber(a)
	numberB, isNumberB := parseNumber(b)
	if isNumberA && isNumberB {
		return cmp.Compare(numberA, numberB)
	}

	// Within the other tags, ids are in the order of their bytes, also in the text form of UUIDs.
	return cmp.Or(cmp.Compare(keyTagOf(a), keyTagOf(b)), cmp.Compare(a, b))
}

// keyTagOf returns the tag of the key encoding of an id.
func keyTagOf(id string) int {
	if _, ok := parseNumber(id); ok {
		return tagNumber
	}
	if _, ok := parseUUID(id); ok {
		return tagUUID
	}
	return tagRaw
}

// parseNumber parses a uint64 in its canonical decimal form, without sign and leading zeros.
func parseNumber(s string) (uint64, bool) {
	if len(s) == 0 || len(s) > 20 || (s[0] == '0' && len(s) > 1) {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		digit := s[i] - '0'
		if digit > 9 {
			return 0, false
		}
		// A number of 20 digits may exceed 64 bits, in the multiplication or in the addition.
		if n > math.MaxUint64/10 {
			return 0, false
		}
		next := n*10 + uint64(digit)
		if next < n*10 {
			return 0, false
		}
		n = next
	}
	return n, true
}

// parseUUID parses a UUID in its canonical form: 8-4-4-4-12 lower-case hexadecimal digits.
func parseUUID(s string) (u [16]byte, ok bool) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return u, false
	}
	for i, at := range uuidDigits {
		high := hexDigitValue(s[at])
		low := hexDigitValue(s[at+1])
		if high > 15 || low > 15 {
			return u, false
		}
		u[i] = high<<4 | low
	}
	return u, true
}

// uuidDigits are the indexes in the canonical form at which the two digits of each byte begin.
var uuidDigits = [16]uint8{0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34}

// hexDigitValue returns the value of a lower-case hexadecimal digit, and 0xff for any other
// character.
func hexDigitValue(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// formatUUID returns the canonical form of a UUID of 16 bytes.
func formatUUID(u []byte) string {
	var b [36]byte
	return string(appendUUID(b[:0], u))
}

// appendUUID appends the canonical form of a UUID of 16 bytes.
func appendUUID(dst, u []byte) []byte {
	for i, part := range [...][]byte{u[0:4], u[4:6], u[6:8], u[8:10], u[10:16]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}

// NumberFromKey returns the number that a key encoding stands for. It returns false if the id is no
// canonical unsigned decimal.
func NumberFromKey(key []byte) (uint64, bool) {
	if len(key) == 9 && key[0] == tagNumber {
		return binary.BigEndian.Uint64(key[1:]), true
	}
	return 0, false
}
