package http1

import "testing"

// TestFramingLinesAreCounted checks that the lines with Content-Length and with Transfer-Encoding
// are counted, wherever the input is cut into three parts.
func TestFramingLinesAreCounted(t *testing.T) {
	// Only the second line, the fourth and the last one begin with one of the names. Upper and
	// lower case are the same, and a line of the body counts.
	text := "POST / HTTP/1.1\r\nContent-Length: 3\r\nX: Content-Length: 3\r\n" +
		"transfer-ENCODING:chunked\r\nX-Content-Length: 3\r\n\r\n\ncontent-length:\n"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var f framing
			for _, part := range []string{text[:i], text[i:j], text[j:]} {
				f.countLines([]byte(part))
			}
			lengths := f.lengthLines.Load()
			encodings := f.encodingLines.Load()
			if lengths != 2 || encodings != 1 {
				t.Fatalf("cut at %d and %d: got %d lines with lengths and %d with encodings, want 2 and 1", i, j, lengths, encodings)
			}
		}
	}
}
