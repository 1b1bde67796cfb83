package events

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// EscapeControls makes an untrusted text safe to print on a terminal. It replaces control
// characters, and characters that change the direction of text, by their Go escapes, such as \x1b.
// A terminal would obey them, and could show something other than the text.
func EscapeControls(s string) string {
	if strings.IndexFunc(s, isControlRune) < 0 {
		return s // the usual case, without a copy
	}

	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case !isControlRune(r):
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

// isControlRune reports whether a terminal may obey a character instead of showing it.
func isControlRune(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
