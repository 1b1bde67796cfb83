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
	// Favorites and Notifying are the follows with these settings.
	Favorites, Notifying int64
}

// userCountsRow is the row of tagUserCounts: the counts of a user, and what decides whether the
// list of follows is stored.
type userCountsRow struct {
	UserCounts
	// timedMutes is the number of mutes that end by themselves, those that have ended included.
	// [UserCounts.Muted] as it is stored has none of them.
	timedMutes int64
	// otherEdges is the number of edges that are no follows. With Following and FollowingImplicit,
	// it gives the number of all edges.
	otherEdges int64
	// followingStored is 1 if the rows of tagFollowingExplicit are stored, else 0.
	followingStored int64
}

// The indexes of the counts in a user's row and in a userDelta. userCountsRow.followingStored comes
// last in the row and is no part of a userDelta.
const (
	followingIndex = iota
	followingImplicitIndex
	followersIndex
	followersImplicitIndex
	boardsIndex
	followedBoardsIndex
	excludedBoardsIndex
	blockedIndex
	mutedIndex
	otherEdgesIndex
	timedMutesIndex
	favoritesIndex
	notifyingIndex
	userDeltaFields
)

// fields returns the counts in the order of their indexes.
func (u *userCountsRow) fields() []*int64 {
	c := &u.UserCounts
	return []*int64{
		&c.Following, &c.FollowingImplicit, &c.Followers, &c.FollowersImplicit, &c.Boards,
		&c.FollowedBoards, &c.ExcludedBoards, &c.Blocked, &c.Muted, &u.otherEdges,
		&u.timedMutes, &c.Favorites, &c.Notifying, &u.followingStored,
	}
}

// edgeCount returns the number of the user's edges.
func (u *userCountsRow) edgeCount() int64 { return u.Following + u.FollowingImplicit + u.otherEdges }

func readUserCounts(r projections.Reader, key []byte) (u userCountsRow, err error) {
	err = readCounts(r, key, u.fields())
	if err == nil && u.followingStored > 1 {
		err = rowError("counts", key)
	}
	return u, err
}

// BoardCounts are the lengths of a board's lists (I7).
type BoardCounts struct {
	// Followers follow the board itself; Excluders exclude it.
	Followers, Excluders int64
	// Appears is the number of users for whom the board appears. It is computed when it is read, so
	// that a follow of the owner writes nothing to the boards: it is the number of the owner's
	// explicit followers, less Excluders, plus followersOnly.
	Appears int64
	// followersOnly is the number of Followers who do not follow the owner explicitly.
	followersOnly int64
}

// The indexes of the counts in a board's row and in a boardDelta.
const (
	boardFollowersIndex = iota
	boardExcludersIndex
	boardFollowersOnlyIndex
	boardCountFields
)

// fields returns the stored counts in the order of their indexes.
func (c *BoardCounts) fields() []*int64 {
	return []*int64{&c.Followers, &c.Excluders, &c.followersOnly}
}

// appendCounts encodes counts as varints without the zeros at the end. If all are zero, the value
// is empty and the row is deleted.
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
		*f = int64(v)
		rest = rest[n:]
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

// updateCounts adds the deltas to the counts of one row. fields point to a zero value into which
// the row is read. If all deltas are zero, the row is not read.
func (t *eventFold) updateCounts(key []byte, fields []*int64, deltas []int64) error {
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
	t.setOrDeleteRow(key, t.value)
	return nil
}

// addCounts adds the deltas to the fields. A count below zero is a corrupt row.
func addCounts(fields []*int64, deltas []int64, key []byte) error {
	for i, d := range deltas {
		*fields[i] += d
		if *fields[i] < 0 {
			return rowError("count below zero", key)
		}
	}
	return nil
}

// userDelta and boardDelta say by how much an event changes each count of a user or board, by
// index.
type (
	userDelta  [userDeltaFields]int64
	boardDelta [boardCountFields]int64
)

func (t *eventFold) updateUserCounts(user string, d userDelta) error {
	var u userCountsRow
	t.key = projections.AppendKey(t.key[:0], tagUserCounts, user)
	return t.updateCounts(t.key, u.fields(), d[:])
}

func (t *eventFold) updateBoardCounts(owner, board string, d boardDelta) error {
	var c BoardCounts
	t.key = projections.AppendKey(t.key[:0], tagBoardCounts, owner, board)
	return t.updateCounts(t.key, c.fields(), d[:])
}
