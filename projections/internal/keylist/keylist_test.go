package keylist

import (
	"fmt"
	"testing"
)

// TestKeyListReturnsWhatWasAdded: keys come back as they were, the empty one too, also from a list
// that is used again.
func TestKeyListReturnsWhatWasAdded(t *testing.T) {
	const name = "a walk"
	var l List
	for range 3 {
		l.Reset()
		for i := range 300 {
			l.Add(fmt.Append(nil, name[:min(len(name), i)]))
		}
		// What is appended to a key is not written into the next.
		_ = append(l.At(1), "overwritten"...)
		if l.Len() != 300 {
			t.Fatalf("%d keys of 300", l.Len())
		}
		for i := range 300 {
			if got := string(l.At(i)); got != name[:min(len(name), i)] {
				t.Errorf("key %d is %q", i, got)
			}
		}
	}
}
