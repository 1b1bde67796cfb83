package heat

import "encoding/binary"

// Item is the heat of an item: the sum, until a score that is given overrides it for good.
type Item struct {
	Sum Sum
	// Given is the score that overrides the sum, if Scored.
	Given  int64
	Scored bool
}

// Score is what the item is ranked by.
func (h Item) Score() int64 {
	if h.Scored {
		return h.Given
	}
	return h.Sum.Score()
}

// Append appends the canonical form: 1 and the given score in 8 bytes, or 0 and the sum.
func (h Item) Append(dst []byte) []byte {
	if h.Scored {
		return binary.BigEndian.AppendUint64(append(dst, 1), uint64(h.Given))
	}
	return h.Sum.Append(append(dst, 0))
}

// DecodeItem reads what [Item.Append] wrote of an item that has heat, and nothing else.
func DecodeItem(b []byte) (h Item, err error) {
	switch {
	case len(b) == 9 && b[0] == 1:
		return Item{Scored: true, Given: int64(binary.BigEndian.Uint64(b[1:]))}, nil
	case len(b) > 1 && b[0] == 0:
		if h.Sum, err = Decode(b[1:]); err == nil && h.Sum != (Sum{}) {
			return h, nil
		}
	}
	return Item{}, ErrSum
}
