package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/projections"
)

// UserCounts has the lengths of a user's lists (I7).
type UserCounts struct {
	// Following and Followers count explicit follows only.
	Following, FollowingImplicit int64
	Followers, FollowersImplicit int64
	Boards                       int64
	FollowedBoards               int64
	ExcludedBoards               int64
	Blocked, Muted               int64
	// Favorites and Notifying count the follows with these settings, explicit and implicit ones.
	Favorites, Notifying int64
}

// userCountsRow is the value of a row of tagUserCounts: the counts of a user, and numbers that the
// fold needs.
type userCountsRow struct {
	UserCounts
	// timedMutes is the number of mutes with an end, including those that have ended. The stored
	// [UserCounts.Muted] does not count them; [Queries.UserCounts] adds those that still hold.
	timedMutes int64
	// unlistedEdges is the number of edges without a follow. Together with Following and
	// FollowingImplicit, that is the number of all edges of the user.
	unlistedEdges int64
	// followingStored is 1 if the rows of tagFollowingExplicit are stored, else 0.
	followingStored int64
}

// The indexes of the counts in a user's row and in a userDelta. userCountsRow.followingStored comes
// last in the row. It is not in a userDelta, because it is set and not added to.
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
	unlistedEdgesIndex
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
		&c.FollowedBoards, &c.ExcludedBoards, &c.Blocked, &c.Muted, &u.unlistedEdges,
		&u.timedMutes, &c.Favorites, &c.Notifying, &u.followingStored,
	}
}

// edgeCount returns the number of the user's edges.
func (u *userCountsRow) edgeCount() int64 { return u.Following + u.FollowingImplicit + u.unlistedEdges }

// readUserCounts returns the row of tagUserCounts with the key, or zeros if there is none.
func readUserCounts(r projections.Reader, key []byte) (u userCountsRow, err error) {
	err = readCounts(r, key, u.fields())
	if err == nil && u.followingStored > 1 {
		err = projections.RowError("counts", key)
	}
	return u, err
}

// BoardCounts has the lengths of a board's lists (I7).
type BoardCounts struct {
	// Followers counts the users who follow the board itself, and Excluders those who exclude it.
	Followers, Excluders int64
	// Appears is the number of users for whom the board appears: the explicit followers of the
	// owner, less Excluders, plus boardOnlyFollowers. It is not stored but computed by
	// [Queries.BoardCounts], so that a follow of the owner does not change a row for each board.
	Appears int64
	// boardOnlyFollowers is the number of Followers who do not follow the owner explicitly.
	boardOnlyFollowers int64
}

// The indexes of the counts in a board's row and in a boardDelta.
const (
	boardFollowersIndex = iota
	boardExcludersIndex
	boardOnlyFollowersIndex
	boardDeltaFields
)

// fields returns the stored counts in the order of their indexes.
func (c *BoardCounts) fields() []*int64 {
	return []*int64{&c.Followers, &c.Excluders, &c.boardOnlyFollowers}
}

// appendCounts appends counts as varints, without the zeros at the end. If all are zero, it appends
// nothing, and the caller deletes the row.
func appendCounts(dst []byte, fields []*int64) []byte {
	n := len(fields)
	for n > 0 && *fields[n-1] == 0 {
		n--
	}
	for _, field := range fields[:n] {
		dst = binary.AppendUvarint(dst, uint64(*field))
	}
	return dst
}

// decodeCounts sets the fields to the counts of a row. It refuses rows that appendCounts does not
// write.
func decodeCounts(row []byte, fields []*int64) error {
	rest := row
	last := uint64(1) // the last count of the row, which is not 0
	for _, field := range fields {
		*field = 0
		if len(rest) == 0 {
			continue // appendCounts left out the zeros at the end
		}

		// The limit leaves room for additions: no sum of two counts overflows.
		var ok bool
		if last, rest, ok = cutUvarint(rest); !ok || last > 1<<62 {
			return projections.RowError("counts", row)
		}
		*field = int64(last)
	}
	if len(rest) != 0 || last == 0 {
		return projections.RowError("counts", row)
	}
	return nil
}

// readCounts sets the fields to the counts of the row with the key. Without a row, it leaves them
// as they are.
func readCounts(r projections.Reader, key []byte, fields []*int64) error {
	row, ok, err := r.Get(key)
	if err != nil || !ok {
		return err
	}
	return decodeCounts(row, fields)
}

// updateCounts adds the deltas to the counts of the row with the key. The fields must be zero: the
// row is read into them. If all deltas are zero, updateCounts neither reads nor writes the row.
func (f *eventFold) updateCounts(key []byte, fields []*int64, deltas []int64) error {
	changed := false
	for _, d := range deltas {
		changed = changed || d != 0
	}
	if !changed {
		return nil
	}

	if err := readCounts(f.batch, key, fields); err != nil {
		return err
	}
	if err := addCounts(fields, deltas, key); err != nil {
		return err
	}
	f.value = appendCounts(f.value[:0], fields)
	f.setOrDeleteRow(key, f.value)
	return nil
}

// addCounts adds the deltas to the fields. A count below zero is a corrupt row.
func addCounts(fields []*int64, deltas []int64, key []byte) error {
	for i, d := range deltas {
		*fields[i] += d
		if *fields[i] < 0 {
			return projections.RowError("count below zero", key)
		}
	}
	return nil
}

// userDelta and boardDelta have the amounts by which an event changes the counts of a user or
// board. Their indexes are the constants above.
type (
	userDelta  [userDeltaFields]int64
	boardDelta [boardDeltaFields]int64
)

// updateUserCounts adds the delta to the counts of a user.
func (f *eventFold) updateUserCounts(user string, delta userDelta) error {
	var counts userCountsRow
	f.key = projections.AppendKey(f.key[:0], tagUserCounts, user)
	return f.updateCounts(f.key, counts.fields(), delta[:])
}

// updateBoardCounts adds the delta to the counts of a board.
func (f *eventFold) updateBoardCounts(owner, board string, delta boardDelta) error {
	var counts BoardCounts
	f.key = projections.AppendKey(f.key[:0], tagBoardCounts, owner, board)
	return f.updateCounts(f.key, counts.fields(), delta[:])
}
