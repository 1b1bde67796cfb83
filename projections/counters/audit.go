package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user who is counted for in a shard.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	return projections.EachID(r, shard, tagUserTallies, do)
}

// EachBoard calls do with every board that is counted for in a shard.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	return projections.EachPair(r, shard, tagBoardPins, do)
}

// Shows returns how many living pins of an owner, or on a board of theirs, show an item.
func (q *Queries) Shows(item, owner string, board *string) (n int64, err error) {
	prefix := projections.AppendKey(nil, tagShownItem, owner, item)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		if board == nil || string(it.Value()) == *board {
			n++
		}
	}
	return n, it.Close()
}
