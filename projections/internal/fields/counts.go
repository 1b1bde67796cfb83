package fields

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// AppendCounts appends counts as varints. It leaves out zeros at the end, so it appends nothing if
// all counts are zero.
func AppendCounts(dst []byte, counts []int64) []byte {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	for _, n := range counts {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// ReadCounts reads a row that AppendCounts wrote into counts. Counts that the row does not have
// become zero. It returns an error of [projections.RowError] if the row has more counts or is not
// in its shortest form, because no fold writes such a row.
func ReadCounts(row []byte, counts []int64) error {
	rest := row
	last := int64(1) // the last count of the row, which must not be zero
	for i := range counts {
		counts[i] = 0
		if len(rest) == 0 {
			continue
		}
		n, err := CutCount(&rest)
		if err != nil {
			return projections.RowError("counts", row)
		}
		counts[i] = n
		last = n
	}
	if len(rest) != 0 || last == 0 {
		return projections.RowError("counts", row)
	}
	return nil
}

// CutCount reads a varint at the beginning of rest and removes it from rest. A varint that is not
// in its shortest form or is above 2^62 is an error.
func CutCount(rest *[]byte) (int64, error) {
	n, k := projections.Uvarint(*rest)
	if k <= 0 || n > 1<<62 {
		return 0, projections.RowError("count", *rest)
	}
	*rest = (*rest)[k:]
	return int64(n), nil
}

// AddCounts adds delta to counts. It returns an error that names the key if a sum is below zero,
// because the rows are in an impossible state then.
func AddCounts(counts, delta []int64, key []byte) error {
	for i, d := range delta {
		counts[i] += d
		if counts[i] < 0 {
			return projections.RowError("count below zero", key)
		}
	}
	return nil
}
