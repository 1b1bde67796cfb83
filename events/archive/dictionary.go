package archive

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"sort"
	"strconv"

	"github.com/skein-feed/skein/events"
)

// dictionaryBuilder collects the different ids of a block and numbers them in order of appearance.
// Number 0 is the empty id. The dictionary is sorted only when the block is written; the columns
// then replace each number by the index in the sorted dictionary.
type dictionaryBuilder struct {
	numbers map[string]uint32
	ids     []string
	// estimatedBytes is the approximate size of the dictionary before compression.
	estimatedBytes int
}

// newDictionaryBuilder returns a dictionary that has only the empty id.
func newDictionaryBuilder() *dictionaryBuilder {
	return &dictionaryBuilder{numbers: map[string]uint32{"": 0}, ids: []string{""}}
}

// numberOf returns the number of an id, which it adds if it is new.
func (c *dictionaryBuilder) numberOf(id string) uint64 {
	n, ok := c.numbers[id]
	if !ok {
		n = uint32(len(c.ids))
		c.numbers[id] = n
		c.ids = append(c.ids, id)

		// A number is stored as a short difference. Ids that are too long to be one are stored as
		// text.
		c.estimatedBytes += 8
		if len(id) > 20 {
			c.estimatedBytes += len(id)
		}
	}
	return uint64(n)
}

// appendSorted appends the dictionary and returns, for each number, the index of its id in the
// dictionary. The order is: the empty id, decimal numbers by value, stored as differences; UUIDs,
// stored as 16 bytes; then all other ids in byte order.
func (c *dictionaryBuilder) appendSorted(dst []byte) (_ []byte, indexes []uint32) {
	type numeral struct {
		value uint64
		n     uint32
	}
	type other struct {
		key []byte
		n   uint32
	}

	// Sort the ids by form. The empty id is not stored.
	var numerals []numeral
	var uuids, rest []other
	var key []byte
	for n, id := range c.ids[1:] {
		key = events.AppendID(key[:0], id)
		number := uint32(n + 1)
		isUUID := len(key) == 17 && len(id) == 36 // a tag and 16 bytes, of the 36 characters of the text form
		if v, ok := events.NumberFromKey(key); ok {
			numerals = append(numerals, numeral{v, number})
		} else if isUUID {
			uuids = append(uuids, other{bytes.Clone(key[1:]), number})
		} else {
			rest = append(rest, other{[]byte(id), number})
		}
	}

	sort.Slice(numerals, func(i, j int) bool { return numerals[i].value < numerals[j].value })
	byKey := func(a, b other) int { return bytes.Compare(a.key, b.key) }
	slices.SortFunc(uuids, byKey)
	slices.SortFunc(rest, byKey)

	indexes = make([]uint32, len(c.ids))
	index := uint32(1) // the empty id has index 0

	differences := make([]uint64, len(numerals))
	previous := uint64(0)
	for i, numeral := range numerals {
		differences[i] = numeral.value - previous
		previous = numeral.value
		indexes[numeral.n] = index
		index++
	}

	var raw []byte
	for _, uuid := range uuids {
		raw = append(raw, uuid.key...)
		indexes[uuid.n] = index
		index++
	}

	texts := make([]string, len(rest))
	for i, text := range rest {
		texts[i] = string(text.key)
		indexes[text.n] = index
		index++
	}

	for _, n := range []int{len(differences), len(uuids), len(rest)} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = appendColumn(dst, differences)
	dst = appendChunk(dst, raw)
	return appendTexts(dst, texts), indexes
}

// readDictionary reads what dictionaryBuilder.appendSorted wrote and returns the ids by index. Ids
// of the same form share an allocation.
func readDictionary(c *columnReader) []string {
	numerals := c.readCount(maxColumn)
	uuids := c.readCount(maxColumn)
	rest := c.readCount(maxColumn)
	values := readColumn[uint64](c, numerals, 0)
	raw := c.readChunk()
	if len(raw) != 16*uuids || uuids > maxChunk/16 {
		c.fail()
	}
	texts := readTexts(c, rest)

	// Decoded ids are longer than stored ones: a number has up to 20 digits and a UUID 36
	// characters.
	if c.failed || numerals*20+uuids*36 > maxBlockBytes {
		c.fail()
		return nil
	}

	ids := make([]string, 1, 1+numerals+uuids+rest)
	ids = appendNumerals(ids, values)
	ids = appendUUIDs(ids, raw)
	return append(ids, texts...)
}

// appendNumerals appends the decimal forms of numbers, each of which is given as the difference to
// the one before it.
func appendNumerals(ids []string, differences []uint64) []string {
	arena := make([]byte, 0, len(differences)*9) // it grows if the numbers have more digits
	ends := make([]uint32, len(differences))
	var v uint64
	for i, d := range differences {
		v += d
		arena = strconv.AppendUint(arena, v, 10)
		ends[i] = uint32(len(arena))
	}
	return appendSubstrings(ids, string(arena), ends)
}

// appendUUIDs appends the text forms of UUIDs of 16 bytes each.
func appendUUIDs(ids []string, raw []byte) []string {
	arena := make([]byte, 0, len(raw)/16*36)
	ends := make([]uint32, len(raw)/16)
	for i := range ends {
		u := raw[16*i : 16*i+16]
		from := 0
		for _, to := range []int{4, 6, 8, 10, 16} {
			if from > 0 {
				arena = append(arena, '-')
			}
			arena = hex.AppendEncode(arena, u[from:to])
			from = to
		}
		ends[i] = uint32(len(arena))
	}
	return appendSubstrings(ids, string(arena), ends)
}

// appendSubstrings cuts a text at the given ends, which rise, and appends the substrings. They
// share the memory of the text.
func appendSubstrings(ids []string, text string, ends []uint32) []string {
	if len(text) > math.MaxUint32 {
		return ids // never: readDictionary limits the text to maxBlockBytes
	}
	from := uint32(0)
	for _, to := range ends {
		ids = append(ids, text[from:to])
		from = to
	}
	return ids
}
