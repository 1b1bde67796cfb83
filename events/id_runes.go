package events

import "unicode"

// IsIDRune reports whether an id may contain a character. An id is what people type, so every
// character is allowed except
//
//   - control characters, white space and bidirectional controls, which make an id look like
//     another one or like two,
//   - noncharacters, which Unicode reserves for the inside of programs.
//
// The joiners of Persian, of Malayalam and of emoji, the tags in flags, and characters that Unicode
// does not assign yet are allowed. docs/semantics.md states the rule for users.
func IsIDRune(r rune) bool {
	if r < 0x80 {
		return r > ' ' && r != 0x7f
	}
	return !unicode.Is(&refusedRunes, r)
}

// refusedRunes are the characters above ASCII that [IsIDRune] refuses. The table is frozen. Those
// of the standard library may change with a Unicode version, and the same log must not fold
// differently with a newer Go (I4).
//
//nolint:gochecknoglobals // a table
var refusedRunes = unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x0080, Hi: 0x00a0, Stride: 1}, // controls, the last two of them next line and no-break space
		{Lo: 0x061c, Hi: 0x061c, Stride: 1}, // Arabic letter mark
		{Lo: 0x1680, Hi: 0x1680, Stride: 1}, // Ogham space
		{Lo: 0x2000, Hi: 0x200a, Stride: 1}, // spaces
		{Lo: 0x200e, Hi: 0x200f, Stride: 1}, // left-to-right and right-to-left mark
		{Lo: 0x2028, Hi: 0x202f, Stride: 1}, // separators of lines and paragraphs, embeddings and overrides, a space
		{Lo: 0x205f, Hi: 0x205f, Stride: 1}, // mathematical space
		{Lo: 0x2066, Hi: 0x2069, Stride: 1}, // isolates
		{Lo: 0x3000, Hi: 0x3000, Stride: 1}, // ideographic space
		{Lo: 0xfdd0, Hi: 0xfdef, Stride: 1}, // noncharacters, as all below
		{Lo: 0xfffe, Hi: 0xffff, Stride: 1},
	},
	R32: []unicode.Range32{
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
		{Lo: 0xefffe, Hi: 0xeffff, Stride: 1},
		{Lo: 0xffffe, Hi: 0xfffff, Stride: 1},
		{Lo: 0x10fffe, Hi: 0x10ffff, Stride: 1},
	},
}
