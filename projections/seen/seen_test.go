package seen

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRiceIsCanonical(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		width := 1 + r.IntN(printBits)
		n := 1 + r.IntN(1+r.IntN(300))
		values := make([]uint64, n)
		for i := range values {
			values[i] = r.Uint64() >> (64 - width)
			if r.IntN(5) == 0 {
				values[i] = (1<<width - 1) >> r.IntN(width)
			}
		}
		slices.Sort(values)
		values = slices.Compact(values)
		row := appendRice(nil, values, width)
		got, ok := decodeRice(nil, row, width)
		if !ok || !slices.Equal(got, values) {
			t.Fatalf("width %d: %v, %v: %x", width, values, got, row)
		}
	}
}
