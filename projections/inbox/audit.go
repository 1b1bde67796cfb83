package inbox

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// EachUser calls do with every user who has pins, likes or an inbox in a shard. A user may come several times.
func EachUser(r projections.Reader, shard events.Shard, do func(user string) error) error {
	for _, tag := range []projections.Tag{tagOutbox, tagPinCount, tagLike, tagReader} {
		if err := projections.EachID(r, shard, tag, do); err != nil {
			return err
		}
	}
	return nil
}

// EachBoard calls do with every board that has a count of pins in a shard.
func EachBoard(r projections.Reader, shard events.Shard, do func(owner, board string) error) error {
	return projections.EachPair(r, shard, tagBoardPinCount, do)
}

// EachItem calls do with every item that has heat in a shard.
func EachItem(r projections.Reader, shard events.Shard, do func(item string) error) error {
	return projections.EachID(r, shard, tagHeat, do)
}

// Score returns the heat of an item at the position; ok is false where it has none.
func (q *Queries) Score(item string) (score int64, ok bool, err error) {
	s := newScores(q.r, q.r.Cursor().Seq)
	score, ok, err = s.of(item)
	return score, ok, errors.Join(err, s.close())
}

// Likes reports whether a user likes an item.
func (q *Queries) Likes(user, item string) (bool, error) {
	row, ok, err := q.r.Get(projections.AppendKey(nil, tagLike, user, item))
	if err != nil || !ok {
		return false, err
	}
	return likeHolds(row)
}

// EachLike calls do with every item that was said to be liked by a user or not, and whether it is, until do returns an error.
func (q *Queries) EachLike(user string, do func(item string, holds bool) error) (err error) {
	prefix := projections.AppendKey(nil, tagLike, user)
	it := q.r.Iter(prefix, projections.PrefixEnd(prefix))
	for err == nil && it.Next() {
		var item string
		var holds bool
		if item, _, err = events.CutID(it.Key()[len(prefix):]); err == nil {
			if holds, err = likeHolds(it.Value()); err == nil {
				err = do(item, holds)
			}
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}

func likeHolds(row []byte) (bool, error) {
	if len(row) != 1 || row[0] == 0 || row[0] >= 1<<likeBits {
		return false, errRow("like", row)
	}
	return row[0]&likeLive != 0 || row[0]&(likeBackfilled|likeEnded) == likeBackfilled, nil
}
