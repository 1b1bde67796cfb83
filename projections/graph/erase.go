package graph

import (
	"bytes"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// eraseRows calls eraseRow for each row whose key has the prefix, in steps (see
// [projections.Batch.EraseRows]). eraseRow gets the part of the key that follows the prefix, and
// must delete the row.
func (f *eventFold) eraseRows(prefix []byte, eraseRow func(rest []byte) error) error {
	return f.batch.EraseRows(prefix, func(rest []byte) error {
		if err := eraseRow(rest); err != nil {
			return err
		}

		// eraseRow deletes the edge to which the row leads, and with it the row. If the row stays,
		// the store is corrupt: there is no such edge.
		key := append(bytes.Clone(prefix), rest...)
		_, stays, err := f.batch.Get(key)
		if err != nil || stays {
			return errors.Join(err, projections.RowError("row that leads nowhere", key))
		}
		return nil
	})
}

// eraseEdgesByRows calls eraseEdge for each row whose key has the prefix. Each of these rows leads
// to an edge. decodeUser decodes the user at the other end of the edge from the part of the key
// that follows the prefix. eraseEdge must delete the edge, and with it the row (see
// [eventFold.eraseRows]).
func (f *eventFold) eraseEdgesByRows(
	prefix []byte, decodeUser func(rest []byte) (string, error), eraseEdge func(user string) error,
) error {
	return f.eraseRows(prefix, func(rest []byte) error {
		user, err := decodeUser(rest)
		if err != nil {
			return err
		}
		return eraseEdge(user)
	})
}

// followerDecoder returns the function that decodes the follower from the part of a key that
// follows the owner or board of the list. The tag is one of those whose rows lead to in-ends.
func followerDecoder(tag projections.Tag) func(rest []byte) (string, error) {
	if tag == tagUnlistedInEdges || tag == tagUnlistedInBoardEdges {
		return decodeID
	}
	return decodeListUser
}

// eraseUser folds a user_deleted. In steps, it deletes every row in this store that has the user's
// id: the ends of the user's edges at the homes of other users, and the rows at the user's own
// home. It writes a tombstone, so that later backfills about the user are void, unless all
// backfills are closed.
func (f *eventFold) eraseUser() error {
	user := f.ev.User

	if !f.outEndsOnly {
		if err := f.eraseInEnds(user); err != nil {
			return err
		}
	}

	// The user's region leads to the out-ends of edges from others to the user.
	region := projections.AppendKey(nil, tagRegion, user)
	err := f.eraseEdgesByRows(region, decodeRegionUser, func(follower string) error {
		return f.applyOneEnd(outEnd, follower, user, (*eventFold).eraseEnd)
	})
	if err != nil {
		return err
	}

	if f.holdsHome(user) {
		outEnds := projections.AppendKey(nil, tagOutEdge, user)
		err := f.eraseEdgesByRows(outEnds, decodeID, func(followee string) error {
			return f.applyOneEnd(outEnd, user, followee, (*eventFold).eraseEnd)
		})
		if err != nil {
			return err
		}
		if err := f.eraseBoards(user); err != nil {
			return err
		}
	}

	// Every store has the rows that say which boards of the user were deleted, and every store gets
	// the tombstone.
	deletions := appendStoreWideKey(nil, tagBoardDeletion, f.batch.KeyedHash(user))
	err = f.eraseRows(deletions, func(rest []byte) error {
		f.key = append(append(f.key[:0], deletions...), rest...)
		f.batch.Delete(f.key)
		return nil
	})
	if err != nil || f.batch.BackfillsClosed() {
		return err
	}
	f.key = appendStoreWideKey(f.key[:0], tagTombstone, f.batch.KeyedHash(user))
	f.batch.Set(f.key, nil)
	return nil
}

// eraseInEnds deletes the in-ends of the user's edges, in both directions.
func (f *eventFold) eraseInEnds(user string) error {
	// The in-ends of edges from the user to others are at the homes of the others. In each
	// partition, one seek finds them, because their keys begin with the user.
	err := f.batch.EachPartition(func(partition uint8) error {
		inEnds := events.AppendID(projections.AppendPartition(nil, partition, tagInEdge), user)
		return f.eraseEdgesByRows(inEnds, decodeID, func(followee string) error {
			return f.applyOneEnd(inEnd, user, followee, (*eventFold).eraseEnd)
		})
	})
	if err != nil || !f.holdsHome(user) {
		return err
	}

	// The lists of followers lead to the in-ends of edges from others to the user, except for
	// unlisted edges, which have rows of their own.
	for _, tag := range []projections.Tag{tagFollowersExplicit, tagFollowersImplicit, tagUnlistedInEdges} {
		prefix := projections.AppendKey(nil, tag, user)
		err := f.eraseEdgesByRows(prefix, followerDecoder(tag), func(follower string) error {
			return f.applyOneEnd(inEnd, follower, user, (*eventFold).eraseEnd)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseBoards deletes the rows of the user's own boards. A graph of out-ends has none.
func (f *eventFold) eraseBoards(user string) error {
	if f.outEndsOnly {
		return nil
	}
	return f.eraseRows(projections.AppendKey(nil, tagBoard, user), func(rest []byte) error {
		board, err := decodeID(rest)
		if err != nil {
			return err
		}
		row, err := readBoard(f.batch, f.key[:0], user, board)
		if err != nil {
			return err
		}
		return f.writeBoard(user, board, row, boardRow{})
	})
}
