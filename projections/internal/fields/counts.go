package fields

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// AppendCounts appends counts without the zeros at their end: nothing, if all are zero.
func AppendCounts(dst []byte, counts []int64) []byte {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	for _, n := range counts {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// ReadCounts reads what AppendCounts wrote.
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

// CutCount reads a number in its shortest form.
func CutCount(rest *[]byte) (int64, error) {
	n, k := binary.Uvarint(*rest)
	if k <= 0 || n > 1<<62 || k > 1 && (*rest)[k-1] == 0 {
		return 0, projections.RowError("count", *rest)
	}
	*rest = (*rest)[k:]
	return int64(n), nil
}

// AddCounts adds to the counts of a row. None falls below zero.
func AddCounts(counts, delta []int64, key []byte) error {
	for i, d := range delta {
		if counts[i] += d; counts[i] < 0 {
			return projections.RowError("count below zero", key)
		}
	}
	return nil
}
