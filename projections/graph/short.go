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
	g.t.short = int64(edges)
	return g
}

// userRow is the row of tagUserCounts: what is counted of a user, and what decides how the list of follows is kept.
type userRow struct {
	UserCounts
	// others are the edges that are no follows: with Following and FollowingImplicit, all edges.
	others int64
	// kept is 1 if the rows of tagFollowing are kept.
	kept int64
}

func (u *userRow) fields() []*int64 {
	c := &u.UserCounts
	return []*int64{
		&c.Following, &c.FollowingImplicit, &c.Followers, &c.FollowersImplicit, &c.Boards,
		&c.FollowedBoards, &c.ExcludedBoards, &c.Blocked, &c.Muted, &u.others, &u.kept,
	}
}

func (u *userRow) edges() int64 { return u.Following + u.FollowingImplicit + u.others }

func readUser(r projections.Reader, key []byte) (u userRow, err error) {
	if err = readCounts(r, key, u.fields()); err == nil && u.kept > 1 {
		err = errRow("counts", key)
	}
	return u, err
}

// countFollower adds to the counts of the follower of an edge, and keeps the list of whom that user follows as it should be. The
// edge is written already.
func (t *txn) countFollower(h *half, d userDelta, before, after state) error {
	if d == (userDelta{}) && before == after {
		return nil
	}
	t.key = projections.AppendKey(t.key[:0], tagUserCounts, h.a)
	u, err := readUser(t.b, t.key)
	if err != nil {
		return err
	}
	fields := u.fields()
	if err := addCounts(fields, d[:], t.key); err != nil {
		return err
	}
	most := t.short
	if u.kept == 1 {
		most /= 2 // a user on the threshold who follows and unfollows is not written anew each time
	}
	switch keep := u.edges() > most; {
	case keep && u.kept == 0:
		u.kept = 1
		err = t.keepFollowing(h.a)
	case keep && before != after:
		t.moveRow(tagFollowing, h.a, h.b, before, after)
	case !keep && u.kept == 1:
		u.kept = 0
		err = t.dropFollowing(h.a)
	}
	if err != nil {
		return err
	}
	t.key, t.value = projections.AppendKey(t.key[:0], tagUserCounts, h.a), appendCounts(t.value[:0], fields)
	t.put(t.key, t.value)
	return nil
}

// keepFollowing writes the list of a user from the edges, of which there are few.
func (t *txn) keepFollowing(user string) error {
	list := shortFollowing(t.b, user)
	for list.Next() {
		t.b.Set(list.Key(), nil)
	}
	return list.Close()
}

// dropFollowing removes the list of a user, which is short.
func (t *txn) dropFollowing(user string) error {
	prefix := projections.AppendKey(nil, tagFollowing, user)
	var keys [][]byte
	it := t.b.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil {
		return err
	}
	for _, key := range keys {
		t.b.Delete(key)
	}
	return nil
}

// following returns the rows of whom a user follows explicitly, the newest first, as they are or would be.
func (q *Queries) following(user string) projections.Iterator {
	u, err := readUser(q.r, projections.AppendKey(q.key(), tagUserCounts, user))
	switch {
	case err != nil:
		return &sortedKeys{err: err}
	case u.kept == 1:
		prefix := projections.AppendKey(nil, tagFollowing, user)
		return q.r.Iter(prefix, projections.PrefixEnd(prefix))
	}
	return shortFollowing(q.r, user)
}

// shortFollowing sorts the explicit follows among the edges of a user.
func shortFollowing(r projections.Reader, user string) *sortedKeys {
	var s sortedKeys
	prefix := projections.AppendKey(nil, tagEdge, user)
	head := projections.AppendKey(nil, tagFollowing, user)
	it := r.Iter(prefix, projections.PrefixEnd(prefix))
	var all []byte
	var ends []int
	for s.err == nil && it.Next() {
		var e edge
		if s.err = e.decode(it.Value()); s.err != nil {
			break
		}
		if since, ok := e.explicit(); ok {
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
