package graph

import (
	"bytes"
	"errors"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// FollowKind is how a user follows another or a board.
type FollowKind uint8

// The kinds of following.
const (
	// None: not at all.
	None FollowKind = iota
	// Explicit: the user, all boards, present and future.
	Explicit
	// Implicit: at least one board of the user, but not the user.
	Implicit
	// OnBoard: this very board.
	OnBoard
	// Excluded: not this board, though its owner.
	Excluded
)

// Follow is how and since when one follows. Of None, Since is 0.
type Follow struct {
	Kind  FollowKind
	Since events.Micros
}

// Relationship is everything between a viewer and a user.
type Relationship struct {
	Following, FollowedBy       Follow
	Blocking, BlockedBy, Muting bool
	HidingRepins                bool
}

// Queries answers from the rows of one store at one position. It is cheap to make and not safe for concurrent use.
type Queries struct {
	reader projections.Reader
	// scratch holds keys between reads.
	scratch []byte
	// cache has decoded edges, and version that of the view that r is; nil means there are none.
	cache   *cacheSet
	version uint64
	// elsewhere knows what rows of other partitions say; nil means that all are here.
	remote Elsewhere
}

// Elsewhere is what queries ask of homes that are not in their state.
type Elsewhere interface {
	projections.Elsewhere
	// Board reports whether a board exists. known is false for what must be fetched first.
	Board(owner, id string) (exists, known bool)
	// FollowedBy is that of [Queries].
	FollowedBy(user, follower string) (f Follow, known bool)
	// Followees is that of [Queries].
	Followees(user string) (n int64, known bool)
}

// Query returns the queries over a reader of a graph store.
func Query(r projections.Reader) *Queries { return &Queries{reader: r} }

// With has the queries ask elsewhere what is not in their state.
func (q *Queries) With(e Elsewhere) *Queries {
	q.remote = e
	return q
}

// BoardExists reports whether a board exists. The default board always does.
func (q *Queries) BoardExists(owner, id string) (bool, error) {
	if id == "" {
		return true, nil
	}
	if q.remote != nil && !q.remote.Holds(owner) {
		exists, _ := q.remote.Board(owner, id)
		return exists, nil
	}
	b, err := readBoard(q.reader, q.keyBuffer(), owner, id)
	return b.exists(), err
}

// key returns room for a key.
func (q *Queries) keyBuffer() []byte {
	if q.scratch == nil {
		q.scratch = make([]byte, 0, 128)
	}
	return q.scratch
}

// User reports how follower follows user, with at most one point read.
func (q *Queries) User(follower, user string) (Follow, error) {
	if q.remote != nil && !q.remote.Holds(follower) {
		return q.FollowedBy(user, follower)
	}
	if v, ok := q.cachedEdge(follower, user); ok {
		return v.follow(), nil
	}
	return q.readFollow(follower, user)
}

func (q *Queries) readFollow(follower, user string) (Follow, error) {
	e, err := readEdge(q.reader, q.keyBuffer(), outEnd, follower, user)
	return e.currentFollow(), err
}

// FollowedBy is [Queries.User], answered from the rows of user.
func (q *Queries) FollowedBy(user, follower string) (Follow, error) {
	if q.remote != nil && !q.remote.Holds(user) {
		f, _ := q.remote.FollowedBy(user, follower)
		return f, nil
	}
	e, err := readEdge(q.reader, q.keyBuffer(), inEnd, follower, user)
	return e.currentFollow(), err
}

// walkFrom is from how many users on one walk over the follower's edges is cheaper than point reads.
const minUsersForWalk = 4

// Users reports how follower follows each of some users, into follows, which is as long as users. It walks over the
// follower's edges once: neighbors in the store share the work of finding their block.
func (q *Queries) Users(follower string, users []string, follows []Follow) (err error) {
	if e := q.cachedEdges(follower, len(users)); e != nil {
		for i, user := range users {
			follows[i] = Follow{} // also of what is no id
			if id, ok := cacheIDOf(user, q.cache.Seed); ok {
				follows[i] = e.find(&id).follow()
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
	prefix := projections.AppendKey(nil, tagEdge, follower)
	keys, order := make([][]byte, len(users)), make([]int, len(users))
	buf := make([]byte, 0, len(users)*(len(prefix)+24))
	for i, user := range users {
		from := len(buf)
		buf = events.AppendID(append(buf, prefix...), user)
		keys[i], order[i] = buf[from:len(buf):len(buf)], i
	}
	slices.SortFunc(order, func(i, j int) int { return bytes.Compare(keys[i], keys[j]) })
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	more := it.Next()
	for _, i := range order {
		follows[i] = Follow{}
		if more && bytes.Compare(it.Key(), keys[i]) < 0 { // else the walk is there, or past it
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

// Board reports how follower follows a board, with at most three point reads, and one where the answer is no.
// One who follows both the board and its owner is OnBoard, since the later of the two.
func (q *Queries) Board(follower, owner, id string) (Follow, error) {
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
	if exists, err := q.BoardExists(owner, id); err != nil || !exists {
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

// boardByOwner reports how one follows a board who has no relation to any board of its owner.
func (q *Queries) boardFollowByOwner(f Follow, owner, id string) (Follow, error) {
	if f.Kind == None {
		return f, nil
	}
	if exists, err := q.BoardExists(owner, id); err != nil || !exists {
		return Follow{}, err
	}
	return f, nil
}

func (q *Queries) boardRelation(e *edge, at endKind, follower, owner, id string) (relation, error) {
	if !e.hasBoards {
		return relation{}, nil
	}
	be, err := readBoardEdge(q.reader, q.keyBuffer(), at, follower, owner, id)
	return be.relation(e), err
}

// Relationship reports everything between viewer and user, with at most two point reads, of rows of the viewer.
func (q *Queries) Relationship(viewer, user string) (r Relationship, err error) {
	if v, ok := q.cachedEdge(viewer, user); ok {
		r.Following = v.follow()
		r.Blocking, r.BlockedBy, r.Muting = v.has(cachedBlocking), v.has(cachedBlockedBy), v.has(cachedMuting)
		r.HidingRepins = v.has(cachedHidingRepins)
	} else {
		e, err := readEdge(q.reader, q.keyBuffer(), outEnd, viewer, user)
		if err != nil {
			return r, err
		}
		r.Following = e.currentFollow()
		r.Blocking, r.BlockedBy, r.Muting, r.HidingRepins = e.block.holds(), e.blockedBy.holds(), e.mute.holds(), e.hideRepins.holds()
	}
	r.FollowedBy, err = q.FollowedBy(viewer, user)
	return r, err
}

// UserCounts returns the lengths of a user's lists, with one point read.
func (q *Queries) UserCounts(user string) (UserCounts, error) {
	u, err := readUserCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagUserCounts, user))
	return u.UserCounts, err
}

// Followees returns how many users a user follows, explicitly or implicitly.
func (q *Queries) Followees(user string) (int64, error) {
	if q.remote != nil && !q.remote.Holds(user) {
		n, _ := q.remote.Followees(user)
		return n, nil
	}
	c, err := q.UserCounts(user)
	return c.Following + c.FollowingImplicit, err
}

// BoardCounts returns the lengths of a board's lists, with at most three point reads.
func (q *Queries) BoardCounts(owner, id string) (c BoardCounts, err error) {
	b, err := readBoard(q.reader, q.keyBuffer(), owner, id)
	if err != nil || (id != "" && !b.exists()) {
		return c, err
	}
	if err := readCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagBoardCounts, owner, id), c.fields()); err != nil {
		return c, err
	}
	u, err := q.UserCounts(owner)
	c.Appears = u.Followers - c.Excluders + c.followersOnly
	return c, err
}

// Deleted returns which of the users were deleted, so that no later backfill about them counts. It does not know all of them once all
// backfills are closed.
func Deleted(v *projections.View, users []string) (deleted map[string]bool, err error) {
	prefix := projections.AppendPrefix(nil, projections.StoreShard, tagTombstone)
	it := v.Iter(prefix, projections.PrefixEnd(prefix))
	found := it.Next()
	if err := it.Close(); err != nil || !found {
		return nil, err
	}

	deleted = map[string]bool{}
	hash := events.NewKeyedHash(v.Cursor().Log)
	for _, user := range users {
		_, ok, err := v.Get(storeHashKey(nil, tagTombstone, hash.Of(user)))
		if err != nil {
			return nil, err
		}
		if ok {
			deleted[user] = true
		}
	}
	return deleted, nil
}
