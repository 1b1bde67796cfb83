package seen

import (
	"math/bits"
	"slices"
)

// probe holds candidates against sets of prints and Bloom filters.
//
//	candidates ── print of each ──► bitmap of all sets ──hit──► search in each set ──► seen
//	                                   │ miss                       │ in none
//	                                   ▼                            ▼
//	                                Bloom filter ──► Bloom filter ──► ... ──► unseen
type probe struct {
	salt uint64
	// prints are those of the candidates, left the indexes of those that are not known to be seen, rising.
	prints []uint64
	left   []uint32
	// values are the members of all sets, one set after the other, each sorted.
	values []uint64
	sets   []set
	// starts are indexes into values: where those begin that have the same first bits.
	starts []uint32
	// filters have their bits in data.
	filters []bloomFilter
	data    []byte
	bitmap  []uint64
	key     []byte
}

// set is a set of prints, all or the first bits of them.
type set struct {
	from, to int // in values
	width    int
	// index is where its part of starts is, of 2^bits entries and one for the end.
	index, bits int
}

func (p *probe) reset(salt uint64, n int) {
	p.salt = salt
	p.prints = slices.Grow(p.prints[:0], n)[:n]
	p.left, p.values, p.sets, p.starts = p.left[:0], p.values[:0], p.sets[:0], p.starts[:0]
	p.filters, p.data = p.filters[:0], p.data[:0]
}

func (p *probe) memory() int {
	return 8*(cap(p.prints)+cap(p.values)+cap(p.bitmap)) + 4*(cap(p.left)+cap(p.starts)) + cap(p.data)
}

// begin and end stand around the appending of a set to values.
func (p *probe) begin() { p.sets = append(p.sets, set{from: len(p.values)}) }

func (p *probe) end(width int, sorted bool) {
	s := &p.sets[len(p.sets)-1]
	s.to, s.width = len(p.values), width
	if !sorted {
		slices.Sort(p.values[s.from:s.to])
	}
}

func (p *probe) addPrints(row []byte) (err error) {
	p.begin()
	p.values, err = decodePrints(p.values, row)
	p.end(printBits, true)
	return err
}

func (p *probe) addCut(row []byte) (err error) {
	p.begin()
	var width int
	p.values, width, err = decodeCut(p.values, row)
	p.end(width, true)
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
	p.left = slices.Grow(p.left, len(p.prints))[:len(p.prints)]
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
		p.prints[i] = spread(p.prints[i])
	}
	for i := range p.filters {
		p.siftFilter(&p.filters[i])
	}
}

// siftSets drops the candidates that are in a set. Where they are many, few of the unseen get past the bitmap, which has a
// bit for each beginning of a print and is at most one part in bitsPerValue full.
func (p *probe) siftSets() {
	const bitsPerValue = 64
	if len(p.left) < len(p.values)/bitsPerValue {
		p.left = slices.DeleteFunc(p.left, func(i uint32) bool { return p.inSets(p.prints[i]) })
		return
	}
	size := min(max(bits.Len(uint(len(p.values)*bitsPerValue)), 10), 26)
	words := 1 << (size - 6)
	p.bitmap = slices.Grow(p.bitmap[:0], words)[:words]
	clear(p.bitmap)
	for i := range p.sets {
		p.mark(&p.sets[i], size)
		p.index(&p.sets[i])
	}
	shift := printBits - size
	kept := p.left[:0]
	for _, i := range p.left {
		at := p.prints[i] >> shift
		if p.bitmap[at>>6]>>(at&63)&1 == 0 || !p.inIndex(p.prints[i]) {
			kept = append(kept, i)
		}
	}
	p.left = kept
}

// mark sets the bits of a set in the bitmap.
func (p *probe) mark(s *set, size int) {
	for _, v := range p.values[s.from:s.to] {
		if s.width >= size {
			at := v >> (s.width - size)
			p.bitmap[at>>6] |= 1 << (at & 63)
			continue
		}
		// A short print stands for many bits.
		first := v << (size - s.width)
		for at := first; at < first+1<<(size-s.width); at++ {
			p.bitmap[at>>6] |= 1 << (at & 63)
		}
	}
}

// index finds out where the members of a set begin that have the same first bits, about four each.
func (p *probe) index(s *set) {
	values := p.values[s.from:s.to]
	s.bits = min(max(bits.Len(uint(len(values)))-2, 0), s.width)
	s.index = len(p.starts)
	shift := s.width - s.bits
	next := uint64(0)
	for i, v := range values {
		for ; next <= v>>shift; next++ {
			p.starts = append(p.starts, uint32(s.from+i))
		}
	}
	for ; next <= 1<<s.bits; next++ {
		p.starts = append(p.starts, uint32(s.to))
	}
}

// inIndex tells whether a print is in a set, by its index.
func (p *probe) inIndex(of uint64) bool {
	for i := range p.sets {
		s := &p.sets[i]
		v := of >> (printBits - s.width)
		at := s.index + int(v>>(s.width-s.bits))
		if slices.Contains(p.values[p.starts[at]:p.starts[at+1]], v) {
			return true
		}
	}
	return false
}

// inSets is the same without.
func (p *probe) inSets(of uint64) bool {
	for i := range p.sets {
		s := &p.sets[i]
		if _, found := slices.BinarySearch(p.values[s.from:s.to], of>>(printBits-s.width)); found {
			return true
		}
	}
	return false
}

// siftFilter drops the candidates that are in a Bloom filter.
func (p *probe) siftFilter(b *bloomFilter) {
	kept := 0
	for _, i := range p.left {
		p.left[kept] = i
		if !b.has(p.prints[i]) {
			kept++
		}
	}
	p.left = p.left[:kept]
}
