package graph

import (
	"bytes"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// drainChunk is how many rows are read ahead between two places where the fold of a large event may be cut.
const eraseChunk = 256

// drain calls end with what follows the prefix in each key below it, until no row is left: end must remove the
// row. Between chunks the event may be cut (see [projections.Batch.Step]); run again, drain finds what is left.
func (t *txn) eraseRows(prefix []byte, end func(rest []byte) error) error {
	upper := projections.PrefixEnd(prefix)
	for {
		var keys [][]byte
		it := t.batch.Iter(prefix, upper)
		for len(keys) < eraseChunk && it.Next() {
			keys = append(keys, bytes.Clone(it.Key()))
		}
		if err := it.Close(); err != nil {
			return err
		}
		for _, key := range keys {
			if err := end(key[len(prefix):]); err != nil {
				return err
			}
			if _, still, err := t.batch.Get(key); err != nil || still {
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

// cutOf returns what reads the user at the other end from a row that leads to an in-end.
func userCutter(tag projections.Tag) func(rest []byte) (string, error) {
	if tag == tagReverse || tag == tagBoardReverse {
		return cutUser
	}
	return cutListUser
}

// userDeleted removes every row with the user's id, in steps: the ends of the user's edges at others, which are found in
// each partition that is held, and the rows at the user's own home. A tombstone against backfills stays, unless backfills are
// closed.
func (t *txn) eraseUser() error {
	user := t.ev.User
	if !t.outEndsOnly {
		if err := t.eraseInEnds(user); err != nil {
			return err
		}
	}
	from := func(rest []byte) error {
		follower, err := cutRegionUser(rest)
		if err != nil {
			return err
		}
		return t.applyOneEnd(outEnd, follower, user, (*txn).eraseEnd)
	}
	if err := t.eraseRows(projections.AppendKey(nil, tagRegion, user), from); err != nil {
		return err
	}
	if t.holdsHome(user) {
		err := t.eraseRows(projections.AppendKey(nil, tagEdge, user), func(rest []byte) error {
			peer, err := cutUser(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(outEnd, user, peer, (*txn).eraseEnd)
		})
		if err != nil {
			return err
		}
		if err := t.eraseBoards(user); err != nil {
			return err
		}
	}
	lives := storeHashKey(nil, tagBoardDeletion, t.batch.KeyedHash(user))
	err := t.eraseRows(lives, func(rest []byte) error {
		t.key = append(append(t.key[:0], lives...), rest...)
		t.batch.Delete(t.key)
		return nil
	})
	if err != nil || t.batch.BackfillsClosed() {
		return err
	}
	t.key = storeHashKey(t.key[:0], tagTombstone, t.batch.KeyedHash(user))
	t.batch.Set(t.key, nil)
	return nil
}

// eraseInEnds removes the in-ends of the user's edges: of those to others a seek in each partition, of those to the user
// by the lists that show them.
func (t *txn) eraseInEnds(user string) error {
	err := t.batch.EachPartition(func(partition uint8) error {
		prefix := events.AppendID(projections.AppendPartition(nil, partition, tagInEdge), user)
		return t.eraseRows(prefix, func(rest []byte) error {
			peer, err := cutUser(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(inEnd, user, peer, (*txn).eraseEnd)
		})
	})
	if err != nil || !t.holdsHome(user) {
		return err
	}
	for _, tag := range []projections.Tag{tagFollowers, tagFollowersImplicit, tagReverse} {
		err := t.eraseRows(projections.AppendKey(nil, tag, user), func(rest []byte) error {
			follower, err := userCutter(tag)(rest)
			if err != nil {
				return err
			}
			return t.applyOneEnd(inEnd, follower, user, (*txn).eraseEnd)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *txn) eraseBoards(user string) error {
	if t.outEndsOnly {
		return nil
	}
	return t.eraseRows(projections.AppendKey(nil, tagBoard, user), func(rest []byte) error {
		id, err := cutUser(rest)
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
