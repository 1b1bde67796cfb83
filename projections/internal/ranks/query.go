package ranks

import "github.com/skein-feed/skein/projections"

// UserCounts are the lengths of a user's lists (I7).
type UserCounts struct {
	// Boards counts the living boards, without the default board.
	Boards int64
	// Followers counts the users who follow the user explicitly, FollowersImplicit those who follow a board only.
	Followers, FollowersImplicit int64
	// Following counts the users that the user follows explicitly, FollowingImplicit those of whom the user follows a board only.
	Following, FollowingImplicit   int64
	FollowedBoards, ExcludedBoards int64
}

// BoardCounts are the lengths of a board's lists (I7). A board that does not exist has none.
type BoardCounts struct {
	// Followers counts the users who follow the board itself, Excluders those who exclude it.
	Followers, Excluders int64
	// Appears counts the users in whose feeds the board appears.
	Appears int64
}

// Queries answers from one state of a store.
type Queries struct{ r projections.Reader }

// Query returns the queries over a state of a store.
func Query(r projections.Reader) *Queries { return &Queries{r: r} }

// User returns the counts of a user, zero for an unknown one.
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

// Board returns the counts of a board. A board appears for every explicit follower of the owner who does not exclude it, and for every
// user who follows only the board.
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
