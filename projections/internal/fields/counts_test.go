package fields

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/projections"
)

// TestCountsSurviveEncoding checks that counts are read as they were written, that zeros at the end
// take no space, and that every other row is refused.
func TestCountsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Int64Range(0, 300), 1, 7).Draw(t, "counts")
		row := AppendCounts(nil, want)
		got := make([]int64, len(want))
		if err := ReadCounts(row, got); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, error %v, want %v", got, err, want)
		}
		if slices.Max(want) == 0 && len(row) != 0 {
			t.Fatalf("zeros are encoded as %x, want no bytes", row)
		}

		// With a zero at its end, the row is not in its shortest form, or has a count too many.
		if err := ReadCounts(append(row, 0), got); !errors.Is(err, projections.ErrCorrupt) {
			t.Fatalf("%x and a zero: got error %v, want %v", row, err, projections.ErrCorrupt)
		}
	})

	// A row that is incomplete, one that is not in its shortest form, and one with too many counts.
	for _, row := range [][]byte{{0x80}, {0x80, 0x00}, {1, 2, 3}} {
		if err := ReadCounts(row, make([]int64, 2)); !errors.Is(err, projections.ErrCorrupt) {
			t.Errorf("%x: got error %v, want %v", row, err, projections.ErrCorrupt)
		}
	}
}

// TestAddCountsRefusesNegativeSums checks that counts are added, and that a sum below zero is
// refused.
func TestAddCountsRefusesNegativeSums(t *testing.T) {
	counts := []int64{1, 2}
	if err := AddCounts(counts, []int64{-1, 3}, nil); err != nil || !slices.Equal(counts, []int64{0, 5}) {
		t.Errorf("got %v, error %v, want [0 5]", counts, err)
	}
	if err := AddCounts(counts, []int64{-1, 0}, nil); !errors.Is(err, projections.ErrCorrupt) {
		t.Errorf("sum below zero: got error %v, want %v", err, projections.ErrCorrupt)
	}
}
