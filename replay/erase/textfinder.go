package erase

import "strings"

// windowBytes is the length of the piece of a text by which a textFinder looks up ids.
const windowBytes = 8

// textFinder finds which of many ids a text contains, in a time that hardly depends on the number
// of ids. Looking for one after the other would take most of the time of a scrub for a thousand
// users.
type textFinder struct {
	ids []string
	// window is the length of the beginnings of ids by which they are looked up: that of the
	// shortest id, at most windowBytes.
	window int
	// filter has a bit for the hash of each beginning, so that nearly all places of a text need no
	// lookup. byBeginning has the indexes of ids.
	filter      [1 << 10]uint64
	byBeginning map[string][]int
}

func newTextFinder(ids []string) *textFinder {
	f := &textFinder{ids: ids, window: windowBytes, byBeginning: map[string][]int{}}
	for _, id := range ids {
		f.window = min(f.window, len(id))
	}
	for i, id := range ids {
		beginning := id[:f.window]
		h := hashOfWindow(beginning)
		f.filter[h/64] |= 1 << (h % 64)
		f.byBeginning[beginning] = append(f.byBeginning[beginning], i)
	}
	return f
}

// hashOfWindow returns a hash of 16 bits.
func hashOfWindow(s string) uint16 {
	h := uint32(0)
	for i := range len(s) {
		h = h*0x01000193 ^ uint32(s[i])
	}
	return uint16(h ^ h>>16)
}

// each calls do with the index of each id that the text contains. It may call do several times for
// one id.
func (f *textFinder) each(text string, do func(i int)) {
	for at := 0; at+f.window <= len(text) && f.window > 0; at++ {
		h := hashOfWindow(text[at : at+f.window])
		if f.filter[h/64]>>(h%64)&1 == 0 {
			continue
		}
		for _, i := range f.byBeginning[text[at:at+f.window]] {
			if strings.HasPrefix(text[at:], f.ids[i]) {
				do(i)
			}
		}
	}
}
