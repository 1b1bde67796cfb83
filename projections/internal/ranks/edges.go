package ranks

import (
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// An edge is the latest fact of a user about a board, a follow or an unfollow. Earlier facts about the board never count again. The
// effect of an edge depends on the facts between the user and the owner: a follow holds above one rank, and an unfollow is an exclusion
// above another (see [standing]). So the edges of a pair are sorted in the order of facts, follows apart from unfollows. When one of
// these two ranks moves, exactly the edges between its old and its new value change. Edges below the unfollow of the owner are removed.

// readEdge returns the rank of the latest fact about a board; 0 means that there is none.
func (c *Ranks) readEdge(p *pair, board string) (rank, error) {
	c.key = projections.AppendKey(c.key[:0], tagEdge, p.from, p.to, board)
	row, ok, err := c.b.Get(c.key)
	if err != nil || !ok {
		return 0, err
	}
	at, err := decodeEdge(row)
	if err == nil && at <= p.was.unfollowed {
		err = projections.RowError("edge that was ended", row)
	}
	return at, err
}

func decodeEdge(row []byte) (rank, error) {
	at, rest, err := cutRank(row)
	if err != nil || len(rest) != 0 {
		return 0, projections.RowError("edge", row)
	}
	return at, nil
}

// writeEdge replaces the rank old of the latest fact about a board with now; 0 means that there is none.
func (c *Ranks) writeEdge(p *pair, board string, old, now rank) {
	if old != 0 {
		c.key = rankKey(c.key[:0], p.from, p.to, old, board)
		c.b.Delete(c.key)
	}
	if now != 0 {
		c.key = rankKey(c.key[:0], p.from, p.to, now, board)
		c.b.Set(c.key, nil)
	}
	c.key = projections.AppendKey(c.key[:0], tagEdge, p.from, p.to, board)
	if now != 0 {
		c.value = binary.BigEndian.AppendUint64(c.value[:0], uint64(now))
		c.b.Set(c.key, c.value)
	} else {
		c.b.Delete(c.key)
	}
	c.key = projections.AppendKey(c.key[:0], tagBoardEdge, p.to, board, p.from)
	switch {
	case old == 0 && now != 0:
		p.edges++
		c.b.Set(c.key, nil)
	case old != 0 && now == 0:
		p.edges--
		c.b.Delete(c.key)
	}
}

// moveEdge counts the change of an edge. The counts of the board change at once, those of the users when the pair is written.
func (c *Ranks) moveEdge(p *pair, board string, was, is edge) error {
	if was == is {
		return nil
	}
	var d boardTally
	for _, s := range []struct {
		edge  edge
		delta int64
	}{{was, -1}, {is, 1}} {
		if s.edge.follows {
			d[boardFollowers] += s.delta
		}
		if s.edge.only {
			d[boardOnly] += s.delta
		}
		if s.edge.excludes {
			d[boardExcluders] += s.delta
		}
	}
	p.follows += d[boardFollowers]
	p.tally[userFollowedBoards] += d[boardFollowers]
	p.tally[userExcludedBoards] += d[boardExcluders]
	return c.countBoard(p.to, board, d)
}

// forgettable reports whether an unfollow of a board has no effect and, since backfills are closed, never will have one.
func (c *Ranks) forgettable(p *pair, at rank) bool {
	return c.b.BackfillsClosed() && at.removes() && (p.followed <= p.unfollowed || at <= p.followed)
}

// updateEdges changes the edges of a pair as its new thresholds demand, then writes the pair.
func (c *Ranks) updateEdges(p *pair) error {
	was, is := p.was.standing(), p.standing()
	if was == is {
		return c.writePair(p)
	}
	// An unfollow of the owner ends all earlier edges for good.
	for _, tag := range []projections.Tag{tagFollowed, tagUnfollowed} {
		if err := c.sweep(p, tag, was.unfollowed, is.unfollowed); err != nil {
			return err
		}
	}
	from, to := min(was.follows(), is.follows()), max(was.follows(), is.follows())
	if was.explicit() != is.explicit() {
		to = lastRank // whether a board's follower follows only the board changes for all edges
	}
	// Edges below the unfollow were removed above.
	if err := c.sweep(p, tagFollowed, max(from, is.unfollowed), to); err != nil {
		return err
	}
	from, to = min(was.excludes(), is.excludes()), max(was.excludes(), is.excludes())
	if err := c.sweep(p, tagUnfollowed, max(from, is.unfollowed), to); err != nil {
		return err
	}
	return c.writePair(p)
}

// sweep changes the edges of a pair with above < rank <= to.
func (c *Ranks) sweep(p *pair, tag projections.Tag, above, to rank) error {
	if above >= to || p.edges == 0 {
		return nil
	}
	prefix := projections.AppendKey(nil, tag, p.from, p.to)
	lower := binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(above+1))
	upper := projections.PrefixEnd(prefix)
	if to != lastRank {
		upper = binary.BigEndian.AppendUint64(slices.Clip(prefix), uint64(to+1))
	}
	was, is := p.was.standing(), p.standing()
	for {
		keys, err := c.keys(lower, upper, drainChunk)
		if err != nil {
			return err
		}
		for _, key := range keys {
			at, board, err := cutRanked(key[len(prefix):])
			if err == nil && at.removes() != (tag == tagUnfollowed) {
				err = projections.RowError("edge in the wrong order", key)
			}
			if err != nil {
				return err
			}
			if err := c.moveEdge(p, board, was.edge(at), is.edge(at)); err != nil {
				return err
			}
			if at <= is.unfollowed || c.forgettable(p, at) {
				c.writeEdge(p, board, at, 0)
			}
		}
		if len(keys) < drainChunk {
			return nil
		}
		lower = keyAfter(keys[len(keys)-1])
	}
}

// cutRanked reads the rest of the key of a ranked edge, after the pair.
func cutRanked(rest []byte) (at rank, board string, err error) {
	at, after, err := cutRank(rest)
	if err != nil {
		return 0, "", err
	}
	board, after, err = events.CutID(after)
	if err != nil || len(after) != 0 {
		return 0, "", projections.RowError("edge key", rest)
	}
	return at, board, nil
}

// endEdge ends the relation between a user and a board.
func (c *Ranks) endEdge(from, to, board string) error {
	p, err := c.readPair(from, to)
	if err != nil {
		return err
	}
	at, err := c.readEdge(p, board)
	if err != nil {
		return err
	}
	if at == 0 {
		return projections.RowError("no edge of", projections.AppendKey(nil, tagEdge, from, to, board))
	}
	if err := c.moveEdge(p, board, p.standing().edge(at), edge{}); err != nil {
		return err
	}
	c.writeEdge(p, board, at, 0)
	return c.writePair(p)
}
