package ranks

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// userTally is what is counted of the relations of a user, and what an event changes of it.
type userTally [7]int64

// The places in a userTally and its row.
const (
	userFollowing = iota
	userFollowingImplicit
	userFollowers
	userFollowersImplicit
	userBoards
	userFollowedBoards
	userExcludedBoards
)

// appendCounts appends counts without the zeros at their end: nothing, if all are zero.
func appendCounts(dst []byte, counts []int64) []byte {
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	for _, n := range counts {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	return dst
}

// readCounts reads what appendCounts wrote.
func readCounts(row []byte, counts []int64) error {
	rest := row
	last := int64(1)
	for i := range counts {
		if counts[i] = 0; len(rest) == 0 {
			continue
		}
		n, err := cutCount(&rest)
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

// cutCount reads a number in its shortest form.
func cutCount(rest *[]byte) (int64, error) {
	n, k := binary.Uvarint(*rest)
	if k <= 0 || n > 1<<62 || k > 1 && (*rest)[k-1] == 0 {
		return 0, projections.RowError("count", *rest)
	}
	*rest = (*rest)[k:]
	return int64(n), nil
}

// add adds to counts. None falls below zero.
func add(counts, delta []int64, key []byte) error {
	for i, d := range delta {
		if counts[i] += d; counts[i] < 0 {
			return projections.RowError("count below zero", key)
		}
	}
	return nil
}

func readUser(r projections.Reader, key []byte) (t userTally, err error) {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return t, err
	}
	if len(row) == 0 {
		return t, projections.RowError("counts of", key)
	}
	return t, readCounts(row, t[:])
}

// countUser adds to what is counted of a user.
func (c *Ranks) countUser(user string, delta userTally) error {
	if delta == (userTally{}) {
		return nil
	}
	c.key = projections.AppendKey(c.key[:0], tagUserRelations, user)
	t, err := readUser(c.b, c.key)
	if err != nil {
		return err
	}
	if err := add(t[:], delta[:], c.key); err != nil {
		return err
	}
	c.value = appendCounts(c.value[:0], t[:])
	c.keep(c.key, c.value)
	return nil
}

// keep writes a row, or removes it if it says nothing.
func (c *Ranks) keep(key, value []byte) {
	if len(value) == 0 {
		c.b.Delete(key)
		return
	}
	c.b.Set(key, value)
}
