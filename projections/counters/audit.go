package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user in a shard who has counts of pins or plays, until do returns an
// error.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	return projections.EachID(r, shard, tagUserTallies, do)
}

// EachBoard calls do with every board in a shard that has a count of pins, until do returns an
// error.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	return projections.EachPair(r, shard, tagBoardPins, do)
}

// CountPinsShowing returns how many living pins of an owner show an item. If board is not nil, it
// counts only pins on that board.
func (q *Queries) CountPinsShowing(item, owner string, board *string) (n int64, err error) {
	prefix := projections.AppendKey(nil, tagShownItem, owner, item)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		if board == nil || string(it.Value()) == *board {
			n++
		}
	}
	return n, it.Close()
}
