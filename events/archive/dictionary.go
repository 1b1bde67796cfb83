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

// collector numbers the ids of a block in order of appearance. Number 0 is the empty id. The dictionary is sorted only when the
// block is written; the numbers are then replaced by indexes into it.
type dictionaryBuilder struct {
	numbers        map[string]uint32
	ids            []string
	estimatedBytes int
}

func newDictionaryBuilder() *dictionaryBuilder {
	return &dictionaryBuilder{numbers: map[string]uint32{"": 0}, ids: []string{""}}
}

func (c *dictionaryBuilder) numberOf(id string) uint64 {
	n, ok := c.numbers[id]
	if !ok {
		n = uint32(len(c.ids))
		c.numbers[id] = n
		c.ids = append(c.ids, id)
		c.estimatedBytes += 8
		if len(id) > 20 {
			c.estimatedBytes += len(id)
		}
	}
	return uint64(n)
}

// append appends the dictionary and returns, for each number, its index in it. The order is: the empty id, decimal numbers by value
// as differences, UUIDs of 16 bytes, then all other ids in byte order.
func (c *dictionaryBuilder) appendSorted(dst []byte) (_ []byte, indexes []uint32) {
	type numeral struct {
		value uint64
		n     uint32
	}
	type other struct {
		key []byte
		n   uint32
	}
	var numerals []numeral
	var uuids, rest []other
	var key []byte
	for n, id := range c.ids[1:] {
		key = events.AppendID(key[:0], id)
		if v, ok := events.NumberFromKey(key); ok {
			numerals = append(numerals, numeral{v, uint32(n + 1)})
		} else if len(key) == 17 && len(id) == 36 {
			uuids = append(uuids, other{bytes.Clone(key[1:]), uint32(n + 1)})
		} else {
			rest = append(rest, other{[]byte(id), uint32(n + 1)})
		}
	}
	sort.Slice(numerals, func(i, j int) bool { return numerals[i].value < numerals[j].value })
	byKey := func(a, b other) int { return bytes.Compare(a.key, b.key) }
	slices.SortFunc(uuids, byKey)
	slices.SortFunc(rest, byKey)

	indexes = make([]uint32, len(c.ids))
	at := uint32(1)
	values, last := make([]uint64, len(numerals)), uint64(0)
	for i, e := range numerals {
		values[i], last = e.value-last, e.value
		indexes[e.n] = at
		at++
	}
	var raw []byte
	for _, e := range uuids {
		raw = append(raw, e.key...)
		indexes[e.n] = at
		at++
	}
	texts := make([]string, len(rest))
	for i, e := range rest {
		texts[i] = string(e.key)
		indexes[e.n] = at
		at++
	}
	for _, n := range []int{len(values), len(uuids), len(rest)} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = appendColumn(dst, values)
	dst = appendChunk(dst, raw)
	return appendTexts(dst, texts), indexes
}

// cutDictionary reads what collector.append wrote and returns the ids by index. Ids of one form share an allocation.
func readDictionary(c *columnReader) []string {
	numerals, uuids, rest := c.readCount(maxColumn), c.readCount(maxColumn), c.readCount(maxColumn)
	values := readColumn[uint64](c, numerals, 0)
	raw := c.readChunk()
	if len(raw) != 16*uuids || uuids > maxChunk/16 {
		c.fail()
	}
	texts := readTexts(c, rest)
	if c.failed || numerals*20+uuids*36 > maxBlockBytes {
		c.fail()
		return nil
	}
	ids := make([]string, 1, 1+numerals+uuids+rest)
	ids = appendNumerals(ids, values)
	ids = appendUUIDs(ids, raw)
	return append(ids, texts...)
}

// appendNumerals appends the decimal texts of numbers that are given as differences.
func appendNumerals(ids []string, differences []uint64) []string {
	arena := make([]byte, 0, len(differences)*9)
	ends := make([]uint32, len(differences))
	var v uint64
	for i, d := range differences {
		v += d
		arena = strconv.AppendUint(arena, v, 10)
		ends[i] = uint32(len(arena))
	}
	return appendSubstrings(ids, string(arena), ends)
}

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

// appendParts appends the parts of a text that end at some offsets.
func appendSubstrings(ids []string, text string, ends []uint32) []string {
	if len(text) > math.MaxUint32 {
		return ids
	}
	from := uint32(0)
	for _, to := range ends {
		ids = append(ids, text[from:to])
		from = to
	}
	return ids
}
