package counters

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// State is the rows of a counters store at one position, as a [projections.View] is.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers from a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	r State
	// computed and patience are the constants of the same names. Tests set others.
	computed, patience int64
	// rows counts what [Queries.Trending] reads.
	rows int
}

// Query returns the queries over a state of a counters store.
func Query(r State) *Queries { return &Queries{r: r, computed: computed, patience: patience} }

// ItemCounts is what is counted of an item.
type ItemCounts struct {
	// Plays are all that ever counted, Repins how many pins have re-pinned it. Nothing is taken back.
	Plays int64
	// Likes is how many users like it.
	Likes  int64
	Repins int64
}

// UserCounts is what is counted of a user.
type UserCounts struct {
	// Pins are the living ones.
	Pins int64
	// Plays are those by the user.
	Plays int64
}

// User returns what is counted of a user; of one who never occurred, zeros.
func (q *Queries) User(id string) (UserCounts, error) {
	d, err := readDoings(q.r, projections.AppendKey(nil, tagDoings, id))
	return UserCounts{Pins: d[ownPins], Plays: d[ownPlays]}, err
}

// BoardPins returns how many living pins are on a board.
func (q *Queries) BoardPins(owner, board string) (int64, error) {
	return readCount(q.r, projections.AppendKey(nil, tagBoardPins, owner, board))
}

// Likes reports whether a user likes an item, with one point read.
func (q *Queries) Likes(user, item string) (bool, error) {
	row, ok, err := q.r.Get(likeKey(nil, user, item))
	if err != nil || !ok {
		return false, err
	}
	l, err := decodeLike(row)
	return l.holds(), err
}

// LikedItem is an item that a user likes.
type LikedItem struct {
	Item  string
	Since events.Micros
}

// Liked lists at most n items that a user likes, newest first, equal times by id, after a page cursor (nil: from the top). It fails with
// [ErrPageCursor].
func (q *Queries) Liked(ctx context.Context, user string, after PageCursor, n int) (items []LikedItem, next PageCursor, err error) {
	prefix := projections.AppendKey(nil, tagLiked, user)
	it := q.r.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	var more bool
	if after == nil {
		more = it.Next()
	} else {
		sortKey, err := parseLiked(after)
		if err != nil {
			return nil, nil, err
		}
		more = it.SeekGE(append(append(bytes.Clone(prefix), sortKey...), 0))
	}
	for ; more; more = it.Next() {
		if len(items)%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if len(items) == n {
			last := likedKey(nil, user, items[n-1].Since, items[n-1].Item)
			return items, append(PageCursor{cursorLiked}, last[len(prefix):]...), nil
		}
		since, item, err := cutLiked(it.Key()[len(prefix):])
		if err != nil {
			return nil, nil, err
		}
		items = append(items, LikedItem{item, since})
	}
	return items, nil, nil
}

// Item returns what is counted of an item.
func (q *Queries) Item(id string) (ItemCounts, error) {
	it, err := readItem(q.r, projections.AppendKey(nil, tagItem, id))
	return ItemCounts{Plays: it.plays, Likes: it.likes, Repins: it.repins}, err
}
