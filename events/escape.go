package events

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeControls returns a text of somebody else for a terminal. It replaces control characters and characters that change the direction of
// writing by their Go escapes, such as \x1b: a terminal would obey them, and show what was never printed.
func EscapeControls(s string) string {
	if strings.IndexFunc(s, isControl) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case !isControl(r):
			b.WriteString(s[:size]) // also a byte that is not UTF-8
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

func isControl(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
