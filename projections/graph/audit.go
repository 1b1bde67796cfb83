package graph

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user who has rows in a shard. A user may come several times.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	for _, tag := range []projections.Tag{
		tagEdge, tagFollowing, tagFollowingImplicit, tagFollowedBoards, tagExcludedBoards, tagUserCounts, tagFollowers,
		tagFollowersImplicit, tagBoards, tagRegion,
	} {
		if err := projections.EachID(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// EachBoard calls do with every board that has rows in a shard. A board may come twice.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	for _, tag := range []projections.Tag{tagBoard, tagBoardCounts} {
		if err := projections.EachPair(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// InList reports whether a list has a row for an entry, by one or two point reads: without merging lists, and without asking what
// the list is derived from, where it is kept. Of lists that are merged from others it is an error to ask.
func (q *Queries) InList(l List, e Entry) (bool, error) {
	key := q.keyBuffer()
	switch l.Kind {
	case FollowingExplicit:
		u, err := readUserCounts(q.reader, projections.AppendKey(key, tagUserCounts, l.User))
		if err != nil {
			return false, err
		}
		if u.followingStored == 0 {
			f, err := q.User(l.User, e.User)
			return f == Follow{Explicit, e.Since}, err
		}
		key = listKey(key, tagFollowing, l.User, e.Since, e.User)
	case FollowingImplicit:
		key = listKey(key, tagFollowingImplicit, l.User, e.Since, e.User)
	case FollowersExplicit:
		key = listKey(key, tagFollowers, l.User, e.Since, e.User)
	case FollowersImplicit:
		key = listKey(key, tagFollowersImplicit, l.User, e.Since, e.User)
	case FollowedBoards:
		key = boardListKey(key, tagFollowedBoards, l.User, e.Since, e.User, e.Board)
	case ExcludedBoards:
		key = boardListKey(key, tagExcludedBoards, l.User, e.Since, e.User, e.Board)
	case BoardFollowersExplicit:
		key = boardFollowerListKey(key, tagBoardFollowers, l.User, l.Board, e.Since, e.User)
	case BoardExcluders:
		key = boardFollowerListKey(key, tagBoardExcluders, l.User, l.Board, e.Since, e.User)
	default:
		return false, fmt.Errorf("graph: the list of kind %d is no list of rows", l.Kind)
	}
	_, ok, err := q.reader.Get(key)
	return ok, err
}
