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

// State is the rows of a counters store at one position. A [projections.View] is one.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers from a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state State
	// maxComputedPins and maxRowsPerPin are the constants of the same names. Tests set others.
	maxComputedPins, maxRowsPerPin int64
	// rowsRead counts the rows that [Queries.Trending] reads.
	rowsRead int
	// remote answers for homes whose rows the state does not have. nil means that the state has all rows.
	remote RemoteLookup
}

// RemoteLookup answers for homes whose rows are not in the state that is queried. known is false for an answer that must be
// fetched first; the query then continues with the zero value, and its result does not count (see [projections.Elsewhere]).
// Lists of a user's or owner's items are at the homes of the items, so each of the other nodes has a part of them.
type RemoteLookup interface {
	projections.Elsewhere
	// Score returns the score of an item as of a position.
	Score(item string, seq uint64) (score int64, scored, known bool)
	// Likes is [Queries.Likes].
	Likes(user, item string) (likes, known bool)
	// Liked returns [Queries.LocalLiked] of each node that has rows which the state lacks. An item may be in several parts.
	Liked(user string, after PageCursor, n int) (parts []LikedPart, known bool)
	// Candidates returns [Queries.Candidates] of each such node. owner is empty for the global list.
	Candidates(owner string, seq uint64, after []byte, n int) (parts []CandidatePart, known bool)
}

// LikedPart is the next items that one state has of what a user likes.
type LikedPart struct {
	Items []LikedItem
	// More says that the state has more items after these.
	More bool
}

// WithRemote makes the queries ask e about homes whose rows the state does not have. It returns q.
func (q *Queries) WithRemote(e RemoteLookup) *Queries {
	q.remote = e
	return q
}

// isRemote reports whether the rows of an item must be asked from q.remote.
func (q *Queries) isRemote(item string) bool { return q.remote != nil && !q.remote.Holds(item) }

// NewQueries returns the queries over a state of a counters store.
func NewQueries(s State) *Queries {
	return &Queries{state: s, maxComputedPins: maxComputedPins, maxRowsPerPin: maxRowsPerPin}
}

// ItemCounts are the counts of an item.
type ItemCounts struct {
	// Plays is the number of all plays that ever counted, and Repins the number of pins that were re-pins of the item. Neither
	// ever falls.
	Plays int64
	// Likes is the number of users who like the item.
	Likes  int64
	Repins int64
}

// UserCounts are the counts of a user.
type UserCounts struct {
	// Pins is the number of the user's living pins.
	Pins int64
	// Plays is the number of plays by the user.
	Plays int64
}

// UserCounts returns the counts of a user. They are 0 for an unknown user.
func (q *Queries) UserCounts(id string) (UserCounts, error) {
	tallies, err := readUserTallies(q.state, projections.AppendKey(nil, tagUserTallies, id))
	return UserCounts{Pins: tallies[tallyPins], Plays: tallies[tallyPlays]}, err
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

// Liked returns at most n items that a user likes, newest first, equal times by id. It begins after a page cursor, or at the
// newest item if after is nil. next is nil if there are no more items. Liked fails with [ErrPageCursor].
func (q *Queries) Liked(
	ctx context.Context, user string, after PageCursor, n int,
) (items []LikedItem, next PageCursor, err error) {
	local, err := q.LocalLiked(ctx, user, after, n)
	if err != nil {
		return nil, nil, err
	}

	items, more := local.Items, local.More
	if q.remote != nil {
		items, more = q.mergeLiked(local, user, after, n)
	}

	if more {
		last := items[n-1]
		key := likedItemKey(nil, user, last.Since, last.Item)
		prefix := projections.AppendKey(nil, tagLikedItem, user)
		next = append(PageCursor{cursorLiked}, key[len(prefix):]...)
	}
	return items, next, nil
}

// mergeLiked merges the part of this state with those of remote ones, and returns the first n items.
func (q *Queries) mergeLiked(
	local LikedPart, user string, after PageCursor, n int,
) (items []LikedItem, more bool) {
	parts, _ := q.remote.Liked(user, after, n)
	for _, p := range append(parts, local) {
		items = append(items, p.Items...)
		more = more || p.More
	}
	slices.SortFunc(items, func(a, b LikedItem) int {
		return cmp.Or(
			cmp.Compare(b.Since, a.Since),
			bytes.Compare(events.AppendID(nil, a.Item), events.AppendID(nil, b.Item)),
		)
	})

	// Several nodes may have the same partition. A node at a later position may have an item at another time.
	seen := map[string]bool{}
	items = slices.DeleteFunc(items, func(i LikedItem) bool {
		again := seen[i.Item]
		seen[i.Item] = true
		return again
	})

	more = more || len(items) > n
	return items[:min(n, len(items))], more
}

// LocalLiked returns what this state has of the list of [Queries.Liked].
func (q *Queries) LocalLiked(
	ctx context.Context, user string, after PageCursor, n int,
) (part LikedPart, err error) {
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
		// The first key after that of the cursor is that key and a zero byte.
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

// ItemCounts returns the counts of an item.
func (q *Queries) ItemCounts(id string) (ItemCounts, error) {
	item, err := readItem(q.state, projections.AppendKey(nil, tagItem, id))
	return ItemCounts{Plays: item.plays, Likes: item.likes, Repins: item.repins}, err
}
