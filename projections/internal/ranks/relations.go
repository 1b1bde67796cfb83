package ranks

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// between folds what one user says of another.
func (c *Ranks) between() error {
	p, err := c.readPair(c.ev.User, c.ev.Peer)
	if err != nil {
		return err
	}
	switch c.ev.Kind {
	case events.UserFollowed:
		return c.userFollowed(p)
	case events.UserUnfollowed:
		p.unfollowed = max(p.unfollowed, rankOf(c.ev))
		return c.updateEdges(p)
	}
	// A block is of both, and so is its end: each is unfollowed by the other.
	back, err := c.readPair(c.ev.Peer, c.ev.User)
	if err != nil {
		return err
	}
	if back.theirs != p.mine || back.mine != p.theirs {
		return projections.RowError("blocks of one pair differ", c.key)
	}
	unfollowed := c.block(p)
	back.theirs, back.theirsEnded = p.mine, p.mineEnded
	p.unfollowed = max(p.unfollowed, unfollowed)
	back.unfollowed = max(back.unfollowed, unfollowed)
	if err := c.updateEdges(p); err != nil {
		return err
	}
	return c.updateEdges(back)
}

// block begins or ends the block of a pair, and returns the rank of the unfollow that this is for both users; 0 means that it is none.
func (c *Ranks) block(p *pair) (unfollowed rank) {
	at := rankOf(c.ev)
	switch {
	case c.ev.Kind == events.UserBlocked && !c.ev.Backfill:
		p.mine, p.mineEnded = blockLive, 0
		return at
	case c.ev.Kind == events.UserBlocked && p.mine == blockNone:
		p.mine = blockImported
		return at
	case c.ev.Kind == events.UserBlocked:
		return max(at, p.mineEnded) // it may have ended already
	case p.mine == blockEnded || p.mine == blockNone && c.b.BackfillsClosed():
		return 0 // there is and will be nothing to end
	}
	if p.mine != blockNone {
		unfollowed = at
	}
	p.mine, p.mineEnded = blockEnded, at
	return unfollowed
}

func (c *Ranks) userFollowed(p *pair) error {
	if !c.ev.Backfill {
		if p.mine == blockLive || p.theirs == blockLive {
			return nil // void
		}
		if p.followed.live() && p.followed > max(p.unfollowed, p.renewed()) {
			return nil // a repeat of what holds by live facts is not newer
		}
	}
	p.followed = max(p.followed, rankOf(c.ev))
	return c.updateEdges(p)
}

// ofBoard folds what a user says of a board of another.
func (c *Ranks) ofBoard() error {
	ev := c.ev
	p, err := c.readPair(ev.User, ev.Peer)
	if err != nil {
		return err
	}
	if !ev.Backfill && ev.Kind == events.BoardFollowed && (p.mine == blockLive || p.theirs == blockLive) {
		return nil // void
	}
	state, err := c.mentioned(ev.Peer, ev.Board)
	if err != nil {
		return err
	}
	if !state.exists() || ev.Backfill && state == boardAgain {
		return nil // void, or undone by the deletion
	}
	old, err := c.readEdge(p, ev.Board)
	if err != nil {
		return err
	}
	now := rankOf(ev)
	switch {
	case now <= old, now <= p.unfollowed:
		return nil // a later fact is known
	case now.live() && old.live() && now.removes() == old.removes() && old > p.renewed() && (!old.removes() || old > p.followed):
		return nil // a repeat
	}
	if c.forgettable(p, now) {
		now = 0
	}
	if err := c.moveEdge(p, ev.Board, p.standing().edge(old), p.standing().edge(now)); err != nil {
		return err
	}
	c.writeEdge(p, ev.Board, old, now)
	return c.writePair(p)
}
