package graph

import (
	"bytes"
	"errors"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// FollowKind says how a user follows another user or a board.
type FollowKind uint8

// The kinds of following.
const (
	// None means that the user does not follow.
	None FollowKind = iota
	// Explicit means that the user follows the other user, and so all boards of that user, present
	// and future. If a board is asked about, the other user is its owner.
	Explicit
	// Implicit means that the user follows at least one board of the other user, but not that user.
	Implicit
	// OnBoard means that the user follows the board that is asked about.
	OnBoard
	// Excluded means that the user follows the owner of the board that is asked about, but excludes
	// the board.
	Excluded
)

// Follow says how and since when a user follows. If Kind is None, Since is 0.
type Follow struct {
	Kind  FollowKind
	Since events.Micros
}

// Relationship has all relations between a viewer and a user, as seen by the viewer: Following says
// how the viewer follows the user, FollowedBy how the user follows the viewer, and so on.
type Relationship struct {
	Following, FollowedBy       Follow
	Blocking, BlockedBy, Muting bool
	// MuteUntil is when the mute ends, if Muting is set. 0 means that it has no end.
	MuteUntil events.Micros
	// Settings are those of the viewer's follow.
	Settings events.FollowSettings
}

// Queries answers queries from the rows of one store at one position. It is cheap to make and not
// safe for concurrent use. Only BoardExists, UserFollow, FollowedBy and Followees ask remote, so
// reader must have all other rows that a query reads. The numbers of reads in the comments of
// methods do not include those that fill the cache.
type Queries struct {
	reader projections.Reader
	// now is the log time of the position of reader, by which mutes end. It is 0 if reader is a
	// batch, so that no mute has ended.
	now events.Micros
	// scratch is the buffer that keyBuffer returns.
	scratch []byte
	// cache has decoded edges of users. It is nil unless [NewCachedQueries] made the Queries over a
	// view with a cache. version is the version of that view.
	cache   *cacheSet
	version uint64
	// remote answers for homes whose rows reader does not have. nil means that reader has all rows.
	remote RemoteLookup
}

// RemoteLookup answers for homes that the queried store does not hold. known is false for an answer
// that must be fetched first. The answer must then be the zero value, with which the query
// continues, and the caller of the query must ignore its result (see [projections.RemoteLookup]).
type RemoteLookup interface {
	projections.RemoteLookup
	// Board answers as [Queries.BoardExists].
	Board(owner, board string) (exists, known bool)
	// FollowedBy answers as [Queries.FollowedBy].
	FollowedBy(user, follower string) (f Follow, known bool)
	// Followees answers as [Queries.Followees].
	Followees(user string) (n int64, known bool)
}

// NewQueries returns the queries over a reader of a graph store. If the reader is a view, a mute
// holds until its end is reached by the log time of the view's position. If the reader is a batch,
// which has no position, every mute that has an end still holds.
func NewQueries(r projections.Reader) *Queries {
	q := &Queries{reader: r}
	if positioned, ok := r.(interface{ Cursor() events.Cursor }); ok {
		q.now = positioned.Cursor().LastTime
	}
	return q
}

// WithRemote makes the queries ask remote about homes whose rows the reader does not have. It
// returns q.
func (q *Queries) WithRemote(remote RemoteLookup) *Queries {
	q.remote = remote
	return q
}

// isRemote reports whether the home of a user is one about which q.remote must be asked.
func (q *Queries) isRemote(user string) bool { return q.remote != nil && !q.remote.Holds(user) }

// BoardExists reports whether a board exists. The default board always does.
func (q *Queries) BoardExists(owner, board string) (bool, error) {
	if board == "" {
		return true, nil
	}
	if q.isRemote(owner) {
		exists, _ := q.remote.Board(owner, board)
		return exists, nil
	}
	row, err := readBoard(q.reader, q.keyBuffer(), owner, board)
	return row.exists(), err
}

// keyBuffer returns an empty buffer for the key of the next read. Every call returns the same
// memory, so a key must not be used after the next call.
func (q *Queries) keyBuffer() []byte {
	if q.scratch == nil {
		q.scratch = make([]byte, 0, 128) // longer than most keys
	}
	return q.scratch
}

// UserFollow reports how follower follows user, with at most one point read.
func (q *Queries) UserFollow(follower, user string) (Follow, error) {
	if q.isRemote(follower) {
		// The in-end has the same answer, and may be here. If it is not here either, FollowedBy
		// asks q.remote.
		return q.FollowedBy(user, follower)
	}
	if cached, ok := q.cachedEdge(follower, user); ok {
		return cached.follow(), nil
	}
	return q.readFollow(follower, user)
}

// readFollow is [Queries.UserFollow], answered from the out-end without the cache.
func (q *Queries) readFollow(follower, user string) (Follow, error) {
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, user)
	return e.currentFollow(), err
}

// FollowedBy is [Queries.UserFollow], answered from the in-end, at the home of user.
func (q *Queries) FollowedBy(user, follower string) (Follow, error) {
	if q.isRemote(user) {
		follow, _ := q.remote.FollowedBy(user, follower)
		return follow, nil
	}
	e, err := readEdge(q.reader, q.keyBuffer(), inEnd, follower, user)
	return e.currentFollow(), err
}

// minUsersForWalk is the smallest number of users for whom one walk over the follower's edges costs
// less than a point read for each user.
const minUsersForWalk = 4

// UserFollows reports how follower follows each of the users. It writes the answers to follows,
// which must be as long as users. It answers from the cache if that has the edges of the follower.
// Otherwise it walks over these edges once, unless the users are few. A walk costs less than point
// reads, because edges that are neighbors in the store are in the same storage block, which is
// found once.
func (q *Queries) UserFollows(follower string, users []string, follows []Follow) (err error) {
	if entry := q.cachedEdges(follower, len(users)); entry != nil {
		for i, user := range users {
			follows[i] = Follow{} // the answer for the empty string, which is no id
			if id, ok := cacheIDOf(user, q.cache.Seed); ok {
				follows[i] = entry.find(&id).follow()
			}
		}
		return nil
	}

	if len(users) < minUsersForWalk {
		for i, user := range users {
			if follows[i], err = q.readFollow(follower, user); err != nil {
				return err
			}
		}
		return nil
	}
	return q.walkFollows(follower, users, follows)
}

// walkFollows is [Queries.UserFollows] by one walk over the edges of the follower.
func (q *Queries) walkFollows(follower string, users []string, follows []Follow) (err error) {
	// Make the key of each edge, and sort the users by these keys. All keys share one buffer. If
	// the buffer grows, the keys before stay in the old memory, which does not change. The capacity
	// of each key is limited, so that an append to a key cannot overwrite the next one.
	prefix := projections.AppendKey(nil, tagOutEdge, follower)
	keys := make([][]byte, len(users))
	order := make([]int, len(users))
	buf := make([]byte, 0, len(users)*(len(prefix)+24)) // 24 bytes are enough for most ids
	for i, user := range users {
		start := len(buf)
		buf = events.AppendID(append(buf, prefix...), user)
		keys[i] = buf[start:len(buf):len(buf)]
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return bytes.Compare(keys[i], keys[j]) })

	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	more := it.Next()
	for _, i := range order {
		follows[i] = Follow{}

		// Seek only forward: the iterator may be at the key already, or past it if there is no such
		// edge.
		if more && bytes.Compare(it.Key(), keys[i]) < 0 {
			more = it.SeekGE(keys[i])
		}
		if !more || !bytes.Equal(it.Key(), keys[i]) {
			continue
		}

		var e edge
		if err := e.decodeRow(it.Value()); err != nil {
			return err
		}
		follows[i] = e.currentFollow()
	}
	return nil
}

// BoardFollow reports how follower follows a board. For a follower of both the board and its owner,
// the answer is OnBoard, since the later of the two times. It takes at most three point reads, and
// only one if the follower neither follows the owner explicitly nor has board edges to boards of
// the owner.
func (q *Queries) BoardFollow(follower, owner, board string) (Follow, error) {
	if cached, ok := q.cachedEdge(follower, owner); ok && !cached.has(cachedBoards) {
		return q.boardFollowByOwner(cached.follow(), owner, board)
	}

	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, owner)
	if err != nil {
		return Follow{}, err
	}
	since, explicit := e.explicitSince()
	if !explicit && !e.mayHaveBoardEdges {
		return Follow{}, nil
	}

	exists, err := q.BoardExists(owner, board)
	if err != nil || !exists {
		return Follow{}, err
	}

	relation, err := q.readBoardRelation(&e, outEnd, follower, owner, board)
	if err != nil {
		return Follow{}, err
	}
	switch {
	case relation.kind == relationExclude:
		return Follow{Excluded, relation.since}, nil
	case relation.kind == relationFollow && explicit:
		return Follow{OnBoard, max(relation.since, since)}, nil
	case relation.kind == relationFollow:
		return Follow{OnBoard, relation.since}, nil
	case explicit:
		return Follow{Explicit, since}, nil
	}
	return Follow{}, nil
}

// boardFollowByOwner returns how a user follows a board, if the user has no board edges to boards
// of the owner. ownerFollow says how the user follows the owner, and is the answer if the board
// exists.
func (q *Queries) boardFollowByOwner(ownerFollow Follow, owner, board string) (Follow, error) {
	if ownerFollow.Kind == None {
		return ownerFollow, nil
	}
	exists, err := q.BoardExists(owner, board)
	if err != nil || !exists {
		return Follow{}, err
	}
	return ownerFollow, nil
}

// readBoardRelation returns the relation of the follower to a board. ownerEdge is the edge from the
// follower to the owner, and end is the end at which it was read. The board edge is read at that
// end, too.
func (q *Queries) readBoardRelation(
	ownerEdge *edge, end endKind, follower, owner, board string,
) (boardRelation, error) {
	if !ownerEdge.mayHaveBoardEdges {
		return boardRelation{}, nil
	}
	facts, err := readBoardEdge(q.reader, q.keyBuffer(), end, follower, owner, board)
	return facts.relation(ownerEdge), err
}

// Relationship returns all relations between viewer and user, with at most two point reads, both of
// rows at the home of the viewer.
func (q *Queries) Relationship(viewer, user string) (r Relationship, err error) {
	cached, ok := q.cachedEdge(viewer, user)
	if ok && !cached.has(cachedTimedMute) && !cached.has(cachedMoreSettings) {
		r.Following = cached.follow()
		r.Blocking = cached.has(cachedBlocking)
		r.BlockedBy = cached.has(cachedBlockedBy)
		r.Muting = cached.has(cachedMuting)
		if cached.has(cachedHidingRepins) {
			r.Settings = events.SettingHideRepins
		}
	} else {
		e, err := readEdge(q.reader, q.keyBuffer(), outEnd, viewer, user)
		if err != nil {
			return r, err
		}
		r.Following = e.currentFollow()
		r.Blocking = e.block.holds()
		r.BlockedBy = e.blockedBy.holds()
		if r.Muting = e.mute.holdsAt(q.now); r.Muting {
			r.MuteUntil = e.mute.until()
		}
		r.Settings = e.followSettings()
	}

	r.FollowedBy, err = q.FollowedBy(viewer, user)
	return r, err
}

// FollowSettings returns the settings of a follower's follow of a user, with at most one point
// read.
func (q *Queries) FollowSettings(follower, user string) (events.FollowSettings, error) {
	if cached, ok := q.cachedEdge(follower, user); ok && !cached.has(cachedMoreSettings) {
		if cached.has(cachedHidingRepins) {
			return events.SettingHideRepins, nil
		}
		return 0, nil
	}
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, user)
	return e.followSettings(), err
}

// UserCounts returns the lengths of a user's lists, with one point read. If the user has mutes with
// an end, it also reads a row for each mute that still holds, and the next row.
func (q *Queries) UserCounts(user string) (UserCounts, error) {
	counts, err := q.readUserCounts(user)
	if err != nil || counts.timedMutes == 0 {
		return counts.UserCounts, err
	}

	// Whether a mute with an end still holds depends on q.now, so these mutes are counted here.
	err = q.eachTimedMute(user, func([]byte, []byte) error {
		counts.Muted++
		return nil
	})
	return counts.UserCounts, err
}

// readUserCounts returns the row with the lengths of a user's lists, in which mutes that have an end
// are not counted as mutes.
func (q *Queries) readUserCounts(user string) (userCountsRow, error) {
	return readUserCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagUserCounts, user))
}

// Followees returns how many users a user follows, explicitly or implicitly.
func (q *Queries) Followees(user string) (int64, error) {
	if q.isRemote(user) {
		n, _ := q.remote.Followees(user)
		return n, nil
	}
	counts, err := q.readUserCounts(user)
	return counts.Following + counts.FollowingImplicit, err
}

// BoardCounts returns the lengths of a board's lists. They are 0 if the board does not exist. It
// takes at most three point reads.
func (q *Queries) BoardCounts(owner, board string) (counts BoardCounts, err error) {
	row, err := readBoard(q.reader, q.keyBuffer(), owner, board)
	if err != nil || (board != "" && !row.exists()) {
		return counts, err
	}

	key := projections.AppendKey(q.keyBuffer(), tagBoardCounts, owner, board)
	if err := readCounts(q.reader, key, counts.fields()); err != nil {
		return counts, err
	}
	ownerCounts, err := q.readUserCounts(owner)
	counts.Appears = ownerCounts.Followers - counts.Excluders + counts.boardOnlyFollowers
	return counts, err
}

// DeletedUsers returns which of the users have a tombstone, so that backfills about them are void.
// Users who were deleted after all backfills were closed have none. The map is nil if the store has
// no tombstone at all.
func DeletedUsers(v *projections.View, users []string) (deleted map[string]bool, err error) {
	// Most stores have no tombstone at all, which one seek shows.
	prefix := projections.AppendPrefix(nil, projections.StoreShard, tagTombstone)
	it := v.Iter(prefix, projections.PrefixEnd(prefix))
	found := it.Next()
	if err := it.Close(); err != nil || !found {
		return nil, err
	}

	deleted = map[string]bool{}
	hash := events.NewKeyedHash(v.Cursor().Log)
	for _, user := range users {
		_, ok, err := v.Get(appendStoreWideKey(nil, tagTombstone, hash.HashID(user)))
		if err != nil {
			return nil, err
		}
		if ok {
			deleted[user] = true
		}
	}
	return deleted, nil
}
