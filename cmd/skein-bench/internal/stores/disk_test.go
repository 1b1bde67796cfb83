package stores

import "testing"

func TestWideIDsDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for u := range uint32(10_000) {
		seen[wideID(u)] = true
	}
	if len(seen) != 10_000 {
		t.Errorf("different wide ids of 10,000 users: got %d, want 10,000", len(seen))
	}
}
