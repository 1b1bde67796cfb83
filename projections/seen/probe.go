package seen

import (
	"math/bits"
	"slices"
)

// probe holds candidates against sets of fingerprints and Bloom filters.
//
//	candidates ── print of each ──► map of all sets ───hit──► search in the sets hit ─► seen
//	                                   │ miss                       │ in none
//	                                   ▼                            ▼
//	                                Bloom filter ──► Bloom filter ──► ... ──► unseen
type probe struct {
	salt uint64
	// fingerprints are those of the candidates, left the indexes of those that are not known to be seen, rising.
	fingerprints []uint64
	left         []uint32
	// values are the members of all sets, one set after the other, each sorted.
	values []uint64
	sets   []set
	// filters have their bits in data.
	filters []bloomFilter
	data    []byte
	// members says by the first bits of a print which sets may have it: bit i stands for the sets i, i+8, ...
	members []uint8
	key     []byte
}

// set is a set of fingerprints.
type set struct{ from, to int } // in values

func (p *probe) reset(salt uint64, n int) {
	p.salt = salt
	p.fingerprints = slices.Grow(p.fingerprints[:0], n)[:n]
	p.left, p.values, p.sets = p.left[:0], p.values[:0], p.sets[:0]
	p.filters, p.data = p.filters[:0], p.data[:0]
}

func (p *probe) memory() int {
	return 8*(cap(p.fingerprints)+cap(p.values)) + 4*cap(p.left) + cap(p.members) + cap(p.data)
}

// begin and end stand around the appending of a set to values.
func (p *probe) begin() { p.sets = append(p.sets, set{from: len(p.values)}) }

func (p *probe) end(sorted bool) {
	s := &p.sets[len(p.sets)-1]
	s.to = len(p.values)
	if !sorted {
		slices.Sort(p.values[s.from:s.to])
	}
}

func (p *probe) addFingerprints(row []byte) (err error) {
	p.begin()
	p.values, err = decodeFingerprints(p.values, row)
	p.end(true)
	return err
}

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

// sift finds out which candidates are left.
func (p *probe) sift() {
	p.left = slices.Grow(p.left, len(p.fingerprints))[:len(p.fingerprints)]
	for i := range p.left {
		p.left[i] = uint32(i)
	}
	if len(p.values) > 0 {
		p.siftSets()
	}
	if len(p.filters) == 0 {
		return
	}
	for _, i := range p.left {
		p.fingerprints[i] = spread(p.fingerprints[i])
	}
	for i := range p.filters {
		p.siftFilter(&p.filters[i])
	}
}

// perValue is the number of entries that the map of members has for each value. About one in perValue unseen candidates gets past the map
// and must be searched for.
const perValue = 16

// siftSets drops the candidates that are in a set.
func (p *probe) siftSets() {
	if len(p.left) < len(p.values)/perValue {
		p.left = slices.DeleteFunc(p.left, func(i uint32) bool { return p.inSets(p.fingerprints[i], 1<<8-1) })
		return
	}
	size := min(max(bits.Len(uint(len(p.values)*perValue)), 8), 26)
	p.members = slices.Grow(p.members[:0], 1<<size)[:1<<size]
	clear(p.members)
	for i := range p.sets {
		p.mark(i, size)
	}
	shift := printBits - size
	kept := p.left[:0]
	for _, i := range p.left {
		of := p.members[p.fingerprints[i]>>shift]
		if of == 0 || !p.inSets(p.fingerprints[i], of) {
			kept = append(kept, i)
		}
	}
	p.left = kept
}

// mark enters a set into the map of members.
func (p *probe) mark(i, size int) {
	s, bit := &p.sets[i], uint8(1)<<(i%8)
	for _, v := range p.values[s.from:s.to] {
		p.members[v>>(printBits-size)] |= bit
	}
}

// inSets reports whether a print is in one of some sets, which are named as in members.
func (p *probe) inSets(of uint64, sets uint8) bool {
	for i := range p.sets {
		if s := &p.sets[i]; sets>>(i%8)&1 == 1 && contains(p.values[s.from:s.to], of) {
			return true
		}
	}
	return false
}

// contains reports whether a fingerprint is among sorted ones. They are hashes, spread evenly, so it stands near where
// it would if all gaps were equal: of n about √n / 2 away.
func contains(values []uint64, v uint64) bool {
	if len(values) == 0 {
		return false
	}
	guess, _ := bits.Mul64(v<<(64-printBits), uint64(len(values)))
	i := int(guess)
	for i > 0 && values[i] > v {
		i--
	}
	for i < len(values)-1 && values[i] < v {
		i++
	}
	return values[i] == v
}

// siftFilter drops the candidates that are in a Bloom filter.
func (p *probe) siftFilter(b *bloomFilter) {
	kept := 0
	for _, i := range p.left {
		p.left[kept] = i
		if !b.has(p.fingerprints[i]) {
			kept++
		}
	}
	p.left = p.left[:kept]
}
