package keylist

import (
	"fmt"
	"testing"
)

// TestKeyListReturnsWhatWasAdded checks that a list returns the keys that were added, including the
// empty one, and that it can be used again.
func TestKeyListReturnsWhatWasAdded(t *testing.T) {
	const text = "a key"
	var l List
	for range 3 {
		l.Reset()
		for i := range 300 {
			l.Add(fmt.Append(nil, text[:min(len(text), i)]))
		}

		// An append to a key must not change the next key.
		_ = append(l.At(1), "overwritten"...)

		if l.Len() != 300 {
			t.Fatalf("got %d keys, want 300", l.Len())
		}
		for i := range 300 {
			if got, want := string(l.At(i)), text[:min(len(text), i)]; got != want {
				t.Errorf("key %d: got %q, want %q", i, got, want)
			}
		}
	}
}
