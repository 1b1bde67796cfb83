package seen

import (
	"math/bits"
	"slices"
)

// probe looks up candidates in sets of fingerprints and in Bloom filters.
//
//	candidates ── fingerprint of each ──► prefix map of all sets ──hit──► search in the sets hit ──► seen
//	                                         │ miss                           │ in none
//	                                         ▼                                ▼
//	                                    Bloom filter ──► Bloom filter ──► ... ──► unseen
type probe struct {
	// salt is that of the user, see userSalt.
	salt uint64
	// fingerprints are those of the candidates, by index.
	fingerprints []uint64
	// unseen are the indexes, in rising order, of the candidates that were not found so far.
	unseen []uint32
	// values are the members of all sets, one set after the other. Each set is sorted.
	values []uint64
	sets   []set
	// filters have their bits in data.
	filters []bloomFilter
	data    []byte
	// setsByPrefix tells, by the first bits of a fingerprint, which sets may have it: bit i stands
	// for the sets i, i+8, i+16 and so on.
	setsByPrefix []uint8
	// key is scratch memory.
	key []byte
}

// set is a set of fingerprints: values[from:to].
type set struct{ from, to int }

// reset empties the probe for n candidates of a user.
func (p *probe) reset(salt uint64, n int) {
	p.salt = salt
	p.fingerprints = slices.Grow(p.fingerprints[:0], n)[:n]
	p.unseen = p.unseen[:0]
	p.values = p.values[:0]
	p.sets = p.sets[:0]
	p.filters = p.filters[:0]
	p.data = p.data[:0]
}

func (p *probe) memoryBytes() int {
	return 8*(cap(p.fingerprints)+cap(p.values)) + 4*cap(p.unseen) + cap(p.setsByPrefix) + cap(p.data)
}

// beginSet begins a set. The caller appends its members to values and then calls endSet.
func (p *probe) beginSet() { p.sets = append(p.sets, set{from: len(p.values)}) }

// endSet ends a set. It sorts the members unless they are sorted.
func (p *probe) endSet(sorted bool) {
	s := &p.sets[len(p.sets)-1]
	s.to = len(p.values)
	if !sorted {
		slices.Sort(p.values[s.from:s.to])
	}
}

// addFingerprints adds the set in a row of fingerprints.
func (p *probe) addFingerprints(row []byte) (err error) {
	p.beginSet()
	p.values, err = decodeFingerprints(p.values, row)
	p.endSet(true)
	return err
}

// addBloom adds the filter in a row. It copies the bits, because the row is valid until the next
// read only.
func (p *probe) addBloom(row []byte) error {
	b, err := decodeBloom(row)
	if err != nil {
		return err
	}
	from := len(p.data)
	p.data = append(p.data, b.bits...)
	b.bits = p.data[from:len(p.data):len(p.data)]
	p.filters = append(p.filters, b)
	return nil
}

// findUnseen leaves in unseen the candidates that are in no set and no filter.
func (p *probe) findUnseen() {
	p.unseen = slices.Grow(p.unseen, len(p.fingerprints))[:len(p.fingerprints)]
	for i := range p.unseen {
		p.unseen[i] = uint32(i)
	}

	if len(p.values) > 0 {
		p.dropMembersOfSets()
	}
	if len(p.filters) == 0 {
		return
	}

	// All filters use the same spread fingerprint.
	for _, i := range p.unseen {
		p.fingerprints[i] = spreadFingerprint(p.fingerprints[i])
	}
	for i := range p.filters {
		p.dropMembersOfFilter(&p.filters[i])
	}
}

// mapEntriesPerValue is the number of entries in the prefix map per value. About one in
// mapEntriesPerValue unseen candidates has an entry by chance and must be searched for.
const mapEntriesPerValue = 16

// dropMembersOfSets removes the candidates that are in a set from unseen.
func (p *probe) dropMembersOfSets() {
	// For few candidates the map costs more than it saves.
	if len(p.unseen) < len(p.values)/mapEntriesPerValue {
		const allSets = 1<<8 - 1
		p.unseen = slices.DeleteFunc(p.unseen, func(i uint32) bool { return p.isInSets(p.fingerprints[i], allSets) })
		return
	}

	// At most 26 bits, so that the map has at most 64 MiB, however many values there are.
	prefixBits := min(max(bits.Len(uint(len(p.values)*mapEntriesPerValue)), 8), 26)
	p.setsByPrefix = slices.Grow(p.setsByPrefix[:0], 1<<prefixBits)[:1<<prefixBits]
	clear(p.setsByPrefix)
	for i := range p.sets {
		p.addToPrefixMap(i, prefixBits)
	}

	shift := fingerprintBits - prefixBits
	unseen := p.unseen[:0]
	for _, i := range p.unseen {
		sets := p.setsByPrefix[p.fingerprints[i]>>shift]
		if sets == 0 || !p.isInSets(p.fingerprints[i], sets) {
			unseen = append(unseen, i)
		}
	}
	p.unseen = unseen
}

// addToPrefixMap enters the i-th set into the prefix map.
func (p *probe) addToPrefixMap(i, prefixBits int) {
	s := &p.sets[i]
	bit := uint8(1) << (i % 8)
	for _, v := range p.values[s.from:s.to] {
		p.setsByPrefix[v>>(fingerprintBits-prefixBits)] |= bit
	}
}

// isInSets reports whether a fingerprint is in one of the sets that a mask names, as in
// setsByPrefix.
func (p *probe) isInSets(fingerprint uint64, mask uint8) bool {
	for i := range p.sets {
		s := &p.sets[i]
		if mask>>(i%8)&1 == 1 && contains(p.values[s.from:s.to], fingerprint) {
			return true
		}
	}
	return false
}

// contains reports whether a fingerprint is in a sorted set. Fingerprints are hashes and so spread
// evenly: the search begins where the fingerprint would be if all gaps were equal. Of n
// fingerprints it is about √n / 2 away from there.
func contains(values []uint64, v uint64) bool {
	if len(values) == 0 {
		return false
	}
	guess, _ := bits.Mul64(v<<(64-fingerprintBits), uint64(len(values)))
	i := int(guess)
	for i > 0 && values[i] > v {
		i--
	}
	for i < len(values)-1 && values[i] < v {
		i++
	}
	return values[i] == v
}

// dropMembersOfFilter removes the candidates that are in a Bloom filter from unseen.
func (p *probe) dropMembersOfFilter(b *bloomFilter) {
	// Every index is written, and one that does not stay is overwritten by the next. So the loop has
	// no branch that depends on the filter, which the processor would often predict wrong.
	n := 0
	for _, i := range p.unseen {
		p.unseen[n] = i
		if !b.has(p.fingerprints[i]) {
			n++
		}
	}
	p.unseen = p.unseen[:n]
}
