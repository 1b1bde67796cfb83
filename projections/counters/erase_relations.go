package counters

import "github.com/skein-feed/skein/projections"

// erased reports whether one of some users was deleted: no history of theirs counts any more.
func (c *Counters) erased(users ...string) (bool, error) {
	for _, user := range users {
		if user == "" {
			continue
		}
		c.key = tombstoneKey(c.key[:0], user, c.b.KeyedHash(user))
		if _, ok, err := c.b.Get(c.key); err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// eraseRelations ends all relations of and towards a user, then the boards of the user, in steps. What stays is a tombstone
// against backfills, unless there can be none any more.
func (c *Counters) eraseRelations() error {
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
		return errRow("counts of a deleted user", c.key)
	}
	c.key = tombstoneKey(c.key[:0], user, c.b.KeyedHash(user))
	if c.b.BackfillsClosed() {
		c.b.Delete(c.key)
	} else {
		c.b.Set(c.key, nil)
	}
	return nil
}

// eraseEdges ends what a user says of boards, and what others say of the boards of the user.
func (c *Counters) eraseEdges(user string) error {
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

// erasePairs ends what a user says of others and they of the user. No edge is left between them.
func (c *Counters) erasePairs(user string) error {
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

func (c *Counters) erasePair(from, to string) error {
	p, err := c.readPair(from, to)
	if err != nil {
		return err
	}
	if p.was == (pairRow{}) || p.edges != 0 {
		return errRow("pair without edges", c.key)
	}
	p.pairRow = pairRow{}
	return c.writePair(p)
}

func (c *Counters) eraseBoard(owner, board string) error {
	r, err := c.readBoard(owner, board)
	if err != nil {
		return err
	}
	if r.boardTally != (boardTally{}) {
		return errRow("board without edges has followers", c.key)
	}
	c.b.Delete(c.key)
	if r.state.exists() {
		return c.countUser(owner, userTally{userBoards: -1})
	}
	return nil
}
