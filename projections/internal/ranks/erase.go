package ranks

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

func (c *Ranks) tombstone(user string) []byte {
	hash := c.b.KeyedHash(user)
	return append(projections.AppendPrefix(nil, events.ShardOf(user), tagTombstone), hash[:]...)
}

// erased reports whether one of the users was deleted, so that their history no longer counts.
func (c *Ranks) erased(users ...string) (bool, error) {
	for _, user := range users {
		if user == "" {
			continue
		}
		if _, ok, err := c.b.Get(c.tombstone(user)); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// erase ends all relations of and towards a user, then the boards of the user, in steps, and leaves a tombstone against backfills.
func (c *Ranks) erase() error {
	user := c.ev.User
	if err := c.eraseEdges(user); err != nil {
		return err
	}
	if err := c.erasePairs(user); err != nil {
		return err
	}
	err := c.drain(projections.AppendKey(nil, tagBoardRelations, user), func(rest []byte) error {
		board, err := cutLast(rest)
		if err != nil {
			return err
		}
		return c.eraseBoard(user, board)
	})
	if err != nil {
		return err
	}
	c.key = projections.AppendKey(c.key[:0], tagUserRelations, user)
	if left, err := readUser(c.b, c.key); err != nil {
		return err
	} else if left != (userTally{}) {
		return projections.RowError("counts of a deleted user", c.key)
	}
	c.b.Set(c.tombstone(user), nil)
	return nil
}

// eraseEdges ends the user's relations to boards, and the relations of others to the user's boards.
func (c *Ranks) eraseEdges(user string) error {
	err := c.drain(projections.AppendKey(nil, tagEdge, user), func(rest []byte) error {
		owner, board, err := cutTwo(rest)
		if err != nil {
			return err
		}
		return c.endEdge(user, owner, board)
	})
	if err != nil {
		return err
	}
	return c.drain(projections.AppendKey(nil, tagBoardEdge, user), func(rest []byte) error {
		board, follower, err := cutTwo(rest)
		if err != nil {
			return err
		}
		return c.endEdge(follower, user, board)
	})
}

// erasePairs removes the pairs of a user, in both directions. Their edges must be gone.
func (c *Ranks) erasePairs(user string) error {
	err := c.drain(projections.AppendKey(nil, tagPair, user), func(rest []byte) error {
		other, err := cutLast(rest)
		if err != nil {
			return err
		}
		return c.erasePair(user, other)
	})
	if err != nil {
		return err
	}
	return c.drain(projections.AppendKey(nil, tagFollower, user), func(rest []byte) error {
		other, err := cutLast(rest)
		if err != nil {
			return err
		}
		return c.erasePair(other, user)
	})
}

func (c *Ranks) erasePair(from, to string) error {
	p, err := c.readPair(from, to)
	if err != nil {
		return err
	}
	if p.was == (pairRow{}) || p.edges != 0 {
		return projections.RowError("pair without edges", c.key)
	}
	p.pairRow = pairRow{}
	return c.writePair(p)
}

func (c *Ranks) eraseBoard(owner, board string) error {
	r, err := c.readBoard(owner, board)
	if err != nil {
		return err
	}
	if r.boardTally != (boardTally{}) {
		return projections.RowError("board without edges has followers", c.key)
	}
	c.b.Delete(c.key)
	if r.state.exists() {
		return c.countUser(owner, userTally{userBoards: -1})
	}
	return nil
}
