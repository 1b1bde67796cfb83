package heat

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// TestItemRoundTrip checks that an item is decoded as it was encoded, with its score.
func TestItemRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Item{Sum: Sum{}.Add(rapid.Uint32Min(1).Draw(t, "weight"), rapid.Int64Min(0).Draw(t, "at"), 1_000_000)}
		want := h.Sum.Score()
		if rapid.Bool().Draw(t, "scored") {
			want = rapid.Int64().Draw(t, "score")
			h = Item{HasGivenScore: true, GivenScore: want}
		}

		row := h.Append([]byte("before"))[len("before"):]
		decoded, err := DecodeItem(row)
		if err != nil || decoded != h || decoded.Score() != want {
			t.Fatalf("got %+v, error %v, score %d, want %+v, score %d", decoded, err, decoded.Score(), h, want)
		}
	})
}

// TestImpossibleItems checks that rows that Append never makes are refused.
func TestImpossibleItems(t *testing.T) {
	for _, row := range [][]byte{
		nil,
		{0},
		{1},
		{2},
		Item{}.Append(nil), bytes.Repeat([]byte{1}, 8), bytes.Repeat([]byte{1}, 10),
		append(Item{Sum: Sum{}.Add(1, 1, 1)}.Append(nil), 0),
	} {
		if h, err := DecodeItem(row); !errors.Is(err, ErrSum) {
			t.Errorf("%x: got %+v, error %v, want %v", row, h, err, ErrSum)
		}
	}
}
