package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user who is counted for in a shard. A user may come several times.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	for _, tag := range []projections.Tag{tagUserRelations, tagPair, tagDoings, tagLike} {
		if err := projections.EachID(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// EachBoard calls do with every board that is counted for in a shard. A board may come twice.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	for _, tag := range []projections.Tag{tagBoardRelations, tagBoardPins} {
		if err := projections.EachPair(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// Shows returns how many living pins of an owner, or on a board of theirs, show an item.
func (q *Queries) Shows(item, owner string, board *string) (int64, error) {
	if board == nil {
		return readCount(q.r, projections.AppendKey(nil, tagOwnerShows, item, owner))
	}
	return readCount(q.r, projections.AppendKey(nil, tagBoardShows, item, owner, *board))
}
