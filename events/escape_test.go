package events

import "testing"

// TestControlCharactersAreEscaped checks that EscapeControls escapes characters that control a
// terminal or hide text, and no others.
func TestControlCharactersAreEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"Bread, cakes":           "Bread, cakes",
		"Kunst für alle 🍞":       "Kunst für alle 🍞",
		"\x1b[2Jcleared\a":       `\x1b[2Jcleared\x07`,
		"two\nlines\r\tand":      `two\nlines\r\tand`,
		"\u009b31m":              `\x9b31m`,
		"caf\xe9\x00":            "caf\xe9\\x00",
		"abc\u202egnp.exe\u2066": `abc\u202egnp.exe\u2066`,
	} {
		if got := EscapeControls(in); got != want {
			t.Errorf("EscapeControls(%q): got %q, want %q", in, got, want)
		}
	}
}
