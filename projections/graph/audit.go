package graph

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user who has edges, lists, counts or a region in a shard, until do
// returns an error. It may call do several times with the same user.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	for _, tag := range []projections.Tag{
		tagOutEdge, tagFollowingExplicit, tagFollowingImplicit, tagFollowedBoards, tagExcludedBoards,
		tagUserCounts, tagFollowersExplicit, tagFollowersImplicit, tagBoards, tagRegion,
	} {
		if err := projections.EachID(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// EachBoard calls do with every board that has rows in a shard, until do returns an error. It may
// call do twice with the same board.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	for _, tag := range []projections.Tag{tagBoard, tagBoardCounts} {
		if err := projections.EachPair(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// HasEntry reports whether a list has an entry, with one or two point reads. If the rows of the
// list are stored, it looks for the row itself, and not at the edge from which the row is derived,
// so that an auditor can compare the two. It returns an error for kinds of lists that have no case
// here.
func (q *Queries) HasEntry(l List, e Entry) (bool, error) {
	key := q.keyBuffer()
	switch l.Kind {
	case FollowingExplicit:
		counts, err := readUserCounts(q.reader, projections.AppendKey(key, tagUserCounts, l.User))
		if err != nil {
			return false, err
		}
		if counts.followingStored == 0 {
			follow, err := q.UserFollow(l.User, e.User)
			return follow == Follow{Explicit, e.Since}, err
		}
		key = appendListKey(key, tagFollowingExplicit, l.User, e.Since, e.User)
	case FollowingImplicit:
		key = appendListKey(key, tagFollowingImplicit, l.User, e.Since, e.User)
	case FollowersExplicit:
		key = appendListKey(key, tagFollowersExplicit, l.User, e.Since, e.User)
	case FollowersImplicit:
		key = appendListKey(key, tagFollowersImplicit, l.User, e.Since, e.User)
	case FollowedBoards:
		key = appendBoardEntryKey(key, tagFollowedBoards, l.User, e.Since, e.User, e.Board)
	case ExcludedBoards:
		key = appendBoardEntryKey(key, tagExcludedBoards, l.User, e.Since, e.User, e.Board)
	case BoardFollowersExplicit:
		key = appendListOfBoardKey(key, tagBoardFollowers, l.User, l.Board, e.Since, e.User)
	case BoardExcluders:
		key = appendListOfBoardKey(key, tagBoardExcluders, l.User, l.Board, e.Since, e.User)
	default:
		return false, fmt.Errorf("graph: a list of kind %d cannot be searched for an entry", l.Kind)
	}

	_, ok, err := q.reader.Get(key)
	return ok, err
}
