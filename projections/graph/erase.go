package graph

import (
	"bytes"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// eraseChunk is the number of rows that are read ahead before they are erased. Between chunks a
// large event may be interrupted.
const eraseChunk = 256

// eraseRows calls eraseRow for each row below the prefix, until none is left. eraseRow gets the
// part of the key that follows the prefix and must delete the row. Between chunks the event may be
// interrupted (see [projections.Batch.Step]). Run again, eraseRows finds the rows that are left.
func (t *eventFold) eraseRows(prefix []byte, eraseRow func(rest []byte) error) error {
	upper := projections.PrefixEnd(prefix)
	for {
		// Nothing may be written while an iterator is open, so the keys are read first.
		var keys [][]byte
		it := t.batch.Iter(prefix, upper)
		for len(keys) < eraseChunk && it.Next() {
			keys = append(keys, bytes.Clone(it.Key()))
		}
		if err := it.Close(); err != nil {
			return err
		}

		for _, key := range keys {
			if err := eraseRow(key[len(prefix):]); err != nil {
				return err
			}
			// A row that stays would be met again for ever. It can only stay if it leads to an edge
			// that does not exist.
			_, stays, err := t.batch.Get(key)
			if err != nil || stays {
				return errors.Join(err, rowError("row that leads nowhere", key))
			}
		}

		if len(keys) < eraseChunk {
			return nil
		}
		if err := t.batch.Step(); err != nil {
			return err
		}
	}
}

// userCutter returns the function that reads the follower from the keys of a tag whose rows lead to
// in-ends.
func userCutter(tag projections.Tag) func(rest []byte) (string, error) {
	if tag == tagUnlistedInEdges || tag == tagUnlistedInBoardEdges {
		return decodeID
	}
	return decodeListUser
}

// eraseUser folds a user_deleted. In steps, it removes every row with the user's id: the ends of
// the user's edges at the homes of other users, as far as this store holds them, and the rows at
// the user's own home. A tombstone stays, so that later backfills about the user are void. It is
// not needed once all backfills are closed.
func (t *eventFold) eraseUser() error {
	user := t.ev.User

	if !t.outEndsOnly {
		if err := t.eraseInEnds(user); err != nil {
			return err
		}
	}

	// Out-ends of other users that point to the user are found by the user's region.
	err := t.eraseRows(projections.AppendKey(nil, tagRegion, user), func(rest []byte) error {
		follower, err := decodeRegionUser(rest)
		if err != nil {
			return err
		}
		return t.applyOneEnd(outEnd, follower, user, (*eventFold).eraseEnd)
	})
	if err != nil {
		return err
	}

	if t.holdsHome(user) {
		err := t.eraseRows(projections.AppendKey(nil, tagOutEdge, user), func(rest []byte) error {
			followee, err := decodeID(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(outEnd, user, followee, (*eventFold).eraseEnd)
		})
		if err != nil {
			return err
		}
		if err := t.eraseBoards(user); err != nil {
			return err
		}
	}

	// Every store has the rows of the user's deleted boards, and gets the tombstone.
	deletions := appendStoreWideKey(nil, tagBoardDeletion, t.batch.KeyedHash(user))
	err = t.eraseRows(deletions, func(rest []byte) error {
		t.key = append(append(t.key[:0], deletions...), rest...)
		t.batch.Delete(t.key)
		return nil
	})
	if err != nil || t.batch.BackfillsClosed() {
		return err
	}
	t.key = appendStoreWideKey(t.key[:0], tagTombstone, t.batch.KeyedHash(user))
	t.batch.Set(t.key, nil)
	return nil
}

// eraseInEnds removes the in-ends of the user's edges, in both directions.
func (t *eventFold) eraseInEnds(user string) error {
	// In-ends of edges from the user to others: a seek in each partition.
	err := t.batch.EachPartition(func(partition uint8) error {
		prefix := events.AppendID(projections.AppendPartition(nil, partition, tagInEdge), user)
		return t.eraseRows(prefix, func(rest []byte) error {
			followee, err := decodeID(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(inEnd, user, followee, (*eventFold).eraseEnd)
		})
	})
	if err != nil || !t.holdsHome(user) {
		return err
	}

	// In-ends of edges from others to the user: the lists that show them, and the rows that lead to
	// those that no list shows.
	for _, tag := range []projections.Tag{tagFollowersExplicit, tagFollowersImplicit, tagUnlistedInEdges} {
		err := t.eraseRows(projections.AppendKey(nil, tag, user), func(rest []byte) error {
			follower, err := userCutter(tag)(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(inEnd, follower, user, (*eventFold).eraseEnd)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseBoards removes the rows of the user's own boards. A graph of out-ends has none.
func (t *eventFold) eraseBoards(user string) error {
	if t.outEndsOnly {
		return nil
	}
	return t.eraseRows(projections.AppendKey(nil, tagBoard, user), func(rest []byte) error {
		id, err := decodeID(rest)
		if err != nil {
			return err
		}
		b, err := readBoard(t.batch, t.key[:0], user, id)
		if err != nil {
			return err
		}
		return t.writeBoard(user, id, b, board{})
	})
}
