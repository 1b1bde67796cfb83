package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// drainChunk is how many rows are read ahead between two places where the fold of a large event may be cut.
const drainChunk = 256

// drain calls end with what follows the prefix in each key below it, until no row is left: end must remove the
// row. Between chunks the event may be cut (see [projections.Batch.Step]); run again, drain finds what is left.
func (t *txn) drain(prefix []byte, end func(rest []byte) error) error {
	upper := projections.PrefixEnd(prefix)
	for {
		var keys [][]byte
		it := t.b.Iter(prefix, upper)
		for len(keys) < drainChunk && it.Next() {
			keys = append(keys, append([]byte(nil), it.Key()...))
		}
		if err := it.Close(); err != nil {
			return err
		}
		for _, key := range keys {
			if err := end(key[len(prefix):]); err != nil {
				return err
			}
		}
		if len(keys) < drainChunk {
			return nil
		}
		if err := t.b.Step(); err != nil {
			return err
		}
	}
}

// cutListUser reads the user of a row of a newest-first list of users.
func cutListUser(rest []byte) (string, error) {
	_, rest, err := cutSince(rest)
	if err != nil {
		return "", err
	}
	id, _, err := events.CutID(rest)
	return id, err
}

// userDeleted removes every row with the user's id, in steps: the user's own edges, then the edges towards the
// user, then the boards. What stays is a tombstone against backfills, unless there can be none any more.
func (t *txn) userDeleted() error {
	user := t.ev.User
	err := t.drain(projections.AppendKey(nil, tagEdge, user), func(rest []byte) error {
		peer, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		return t.erasePair(user, peer)
	})
	if err != nil {
		return err
	}
	for _, tag := range []projections.Tag{tagFollowers, tagFollowersImplicit, tagReverse} {
		err := t.drain(projections.AppendKey(nil, tag, user), func(rest []byte) error {
			cut := cutListUser
			if tag == tagReverse {
				cut = func(rest []byte) (string, error) { id, _, err := events.CutID(rest); return id, err }
			}
			peer, err := cut(rest)
			if err != nil {
				return err
			}
			return t.erasePair(peer, user)
		})
		if err != nil {
			return err
		}
	}
	err = t.drain(projections.AppendKey(nil, tagBoard, user), func(rest []byte) error {
		id, _, err := events.CutID(rest)
		if err != nil {
			return err
		}
		b, err := readBoard(t.b, t.key[:0], user, id)
		if err != nil {
			return err
		}
		return t.writeBoard(user, id, b, board{})
	})
	if err != nil || t.b.BackfillsClosed() {
		return err
	}
	t.key = tombstoneKey(t.key[:0], user, t.b.KeyedHash(user))
	t.b.Set(t.key, nil)
	return nil
}

// erasePair removes the edge (a, b) with everything that stands on it. The work is bounded by the board edges of
// the pair.
func (t *txn) erasePair(a, b string) error {
	p, err := t.read(a, b)
	if err != nil {
		return err
	}
	if err := t.rederiveAll(p); err != nil {
		return err
	}
	for i := range p.changes {
		p.changes[i].new = relation{}
	}
	p.after = edge{boards: p.before.boards}
	if err := t.forgetBoardEdges(p); err != nil {
		return err
	}
	p.after = edge{}
	return t.write(p)
}
