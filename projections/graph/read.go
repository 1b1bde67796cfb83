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
	// None: the user does not follow.
	None FollowKind = iota
	// Explicit: follows the other user, and so all boards of that user, present and future.
	Explicit
	// Implicit: follows at least one board of the other user, but not that user.
	Implicit
	// OnBoard: follows this very board.
	OnBoard
	// Excluded: follows the owner of this board, but has excluded the board.
	Excluded
)

// Follow says how and since when a user follows. If Kind is None, Since is 0.
type Follow struct {
	Kind  FollowKind
	Since events.Micros
}

// Relationship is everything that holds between a viewer and a user. The names are from the
// viewer's side.
type Relationship struct {
	Following, FollowedBy       Follow
	Blocking, BlockedBy, Muting bool
	// MuteUntil is when the mute ends, if Muting is set. 0 means that it has no end.
	MuteUntil events.Micros
	// Settings are those of the viewer's follow.
	Settings events.FollowSettings
}

// Queries answers from the rows of one store at one position. It is cheap to make and not safe for
// concurrent use.
type Queries struct {
	reader projections.Reader
	// now is the log time of the position of reader. It is 0 if reader is a batch.
	now events.Micros
	// scratch is the buffer of keyBuffer.
	scratch []byte
	// cache has decoded edges of users, and version is the version of the view that reader is. A
	// nil cache is not used.
	cache   *cacheSet
	version uint64
	// remote answers for homes whose rows reader does not have. nil means that reader has all rows.
	remote RemoteLookup
}

// RemoteLookup answers for homes whose rows are not in the state that is queried. known is false
// for an answer that must be fetched first; the query then continues with the zero value, and its
// result does not count (see [projections.RemoteLookup]).
type RemoteLookup interface {
	projections.RemoteLookup
	// Board reports whether a board exists.
	Board(owner, id string) (exists, known bool)
	// FollowedBy is [Queries.FollowedBy].
	FollowedBy(user, follower string) (f Follow, known bool)
	// Followees is [Queries.Followees].
	Followees(user string) (n int64, known bool)
}

// NewQueries returns the queries over a reader of a graph store. Whether a mute that ends by itself
// still holds, they decide by the log time of a reader that has a position, as a view has. For a
// batch, all of these mutes hold.
func NewQueries(r projections.Reader) *Queries {
	q := &Queries{reader: r}
	if positioned, ok := r.(interface{ Cursor() events.Cursor }); ok {
		q.now = positioned.Cursor().LastTime
	}
	return q
}

// WithRemote makes the queries ask e about homes whose rows the reader does not have. It returns q.
func (q *Queries) WithRemote(e RemoteLookup) *Queries {
	q.remote = e
	return q
}

// isRemote reports whether the rows of a user must be asked from q.remote.
func (q *Queries) isRemote(user string) bool { return q.remote != nil && !q.remote.Holds(user) }

// BoardExists reports whether a board exists. The default board always does.
func (q *Queries) BoardExists(owner, id string) (bool, error) {
	if id == "" {
		return true, nil
	}
	if q.isRemote(owner) {
		exists, _ := q.remote.Board(owner, id)
		return exists, nil
	}
	b, err := readBoard(q.reader, q.keyBuffer(), owner, id)
	return b.exists(), err
}

// keyBuffer returns an empty buffer for the key of the next read. Every call returns the same
// memory.
func (q *Queries) keyBuffer() []byte {
	if q.scratch == nil {
		q.scratch = make([]byte, 0, 128) // longer than most keys
	}
	return q.scratch
}

// UserFollow reports how follower follows user, with at most one point read.
func (q *Queries) UserFollow(follower, user string) (Follow, error) {
	if q.isRemote(follower) {
		// The home of user knows it, too, and asks elsewhere if that is also not here.
		return q.FollowedBy(user, follower)
	}
	if v, ok := q.cachedEdge(follower, user); ok {
		return v.follow(), nil
	}
	return q.readFollow(follower, user)
}

// readFollow is [Queries.UserFollow] from the rows, without the cache.
func (q *Queries) readFollow(follower, user string) (Follow, error) {
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, user)
	return e.currentFollow(), err
}

// FollowedBy is [Queries.UserFollow], answered from the rows of user.
func (q *Queries) FollowedBy(user, follower string) (Follow, error) {
	if q.isRemote(user) {
		f, _ := q.remote.FollowedBy(user, follower)
		return f, nil
	}
	e, err := readEdge(q.reader, q.keyBuffer(), inEnd, follower, user)
	return e.currentFollow(), err
}

// minUsersForWalk is the number of users from which on one walk over the follower's edges is
// cheaper than point reads.
const minUsersForWalk = 4

// UserFollows reports how follower follows each of the users. It writes the answers to follows,
// which must be as long as users. It answers from the cache if that has the edges of the follower.
// Otherwise it walks over these edges once, because edges that are neighbors in the store share the
// work of finding their block.
func (q *Queries) UserFollows(follower string, users []string, follows []Follow) (err error) {
	if entry := q.cachedEdges(follower, len(users)); entry != nil {
		for i, user := range users {
			follows[i] = Follow{} // the answer for a string that is no id
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
	// Make the key of each edge, and sort the users by these keys. All keys share one buffer; each
	// is limited to its length, so that a key never changes if the buffer grows.
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

// BoardFollow reports how follower follows a board. It takes at most three point reads, and one if
// the follower has neither the owner nor a board of the owner. For a follower of both the board and
// its owner the answer is OnBoard, since the later of the two.
func (q *Queries) BoardFollow(follower, owner, id string) (Follow, error) {
	if v, ok := q.cachedEdge(follower, owner); ok && !v.has(cachedBoards) {
		return q.boardFollowByOwner(v.follow(), owner, id)
	}

	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, owner)
	if err != nil {
		return Follow{}, err
	}
	since, explicit := e.explicitSince()
	if !explicit && !e.hasBoards {
		return Follow{}, nil
	}

	exists, err := q.BoardExists(owner, id)
	if err != nil || !exists {
		return Follow{}, err
	}

	r, err := q.boardRelation(&e, outEnd, follower, owner, id)
	if err != nil {
		return Follow{}, err
	}
	switch {
	case r.kind == relationExclude:
		return Follow{Excluded, r.since}, nil
	case r.kind == relationFollow && explicit:
		return Follow{OnBoard, max(r.since, since)}, nil
	case r.kind == relationFollow:
		return Follow{OnBoard, r.since}, nil
	case explicit:
		return Follow{Explicit, since}, nil
	}
	return Follow{}, nil
}

// boardFollowByOwner returns how a user follows a board who follows the owner as ownerFollow says,
// and has no relation to any board of the owner.
func (q *Queries) boardFollowByOwner(ownerFollow Follow, owner, id string) (Follow, error) {
	if ownerFollow.Kind == None {
		return ownerFollow, nil
	}
	exists, err := q.BoardExists(owner, id)
	if err != nil || !exists {
		return Follow{}, err
	}
	return ownerFollow, nil
}

// boardRelation returns the relation of the follower to a board. e is the edge from the follower to
// the owner, at the end from which the board edge is read.
func (q *Queries) boardRelation(e *edge, end endKind, follower, owner, id string) (relation, error) {
	if !e.hasBoards {
		return relation{}, nil
	}
	facts, err := readBoardEdge(q.reader, q.keyBuffer(), end, follower, owner, id)
	return facts.relation(e), err
}

// Relationship returns everything that holds between viewer and user, with at most two point reads,
// both of rows at the home of the viewer.
func (q *Queries) Relationship(viewer, user string) (r Relationship, err error) {
	if v, ok := q.cachedEdge(viewer, user); ok && !v.has(cachedTimedMute) && !v.has(cachedMoreSettings) {
		r.Following = v.follow()
		r.Blocking = v.has(cachedBlocking)
		r.BlockedBy = v.has(cachedBlockedBy)
		r.Muting = v.has(cachedMuting)
		if v.has(cachedHidingRepins) {
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
	if v, ok := q.cachedEdge(follower, user); ok && !v.has(cachedMoreSettings) {
		if v.has(cachedHidingRepins) {
			return events.SettingHideRepins, nil
		}
		return 0, nil
	}
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, user)
	return e.followSettings(), err
}

// UserCounts returns the lengths of a user's lists, with one point read. If the user has mutes that
// end by themselves, it also reads a row for each of them that still holds.
func (q *Queries) UserCounts(user string) (UserCounts, error) {
	u, err := readUserCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagUserCounts, user))
	if err != nil || u.timedMutes == 0 {
		return u.UserCounts, err
	}
	err = q.eachTimedMute(user, func([]byte, []byte) error {
		u.Muted++
		return nil
	})
	return u.UserCounts, err
}

// Followees returns how many users a user follows, explicitly or implicitly.
func (q *Queries) Followees(user string) (int64, error) {
	if q.isRemote(user) {
		n, _ := q.remote.Followees(user)
		return n, nil
	}
	c, err := q.UserCounts(user)
	return c.Following + c.FollowingImplicit, err
}

// BoardCounts returns the lengths of a board's lists, with at most three point reads. They are 0 if
// the board does not exist.
func (q *Queries) BoardCounts(owner, id string) (c BoardCounts, err error) {
	b, err := readBoard(q.reader, q.keyBuffer(), owner, id)
	if err != nil || (id != "" && !b.exists()) {
		return c, err
	}

	key := projections.AppendKey(q.keyBuffer(), tagBoardCounts, owner, id)
	if err := readCounts(q.reader, key, c.fields()); err != nil {
		return c, err
	}
	u, err := q.UserCounts(owner)
	c.Appears = u.Followers - c.Excluders + c.followersOnly
	return c, err
}

// DeletedUsers returns which of the users were deleted, so that later backfills about them are
// void. Once all backfills are closed, it no longer knows all deleted users. The map is nil if the
// store knows of none.
func DeletedUsers(v *projections.View, users []string) (deleted map[string]bool, err error) {
	// Most stores have no tombstone at all, which one seek tells.
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
