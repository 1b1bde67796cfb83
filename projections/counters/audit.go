package counters

import (
	"bytes"

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

// EachItem calls do with every item that is counted for in a shard.
func EachItem(r projections.Reader, shard events.Shard, do func(item string) error) error {
	return projections.EachID(r, shard, tagItem, do)
}

// Score returns the heat of an item at the position; ok is false where it has none.
func (q *Queries) Score(item string) (score int64, ok bool, err error) {
	key := versionKey(nil, item, q.r.Cursor().Seq)
	it := q.r.Iter(key, projections.PrefixEnd(key[:len(key)-8]))
	if it.Next() && bytes.HasPrefix(it.Key(), key[:len(key)-8]) {
		ok = true
		_, score, err = decodeVersion(it.Value())
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return score, ok, err
}

// Shows returns how many living pins of an owner, or on a board of theirs, show an item.
func (q *Queries) Shows(item, owner string, board *string) (int64, error) {
	if board == nil {
		return readCount(q.r, projections.AppendKey(nil, tagOwnerShows, item, owner))
	}
	return readCount(q.r, projections.AppendKey(nil, tagBoardShows, item, owner, *board))
}

// EachLike calls do with every item that was said to be liked by a user or not, in the order of keys, and whether it is, until
// do returns an error.
func (q *Queries) EachLike(user string, do func(item string, holds bool) error) (err error) {
	prefix := projections.AppendKey(nil, tagLike, user)
	it := q.r.Iter(prefix, projections.PrefixEnd(prefix))
	for err == nil && it.Next() {
		var item string
		var facts likeFacts
		if item, err = cutLast(it.Key()[len(prefix):]); err == nil {
			if facts, err = decodeLike(it.Value()); err == nil {
				err = do(item, facts.holds())
			}
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}
