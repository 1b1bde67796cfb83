package inbox

import (
	"fmt"
	"testing"
)

// TestKeyList: keys come back as they were, the empty one too, from lists that are in use at the same time and are used again.
func TestKeyList(t *testing.T) {
	f := New(DefaultSettings())
	fill := func(l *keyList, name string, n int) {
		for i := range n {
			l.add(fmt.Append(nil, name[:min(len(name), i)]))
		}
	}
	check := func(l *keyList, name string, n int) {
		t.Helper()
		if l.len() != n {
			t.Fatalf("%d keys of %d", l.len(), n)
		}
		for i := range n {
			if got := string(l.at(i)); got != name[:min(len(name), i)] {
				t.Errorf("key %d of %s is %q", i, name, got)
			}
		}
	}
	for range 3 {
		outer := f.takeKeys()
		fill(outer, "outer", 300)
		inner := f.takeKeys()
		fill(inner, "inner", 20)
		// What is appended to a key is not written into the next.
		_ = append(outer.at(1), "overwritten"...)
		check(outer, "outer", 300)
		check(inner, "inner", 20)
		f.giveKeys(inner)
		f.giveKeys(outer)
	}
	if len(f.idleKeys) != 2 {
		t.Errorf("%d lists for two walks", len(f.idleKeys))
	}
}
