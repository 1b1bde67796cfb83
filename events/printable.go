package events

import "unicode"

// unprintableRunes are the characters above ASCII that an id must not contain: controls, spaces, separators, invisible format
// characters, private use and noncharacters. The table is frozen. That of the standard library grows with every Unicode version, and
// the same log must not fold differently with a newer Go (I4). Code points that Unicode 15 does not assign are allowed, so that letters
// of later versions need no new version of skein.
//
//nolint:gochecknoglobals // a table
var unprintableRunes = unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0080, Hi: 0x00a0, Stride: 1},
		{Lo: 0x00ad, Hi: 0x00ad, Stride: 1},
		{Lo: 0x0600, Hi: 0x0605, Stride: 1},
		{Lo: 0x061c, Hi: 0x061c, Stride: 1},
		{Lo: 0x06dd, Hi: 0x06dd, Stride: 1},
		{Lo: 0x070f, Hi: 0x070f, Stride: 1},
		{Lo: 0x0890, Hi: 0x0891, Stride: 1},
		{Lo: 0x08e2, Hi: 0x08e2, Stride: 1},
		{Lo: 0x1680, Hi: 0x1680, Stride: 1},
		{Lo: 0x180e, Hi: 0x180e, Stride: 1},
		{Lo: 0x2000, Hi: 0x200f, Stride: 1},
		{Lo: 0x2028, Hi: 0x202f, Stride: 1},
		{Lo: 0x205f, Hi: 0x206f, Stride: 1},
		{Lo: 0x3000, Hi: 0x3000, Stride: 1},
		{Lo: 0xd800, Hi: 0xf8ff, Stride: 1}, // surrogates and private use
		{Lo: 0xfdd0, Hi: 0xfdef, Stride: 1},
		{Lo: 0xfeff, Hi: 0xfeff, Stride: 1},
		{Lo: 0xfff0, Hi: 0xfffb, Stride: 1},
		{Lo: 0xfffe, Hi: 0xffff, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x110bd, Hi: 0x110bd, Stride: 1},
		{Lo: 0x110cd, Hi: 0x110cd, Stride: 1},
		{Lo: 0x13430, Hi: 0x1343f, Stride: 1},
		{Lo: 0x1bca0, Hi: 0x1bca3, Stride: 1},
		{Lo: 0x1d173, Hi: 0x1d17a, Stride: 1},
		{Lo: 0x1fffe, Hi: 0x1ffff, Stride: 1},
		{Lo: 0x2fffe, Hi: 0x2ffff, Stride: 1},
		{Lo: 0x3fffe, Hi: 0x3ffff, Stride: 1},
		{Lo: 0x4fffe, Hi: 0x4ffff, Stride: 1},
		{Lo: 0x5fffe, Hi: 0x5ffff, Stride: 1},
		{Lo: 0x6fffe, Hi: 0x6ffff, Stride: 1},
		{Lo: 0x7fffe, Hi: 0x7ffff, Stride: 1},
		{Lo: 0x8fffe, Hi: 0x8ffff, Stride: 1},
		{Lo: 0x9fffe, Hi: 0x9ffff, Stride: 1},
		{Lo: 0xafffe, Hi: 0xaffff, Stride: 1},
		{Lo: 0xbfffe, Hi: 0xbffff, Stride: 1},
		{Lo: 0xcfffe, Hi: 0xcffff, Stride: 1},
		{Lo: 0xdfffe, Hi: 0xdffff, Stride: 1},
		{Lo: 0xe0000, Hi: 0xe00ff, Stride: 1}, // tags
		{Lo: 0xe01f0, Hi: 0xe0fff, Stride: 1}, // kept by Unicode for invisible characters
		{Lo: 0xefffe, Hi: 0x10ffff, Stride: 1},
	},
}

// isPrintable reports whether an id may contain a character above ASCII.
func isPrintable(r rune) bool { return !unicode.Is(&unprintableRunes, r) }
