package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// UserCounts are the lengths of a user's lists (I7).
type UserCounts struct {
	Following, FollowingImplicit int64
	Followers, FollowersImplicit int64
	Boards                       int64
	FollowedBoards               int64
	ExcludedBoards               int64
	Blocked, Muted               int64
}

// BoardCounts are the lengths of a board's lists (I7).
type BoardCounts struct {
	// Followers follow the board itself; Excluders exclude it.
	Followers, Excluders int64
	// Appears is the number of those for whom the board appears. It is not stored but derived, so that a follow of
	// the owner writes nothing to the boards: the owner's explicit followers, less Excluders, with followersOnly.
	Appears int64
	// followersOnly are those of Followers who do not follow the owner explicitly.
	followersOnly int64
}

func (c *BoardCounts) fields() []*int64 {
	return []*int64{&c.Followers, &c.Excluders, &c.followersOnly}
}

// appendCounts encodes counts as varints without the zeros at the end. All zero is no row at all.
func appendCounts(dst []byte, fields []*int64) []byte {
	n := len(fields)
	for n > 0 && *fields[n-1] == 0 {
		n--
	}
	for _, f := range fields[:n] {
		dst = binary.AppendUvarint(dst, uint64(*f))
	}
	return dst
}

func decodeCounts(row []byte, fields []*int64) error {
	rest := row
	for _, f := range fields {
		*f = 0
		if len(rest) == 0 {
			continue
		}
		v, n := binary.Uvarint(rest)
		if n <= 0 || v > 1<<62 {
			return rowError("counts", row)
		}
		*f, rest = int64(v), rest[n:]
	}
	if len(rest) != 0 {
		return rowError("counts", row)
	}
	return nil
}

func readCounts(r projections.Reader, key []byte, fields []*int64) error {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return err
	}
	return decodeCounts(row, fields)
}

// count adds to some counts of one row. A count below zero is corruption.
func (t *txn) updateCounts(key []byte, fields []*int64, deltas []int64) error {
	changed := false
	for _, d := range deltas {
		changed = changed || d != 0
	}
	if !changed {
		return nil
	}
	if err := readCounts(t.batch, key, fields); err != nil {
		return err
	}
	if err := addCounts(fields, deltas, key); err != nil {
		return err
	}
	t.value = appendCounts(t.value[:0], fields)
	t.setOrDelete(key, t.value)
	return nil
}

func addCounts(fields []*int64, deltas []int64, key []byte) error {
	for i, d := range deltas {
		if *fields[i] += d; *fields[i] < 0 {
			return rowError("count below zero", key)
		}
	}
	return nil
}

// userDelta and boardDelta are what one event changes, in the order of fields.
type (
	userDelta  [10]int64
	boardDelta [3]int64
)

func (t *txn) updateUserCounts(user string, d userDelta) error {
	var u userCountsRow
	t.key = projections.AppendKey(t.key[:0], tagUserCounts, user)
	return t.updateCounts(t.key, u.fields(), d[:])
}

func (t *txn) updateBoardCounts(owner, board string, d boardDelta) error {
	var c BoardCounts
	t.key = projections.AppendKey(t.key[:0], tagBoardCounts, owner, board)
	return t.updateCounts(t.key, c.fields(), d[:])
}
