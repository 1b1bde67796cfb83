package fields

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// AppendCounts appends counts as varints, without the zeros at their end. It appends nothing if all are zero.
func AppendCounts(dst []byte, counts []int64) []byte {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	for _, n := range counts {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// ReadCounts reads a row that AppendCounts wrote into counts. Counts that the row does not have are zero. It returns an error of
// [projections.RowError] for a row that is not in its shortest form, or has more counts than expected: no fold writes such a row.
func ReadCounts(row []byte, counts []int64) error {
	rest := row
	last := int64(1)
	for i := range counts {
		if counts[i] = 0; len(rest) == 0 {
			continue
		}
		n, err := CutCount(&rest)
		if err != nil {
			return projections.RowError("counts", row)
		}
		counts[i], last = n, n
	}
	if len(rest) != 0 || last == 0 {
		return projections.RowError("counts", row)
	}
	return nil
}

// CutCount reads a varint from the beginning of rest, and removes it. One that is not in its shortest form, or above 2^62, is an error.
func CutCount(rest *[]byte) (int64, error) {
	n, k := binary.Uvarint(*rest)
	if k <= 0 || n > 1<<62 || k > 1 && (*rest)[k-1] == 0 {
		return 0, projections.RowError("count", *rest)
	}
	*rest = (*rest)[k:]
	return int64(n), nil
}

// AddCounts adds delta to counts. A sum below zero is an error, which names the key: the fold has met an impossible state.
func AddCounts(counts, delta []int64, key []byte) error {
	for i, d := range delta {
		if counts[i] += d; counts[i] < 0 {
			return projections.RowError("count below zero", key)
		}
	}
	return nil
}
