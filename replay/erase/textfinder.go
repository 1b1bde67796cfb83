package erase

import "slices"

// maxWindow limits [textFinder].window. Longer pieces of a text take longer to hash and tell ids
// apart hardly better.
const maxWindow = 8

// textFinder finds which of many ids a text contains, in a time that hardly depends on the number
// of ids. Looking for one after the other would take most of the time of a scrub for a thousand
// users.
type textFinder struct {
	// indexes has the indexes of the ids.
	indexes map[string]int
	// window is the length of the beginnings of ids by which they are looked up: that of the
	// shortest id, at most maxWindow.
	window int
	// filter is a set of bits, one for each hash of hashWindow. The bits of the beginnings are set,
	// so that nearly all places of a text need no lookup.
	filter [1 << 10]uint64
	// lengths has the different lengths of ids by their first window bytes. Thousands of ids may
	// begin alike, as numbers and ids with a time do, but they have few lengths.
	lengths map[string][]int
}

// newTextFinder returns a finder of ids, which differ.
func newTextFinder(ids []string) *textFinder {
	f := &textFinder{indexes: map[string]int{}, window: maxWindow, lengths: map[string][]int{}}
	for _, id := range ids {
		f.window = min(f.window, len(id))
	}
	for i, id := range ids {
		f.indexes[id] = i
		beginning := id[:f.window]
		h := hashWindow(beginning)
		f.filter[h/64] |= 1 << (h % 64)
		if !slices.Contains(f.lengths[beginning], len(id)) {
			f.lengths[beginning] = append(f.lengths[beginning], len(id))
		}
	}
	return f
}

// hashWindow returns a hash of 16 bits. It is a variant of FNV, which is fast for short texts.
func hashWindow(s string) uint16 {
	h := uint32(0)
	for i := range len(s) {
		h = h*0x01000193 ^ uint32(s[i])
	}
	return uint16(h ^ h>>16)
}

// eachID calls do with the index of each id that the text contains. It may call do several times
// for one id.
func (f *textFinder) eachID(text string, do func(i int)) {
	if f.window == 0 {
		return // an id is empty, and no user has that id
	}
	for at := 0; at+f.window <= len(text); at++ {
		beginning := text[at : at+f.window]
		h := hashWindow(beginning)
		mayBeID := f.filter[h/64]>>(h%64)&1 == 1
		if !mayBeID {
			continue
		}
		for _, length := range f.lengths[beginning] {
			if at+length > len(text) {
				continue
			}
			if i, isID := f.indexes[text[at:at+length]]; isID {
				do(i)
			}
		}
	}
}
