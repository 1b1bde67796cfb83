package graph

import (
	"bytes"
	"errors"
	"slices"

	"github.com/skein-feed/skein/projections"
)

// The list of the users whom a user follows explicitly, newest first, is stored
// (tagFollowingExplicit) only for users with many edges. Most users follow few others, and their
// edges hold the same information, sorted by id. For them the edges are read and sorted by time
// when the list is asked for. This saves a third of the rows of a follow, on disk and in every
// fold.
//
// Invariant: the rows of tagFollowingExplicit of a user are all explicit follows if
// userCountsRow.followingStored is 1, and there are none if it is 0. It is 0 only while the user
// has at most [DefaultShortList] edges.

// DefaultShortList is a number of edges. By default, the list of a user's follows is stored only if
// the user has more edges.
const DefaultShortList = 256

// WithShortList replaces [DefaultShortList] in g by another number of edges, and returns g; 0
// stores every list. The number decides which rows exist, so it is part of the fingerprint, and
// must not change after the first event.
func (g *Graph) WithShortList(edges int) *Graph {
	g.fold.maxShortList = int64(edges)
	return g
}

// updateFollowerCounts adds d to the counts of the follower, and updates the stored list of
// follows. If the number of edges crosses the threshold, the whole list is written or deleted. The
// edge must be written already, because the list is written from the edges.
func (t *eventFold) updateFollowerCounts(e *edgeEnd, d userDelta, explicitBefore, explicitAfter state) error {
	if d == (userDelta{}) && explicitBefore == explicitAfter {
		return nil
	}

	t.key = projections.AppendKey(t.key[:0], tagUserCounts, e.follower)
	u, err := readUserCounts(t.batch, t.key)
	if err != nil {
		return err
	}
	fields := u.fields()
	if err := addCounts(fields, d[:], t.key); err != nil {
		return err
	}

	// A stored list is deleted only below half of the threshold. Otherwise a user on the threshold
	// who follows and unfollows would have the list written and deleted each time.
	maxShort := t.maxShortList
	if u.followingStored == 1 {
		maxShort /= 2
	}
	store := u.edgeCount() > maxShort
	switch {
	case store && u.followingStored == 0:
		u.followingStored = 1
		err = t.writeFollowingList(e.follower)
	case store && explicitBefore != explicitAfter:
		t.updateListRow(tagFollowingExplicit, e.follower, e.followee, explicitBefore, explicitAfter)
	case !store && u.followingStored == 1:
		u.followingStored = 0
		err = t.deleteFollowingList(e.follower)
	}
	if err != nil {
		return err
	}

	t.key = projections.AppendKey(t.key[:0], tagUserCounts, e.follower)
	t.value = appendCounts(t.value[:0], fields)
	t.setOrDeleteRow(t.key, t.value)
	return nil
}

// writeFollowingList writes the list of a user from the edges, of which there are few at this time.
func (t *eventFold) writeFollowingList(user string) error {
	list := sortFollowing(t.batch, user)
	for list.Next() {
		t.batch.Set(list.Key(), list.Value())
	}
	return list.Close()
}

// deleteFollowingList deletes the list of a user, which is short at this time.
func (t *eventFold) deleteFollowingList(user string) error {
	// Nothing may be written while an iterator is open.
	prefix := projections.AppendKey(nil, tagFollowingExplicit, user)
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

// followingRows returns the rows of the list of users whom a user follows explicitly, newest first:
// the stored rows, or the keys that they would have.
func (q *Queries) followingRows(user string) projections.Iterator {
	u, err := readUserCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagUserCounts, user))
	if err != nil {
		return &sortedRows{err: err}
	}
	if u.followingStored == 1 {
		prefix := projections.AppendKey(nil, tagFollowingExplicit, user)
		return q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	}
	return sortFollowing(q.reader, user)
}

// sortFollowing returns the keys that the rows of tagFollowingExplicit of a user would have, in
// order. It reads all edges of the user.
func sortFollowing(r projections.Reader, user string) *sortedRows {
	s := sortedRows{valueSize: 1}

	// All keys are written to one buffer. Slices of it are taken only when it no longer grows.
	var buf []byte
	var ends []int
	edgePrefix := projections.AppendKey(nil, tagOutEdge, user)
	listPrefix := projections.AppendKey(nil, tagFollowingExplicit, user)
	it := r.Iter(edgePrefix, projections.PrefixEnd(edgePrefix))
	for it.Next() {
		var e edge
		if s.err = e.decodeRow(it.Value()); s.err != nil {
			break
		}
		if follow := e.explicitState(); follow.holds {
			followee := it.Key()[len(edgePrefix):]
			buf = appendNewestFirst(append(buf, listPrefix...), follow.since)
			buf = append(append(buf, followee...), byte(follow.settings))
			ends = append(ends, len(buf))
		}
	}
	s.err = errors.Join(s.err, it.Close())

	s.rows = make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		s.rows[i] = buf[start:end:end]
		start = end
	}
	slices.SortFunc(s.rows, bytes.Compare)
	return &s
}
