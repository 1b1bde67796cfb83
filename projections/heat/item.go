package heat

import "encoding/binary"

// Item is the heat of an item: a sum of events, or, once a score was given, that score. A given
// score stays until another one is given.
type Item struct {
	Sum Sum
	// GivenScore is the score that was given, if HasGivenScore is set. It replaces that of the sum.
	GivenScore    int64
	HasGivenScore bool
}

// Score returns the score by which the item is ranked.
func (h Item) Score() int64 {
	if h.HasGivenScore {
		return h.GivenScore
	}
	return h.Sum.Score()
}

// Append appends the canonical form: the byte 1 and the given score in 8 bytes, or the byte 0 and
// the sum.
func (h Item) Append(dst []byte) []byte {
	if h.HasGivenScore {
		return binary.BigEndian.AppendUint64(append(dst, 1), uint64(h.GivenScore))
	}
	return h.Sum.Append(append(dst, 0))
}

// DecodeItem reads what [Item.Append] wrote for an item that has a sum or a given score. It fails
// with [ErrSum] for all other bytes.
func DecodeItem(b []byte) (h Item, err error) {
	switch {
	case len(b) == 9 && b[0] == 1:
		return Item{HasGivenScore: true, GivenScore: int64(binary.BigEndian.Uint64(b[1:]))}, nil
	case len(b) > 1 && b[0] == 0:
		if h.Sum, err = Decode(b[1:]); err == nil && h.Sum != (Sum{}) {
			return h, nil
		}
	}
	return Item{}, ErrSum
}
