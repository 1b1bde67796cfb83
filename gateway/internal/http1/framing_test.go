package http1

import "testing"

// TestFramingLinesAreCounted demands that lines are counted wherever the input is cut.
func TestFramingLinesAreCounted(t *testing.T) {
	text := "POST / HTTP/1.1\r\nContent-Length: 3\r\nX: Content-Length: 3\r\n" +
		"transfer-ENCODING:chunked\r\nX-Content-Length: 3\r\n\r\n\ncontent-length:\n"
	for i := range len(text) + 1 {
		for j := i; j <= len(text); j++ {
			var f framing
			for _, part := range []string{text[:i], text[i:j], text[j:]} {
				f.countLines([]byte(part))
			}
			if lengths, encodings := f.lengthLines.Load(), f.encodingLines.Load(); lengths != 2 || encodings != 1 {
				t.Fatalf("cut at %d and %d: got %d lengths and %d encodings, expected 2 and 1", i, j, lengths, encodings)
			}
		}
	}
}
