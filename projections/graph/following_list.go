package graph

import (
	"bytes"
	"errors"
	"slices"

	"github.com/skein-feed/skein/projections"
)

// The list of the users whom a user follows explicitly, newest first, is stored in rows
// (tagFollowingExplicit) only for users with many edges. The edges of a user hold the same
// information, sorted by id. Most users follow few others, and for them a query reads all edges and
// sorts them by time. This saves a third of the rows of a follow, on disk and in every fold.
//
// Invariant: if userCountsRow.followingStored is 1, the user's rows of tagFollowingExplicit are
// exactly the explicit follows. If it is 0, there are no such rows, and the user has at most
// eventFold.maxShortList edges.

// DefaultShortList is the number of edges up to which a user's list of follows is not stored by
// default.
const DefaultShortList = 256

// WithShortList replaces [DefaultShortList] in g by another number of edges, and returns g. With 0,
// every list is stored. The number decides which rows exist, so it is part of the fingerprint of a
// store ([Graph.Settings]), and must not change after the first event.
func (g *Graph) WithShortList(edges int) *Graph {
	g.fold.maxShortList = int64(edges)
	return g
}

// updateFollowerCounts adds delta to the counts of the follower, and updates the list of follows,
// if it is stored. If the number of edges crosses the threshold, it writes or deletes the whole
// list. The row of the edge must be written already, because the list is written from the edges.
func (f *eventFold) updateFollowerCounts(
	change *edgeChange, delta userDelta, explicitBefore, explicitAfter userRelation,
) error {
	if delta == (userDelta{}) && explicitBefore == explicitAfter {
		return nil
	}

	f.key = projections.AppendKey(f.key[:0], tagUserCounts, change.follower)
	counts, err := readUserCounts(f.batch, f.key)
	if err != nil {
		return err
	}
	fields := counts.fields()
	if err := addCounts(fields, delta[:], f.key); err != nil {
		return err
	}

	// A stored list is deleted only below half of the threshold. Otherwise a user on the threshold
	// who follows and unfollows would have the list written and deleted each time.
	threshold := f.maxShortList
	if counts.followingStored == 1 {
		threshold /= 2
	}
	store := counts.edgeCount() > threshold
	switch {
	case store && counts.followingStored == 0:
		counts.followingStored = 1
		err = f.writeFollowingList(change.follower)
	case store && explicitBefore != explicitAfter:
		f.updateListRow(tagFollowingExplicit, change.follower, change.followee, explicitBefore, explicitAfter)
	case !store && counts.followingStored == 1:
		counts.followingStored = 0
		err = f.deleteFollowingList(change.follower)
	}
	if err != nil {
		return err
	}

	// f.key is no longer the key of the counts if a row of the list was written.
	f.key = projections.AppendKey(f.key[:0], tagUserCounts, change.follower)
	f.value = appendCounts(f.value[:0], fields)
	f.setOrDeleteRow(f.key, f.value)
	return nil
}

// writeFollowingList writes the whole list of a user, from the edges. The list is short at this
// time.
func (f *eventFold) writeFollowingList(user string) error {
	// sortFollowing has closed its iterator, so rows may be written.
	list := sortFollowing(f.batch, user)
	for list.Next() {
		f.batch.Set(list.Key(), list.Value())
	}
	return list.Close()
}

// deleteFollowingList deletes the whole list of a user. The list is short at this time.
func (f *eventFold) deleteFollowingList(user string) error {
	// Nothing may be written while an iterator is open.
	prefix := projections.AppendKey(nil, tagFollowingExplicit, user)
	var keys [][]byte
	it := f.batch.Iter(prefix, projections.PrefixEnd(prefix))
	for it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	if err := it.Close(); err != nil {
		return err
	}

	for _, key := range keys {
		f.batch.Delete(key)
	}
	return nil
}

// followingRows returns an iterator over the list of users whom a user follows explicitly, newest
// first: over the stored rows, or over rows that are made from the edges and look the same.
func (q *Queries) followingRows(user string) projections.Iterator {
	counts, err := readUserCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagUserCounts, user))
	if err != nil {
		return &sortedRows{err: err}
	}
	if counts.followingStored == 1 {
		prefix := projections.AppendKey(nil, tagFollowingExplicit, user)
		return q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	}
	return sortFollowing(q.reader, user)
}

// sortFollowing reads all edges of a user, and returns the rows of tagFollowingExplicit that the
// user has if the list is stored.
func sortFollowing(r projections.Reader, user string) *sortedRows {
	sorted := sortedRows{valueSize: 1} // the settings of the follow

	// All keys are written to one buffer. Slices of it are taken only when it no longer grows.
	var buf []byte
	var ends []int
	edgePrefix := projections.AppendKey(nil, tagOutEdge, user)
	listPrefix := projections.AppendKey(nil, tagFollowingExplicit, user)
	it := r.Iter(edgePrefix, projections.PrefixEnd(edgePrefix))
	for it.Next() {
		var e edge
		if sorted.err = e.decodeRow(it.Value()); sorted.err != nil {
			break
		}
		if follow := e.explicitFollow(); follow.holds {
			followee := it.Key()[len(edgePrefix):]
			buf = appendDescendingTime(append(buf, listPrefix...), follow.since)
			buf = append(append(buf, followee...), byte(follow.settings))
			ends = append(ends, len(buf))
		}
	}
	sorted.err = errors.Join(sorted.err, it.Close())

	sorted.rows = make([][]byte, len(ends))
	start := 0
	for i, end := range ends {
		sorted.rows[i] = buf[start:end:end]
		start = end
	}
	slices.SortFunc(sorted.rows, bytes.Compare)
	return &sorted
}
