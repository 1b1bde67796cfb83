package ranks

import "github.com/skein-feed/skein/projections"

// UserCounts are the lengths of a user's lists (I7).
type UserCounts struct {
	// Boards are the living ones without the default board.
	Boards int64
	// Followers follow the user explicitly, FollowersImplicit through a board only.
	Followers, FollowersImplicit int64
	// Following is whom the user follows explicitly, FollowingImplicit whom through a board only.
	Following, FollowingImplicit   int64
	FollowedBoards, ExcludedBoards int64
}

// BoardCounts are the lengths of a board's lists (I7). A board that does not exist has none.
type BoardCounts struct {
	// Followers follow the board itself, Excluders exclude it.
	Followers, Excluders int64
	// Appears is for how many the board appears.
	Appears int64
}

// Queries answers from a state.
type Queries struct{ r projections.Reader }

// Query returns the queries over a state of a store.
func Query(r projections.Reader) *Queries { return &Queries{r: r} }

// User counts the relations of a user.
func (q *Queries) User(id string) (c UserCounts, err error) {
	t, err := readUser(q.r, projections.AppendKey(nil, tagUserRelations, id))
	if err != nil {
		return c, err
	}
	return UserCounts{
		Boards: t[userBoards], Followers: t[userFollowers], FollowersImplicit: t[userFollowersImplicit],
		Following: t[userFollowing], FollowingImplicit: t[userFollowingImplicit],
		FollowedBoards: t[userFollowedBoards], ExcludedBoards: t[userExcludedBoards],
	}, nil
}

// Board counts the relations to a board. A board appears for all who follow the owner explicitly but those who exclude it, and for those
// who follow it only.
func (q *Queries) Board(owner, board string) (c BoardCounts, err error) {
	key := projections.AppendKey(nil, tagBoardRelations, owner, board)
	r, err := readBoard(q.r, key, board)
	if err != nil || board != "" && !r.state.exists() {
		return c, err
	}
	t, err := readUser(q.r, projections.AppendKey(nil, tagUserRelations, owner))
	if err != nil {
		return c, err
	}
	c.Followers, c.Excluders = r.boardTally[boardFollowers], r.boardTally[boardExcluders]
	if c.Appears = t[userFollowers] - c.Excluders + r.boardTally[boardOnly]; c.Appears < 0 {
		return c, projections.RowError("more excluders than followers", key)
	}
	return c, nil
}
