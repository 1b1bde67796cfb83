package counters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

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
	state State
	// computed and patience are the constants of the same names. Tests set others.
	maxComputedPins, maxRowsPerPin int64
	// rows counts what [Queries.Trending] reads.
	rowsRead int
	// elsewhere knows what rows of other partitions say; nil means that all are here.
	remote Elsewhere
}

// Elsewhere is what queries ask of homes that are not in their state. The lists of users and owners by item are with the items, so each
// of the other nodes has a part of them.
type Elsewhere interface {
	projections.Elsewhere
	// Score is the score of an item as of a position. known is false for what must be fetched first.
	Score(item string, seq uint64) (score int64, scored, known bool)
	// Likes is that of [Queries].
	Likes(user, item string) (likes, known bool)
	// Liked has a part for each of the nodes that hold what is not here. Items may be in several of them.
	Liked(user string, after PageCursor, n int) (parts []LikedPart, known bool)
	// Candidates likewise; owner is empty for everybody's list.
	Candidates(owner string, seq uint64, after []byte, n int) (parts []CandidatePart, known bool)
}

// LikedPart is the first items of what a user likes that a state has, and whether it has more.
type LikedPart struct {
	Items []LikedItem
	More  bool
}

// With has the queries ask elsewhere what is not in their state.
func (q *Queries) With(e Elsewhere) *Queries {
	q.remote = e
	return q
}

// remote reports whether the rows of an item are not in the state.
func (q *Queries) isRemote(item string) bool { return q.remote != nil && !q.remote.Holds(item) }

// Query returns the queries over a state of a counters store.
func Query(r State) *Queries {
	return &Queries{state: r, maxComputedPins: maxComputedPins, maxRowsPerPin: maxRowsPerPin}
}

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
	d, err := readUserTallies(q.state, projections.AppendKey(nil, tagUserTallies, id))
	return UserCounts{Pins: d[tallyPins], Plays: d[tallyPlays]}, err
}

// BoardPins returns how many living pins are on a board.
func (q *Queries) BoardPins(owner, board string) (int64, error) {
	return readCount(q.state, projections.AppendKey(nil, tagBoardPins, owner, board))
}

// Likes reports whether a user likes an item, with one point read.
func (q *Queries) Likes(user, item string) (bool, error) {
	if q.isRemote(item) {
		likes, _ := q.remote.Likes(user, item)
		return likes, nil
	}
	row, ok, err := q.state.Get(likeKey(nil, user, item))
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
	here, err := q.LikedHere(ctx, user, after, n)
	if err != nil {
		return nil, nil, err
	}
	items, more := here.Items, here.More
	if q.remote != nil {
		items, more = q.mergeLiked(here, user, after, n)
	}
	if more {
		last := likedItemKey(nil, user, items[n-1].Since, items[n-1].Item)
		next = append(PageCursor{cursorLiked}, last[len(projections.AppendKey(nil, tagLikedItem, user)):]...)
	}
	return items, next, nil
}

// likedAnywhere merges what the state has with what others have.
func (q *Queries) mergeLiked(here LikedPart, user string, after PageCursor, n int) (items []LikedItem, more bool) {
	parts, _ := q.remote.Liked(user, after, n)
	for _, p := range append(parts, here) {
		items, more = append(items, p.Items...), more || p.More
	}
	slices.SortFunc(items, func(a, b LikedItem) int {
		return cmp.Or(cmp.Compare(b.Since, a.Since), bytes.Compare(events.AppendID(nil, a.Item), events.AppendID(nil, b.Item)))
	})
	seen := map[string]bool{}
	items = slices.DeleteFunc(items, func(i LikedItem) bool { // of a state of a later position, it may have another time
		again := seen[i.Item]
		seen[i.Item] = true
		return again
	})
	more = more || len(items) > n
	return items[:min(n, len(items))], more
}

// LikedHere returns what the state has of that list.
func (q *Queries) LikedHere(ctx context.Context, user string, after PageCursor, n int) (part LikedPart, err error) {
	prefix := projections.AppendKey(nil, tagLikedItem, user)
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	var more bool
	if after == nil {
		more = it.Next()
	} else {
		sortKey, err := parseLikedCursor(after)
		if err != nil {
			return part, err
		}
		more = it.SeekGE(append(append(bytes.Clone(prefix), sortKey...), 0))
	}
	for ; more; more = it.Next() {
		if len(part.Items)%1024 == 1023 && ctx.Err() != nil {
			return part, ctx.Err()
		}
		if len(part.Items) == n {
			part.More = true
			return part, nil
		}
		since, item, err := cutLikedItem(it.Key()[len(prefix):])
		if err != nil {
			return part, err
		}
		part.Items = append(part.Items, LikedItem{item, since})
	}
	return part, nil
}

// Item returns what is counted of an item.
func (q *Queries) Item(id string) (ItemCounts, error) {
	it, err := readItem(q.state, projections.AppendKey(nil, tagItem, id))
	return ItemCounts{Plays: it.plays, Likes: it.likes, Repins: it.repins}, err
}
