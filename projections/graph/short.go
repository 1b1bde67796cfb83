package graph

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/projections"
)

// Most users follow few, and whom A follows stands already in the edges of A, by id. So the rows of tagFollowing, which are the
// same by time, are kept only of users with many edges; of the others the edges are read and sorted. That spares a third of the
// rows of a follow, on disk and in every fold.
//
// Invariant: the rows of tagFollowing of a user are all explicit follows if userRow.kept is 1, and none if it is 0, which is so
// only while the user has at most [Short] edges.

// Short is up to how many edges of a user whom that user follows is sorted when it is read, by default.
const Short = 256

// WithShort sets what else is [Short]; 0 means every list is kept. It decides which rows there are, so it is part of the fingerprint.
func (g *Graph) WithShort(edges int) *Graph {
	g.txn.maxShortList = int64(edges)
	return g
}

// userRow is the row of tagUserCounts: what is counted of a user, and what decides how the list of follows is kept.
type userCountsRow struct {
	UserCounts
	// others are the edges that are no follows: with Following and FollowingImplicit, all edges.
	otherEdges int64
	// kept is 1 if the rows of tagFollowing are kept.
	followingStored int64
}

func (u *userCountsRow) fields() []*int64 {
	c := &u.UserCounts
	return []*int64{
		&c.Following, &c.FollowingImplicit, &c.Followers, &c.FollowersImplicit, &c.Boards,
		&c.FollowedBoards, &c.ExcludedBoards, &c.Blocked, &c.Muted, &u.otherEdges, &u.followingStored,
	}
}

func (u *userCountsRow) edgeCount() int64 { return u.Following + u.FollowingImplicit + u.otherEdges }

func readUserCounts(r projections.Reader, key []byte) (u userCountsRow, err error) {
	if err = readCounts(r, key, u.fields()); err == nil && u.followingStored > 1 {
		err = rowError("counts", key)
	}
	return u, err
}

// countFollower adds to the counts of the follower of an edge, and keeps the list of whom that user follows as it should be. The
// edge is written already.
func (t *txn) updateFollowerCounts(h *edgeEnd, d userDelta, before, after state) error {
	if d == (userDelta{}) && before == after {
		return nil
	}
	t.key = projections.AppendKey(t.key[:0], tagUserCounts, h.follower)
	u, err := readUserCounts(t.batch, t.key)
	if err != nil {
		return err
	}
	fields := u.fields()
	if err := addCounts(fields, d[:], t.key); err != nil {
		return err
	}
	most := t.maxShortList
	if u.followingStored == 1 {
		most /= 2 // a user on the threshold who follows and unfollows is not written anew each time
	}
	switch keep := u.edgeCount() > most; {
	case keep && u.followingStored == 0:
		u.followingStored = 1
		err = t.writeFollowingList(h.follower)
	case keep && before != after:
		t.moveListRow(tagFollowing, h.follower, h.followee, before, after)
	case !keep && u.followingStored == 1:
		u.followingStored = 0
		err = t.deleteFollowingList(h.follower)
	}
	if err != nil {
		return err
	}
	t.key, t.value = projections.AppendKey(t.key[:0], tagUserCounts, h.follower), appendCounts(t.value[:0], fields)
	t.setOrDelete(t.key, t.value)
	return nil
}

// keepFollowing writes the list of a user from the edges, of which there are few.
func (t *txn) writeFollowingList(user string) error {
	list := sortFollowing(t.batch, user)
	for list.Next() {
		t.batch.Set(list.Key(), nil)
	}
	return list.Close()
}

// dropFollowing removes the list of a user, which is short.
func (t *txn) deleteFollowingList(user string) error {
	prefix := projections.AppendKey(nil, tagFollowing, user)
	var keys [][]byte
	it := t.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, key := range keys {
		t.batch.Delete(key)
	}
	return nil
}

// following returns the rows of whom a user follows explicitly, the newest first, as they are or would be.
func (q *Queries) followingRows(user string) projections.Iterator {
	u, err := readUserCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagUserCounts, user))
	switch {
	case err != nil:
		return &sortedKeys{err: err}
	case u.followingStored == 1:
		prefix := projections.AppendKey(nil, tagFollowing, user)
		return q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	}
	return sortFollowing(q.reader, user)
}

// shortFollowing sorts the explicit follows among the edges of a user.
func sortFollowing(r projections.Reader, user string) *sortedKeys {
	var s sortedKeys
	prefix := projections.AppendKey(nil, tagEdge, user)
	head := projections.AppendKey(nil, tagFollowing, user)
	it := r.Iter(prefix, projections.PrefixEnd(prefix))
	var all []byte
	var ends []int
	for s.err == nil && it.Next() {
		var e edge
		if s.err = e.decodeRow(it.Value()); s.err != nil {
			break
		}
		if since, ok := e.explicitSince(); ok {
			all = append(appendNewestFirst(append(all, head...), since), it.Key()[len(prefix):]...)
			ends = append(ends, len(all))
		}
	}
	s.err = errors.Join(s.err, it.Close())
	s.keys = make([][]byte, len(ends))
	from := 0
	for i, end := range ends {
		s.keys[i], from = all[from:end:end], end
	}
	slices.SortFunc(s.keys, bytes.Compare)
	return &s
}

// sortedKeys is an iterator over keys of rows without values.
type sortedKeys struct {
	keys [][]byte
	// next is the index of the key after the present one.
	next int
	err  error
}

// Next is part of [projections.Iterator].
func (s *sortedKeys) Next() bool {
	if s.err != nil || s.next >= len(s.keys) {
		return false
	}
	s.next++
	return true
}

// Error is part of [projections.Iterator].
func (s *sortedKeys) Error() error {
	if s.err != nil {
		return fmt.Errorf("read whom a user follows: %w", s.err)
	}
	return nil
}

// SeekGE is part of [projections.Iterator].
func (s *sortedKeys) SeekGE(key []byte) bool {
	s.next, _ = slices.BinarySearchFunc(s.keys, key, bytes.Compare)
	return s.Next()
}

// Key is part of [projections.Iterator].
func (s *sortedKeys) Key() []byte { return s.keys[s.next-1] }

// Value is part of [projections.Iterator].
func (*sortedKeys) Value() []byte { return nil }

// Close is part of [projections.Iterator].
func (s *sortedKeys) Close() error { return s.Error() }
