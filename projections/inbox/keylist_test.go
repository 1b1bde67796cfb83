package inbox

import (
	"fmt"
	"testing"
)

// TestKeyListReturnsWhatWasAdded: keys come back as they were, the empty one too, also from a list
// that is used again.
func TestKeyListReturnsWhatWasAdded(t *testing.T) {
	const name = "a walk"
	var l keyList
	for range 3 {
		l.reset()
		for i := range 300 {
			l.add(fmt.Append(nil, name[:min(len(name), i)]))
		}
		// What is appended to a key is not written into the next.
		_ = append(l.at(1), "overwritten"...)
		if l.len() != 300 {
			t.Fatalf("%d keys of 300", l.len())
		}
		for i := range 300 {
			if got := string(l.at(i)); got != name[:min(len(name), i)] {
				t.Errorf("key %d is %q", i, got)
			}
		}
	}
}
