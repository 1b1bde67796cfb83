package counters

import "github.com/skein-feed/skein/projections"

// UserCounts are the lengths of a user's lists (I7), and the plays.
type UserCounts struct {
	// Pins are the living ones.
	Pins int64
	// Boards are the living ones without the default board.
	Boards int64
	// Followers follow the user explicitly, FollowersImplicit through a board only.
	Followers, FollowersImplicit int64
	// Following is whom the user follows explicitly, FollowingImplicit whom through a board only.
	Following, FollowingImplicit   int64
	FollowedBoards, ExcludedBoards int64
	// Plays are those by the user.
	Plays int64
}

// BoardCounts are the lengths of a board's lists (I7). A board that does not exist has none.
type BoardCounts struct {
	Pins int64
	// Followers follow the board itself, Excluders exclude it.
	Followers, Excluders int64
	// Appears is for how many the board appears.
	Appears int64
}

// userRelations counts the relations of a user.
func (q *Queries) userRelations(id string, c *UserCounts) error {
	t, err := readUser(q.r, projections.AppendKey(nil, tagUserRelations, id))
	if err != nil {
		return err
	}
	c.Boards = t[userBoards]
	c.Followers, c.FollowersImplicit = t[userFollowers], t[userFollowersImplicit]
	c.Following, c.FollowingImplicit = t[userFollowing], t[userFollowingImplicit]
	c.FollowedBoards, c.ExcludedBoards = t[userFollowedBoards], t[userExcludedBoards]
	return nil
}

// boardRelations counts the relations to a board. A board appears for all who follow the owner explicitly but those who
// exclude it, and for those who follow it only.
func (q *Queries) boardRelations(owner, board string, c *BoardCounts) error {
	key := projections.AppendKey(nil, tagBoardRelations, owner, board)
	r, err := readBoard(q.r, key, board)
	if err != nil || board != "" && !r.state.exists() {
		return err
	}
	t, err := readUser(q.r, projections.AppendKey(nil, tagUserRelations, owner))
	if err != nil {
		return err
	}
	c.Followers, c.Excluders = r.boardTally[boardFollowers], r.boardTally[boardExcluders]
	if c.Appears = t[userFollowers] - c.Excluders + r.boardTally[boardOnly]; c.Appears < 0 {
		return errRow("more excluders than followers", key)
	}
	return nil
}
