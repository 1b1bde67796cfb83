package heat

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestItemRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Item{Sum: Sum{}.Add(rapid.Uint32Min(1).Draw(t, "weight"), rapid.Int64Min(0).Draw(t, "at"), 1_000_000)}
		want := h.Sum.Score()
		if rapid.Bool().Draw(t, "scored") {
			want = rapid.Int64().Draw(t, "score")
			h = Item{HasGivenScore: true, GivenScore: want}
		}
		row := h.Append([]byte("before"))[len("before"):]
		back, err := DecodeItem(row)
		if err != nil || back != h || back.Score() != want {
			t.Fatalf("%+v went in, %+v (%v) with score %d came out, want %d", h, back, err, back.Score(), want)
		}
	})
}

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
			t.Errorf("%x: %+v, %v", row, h, err)
		}
	}
}
