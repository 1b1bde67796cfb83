package engine

import (
	"bytes"
	"testing"
)

// TestMergerMergesValuesInOrderOfAge checks that values are merged from the oldest to the newest in
// whatever order Pebble passes them, and although Pebble reuses their memory.
func TestMergerMergesValuesInOrderOfAge(t *testing.T) {
	joinMerger := Merger("join", func(dst, _ []byte, values [][]byte) ([]byte, error) {
		return append(dst, bytes.Join(values, nil)...), nil
	}, nil)

	// Each letter of order passes the next digit, as a newer or an older value.
	for order, want := range map[string]string{"": "m", "nnn": "m123", "ooo": "321m", "nono": "42m13", "oonn": "21m34"} {
		value := []byte("m")
		v, err := joinMerger.Merge([]byte("ann"), value)
		if err != nil {
			t.Fatal(err)
		}
		for i, direction := range order {
			value[0] = byte('1' + i)
			if direction == 'n' {
				err = v.MergeNewer(value)
			} else {
				err = v.MergeOlder(value)
			}
			if err != nil {
				t.Fatal(err)
			}
		}

		// Pebble may reuse the memory of a value.
		value[0] = '?'
		if got, _, err := v.Finish(true); err != nil || string(got) != want {
			t.Errorf("order %q: got %q, error %v, want %q", order, got, err, want)
		}
	}
}
