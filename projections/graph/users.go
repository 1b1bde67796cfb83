package graph

import "github.com/skein-feed/skein/events"

// userFollowed: A follows all boards of B, present and future.
func (t *txn) userFollowed() error {
	p, err := t.read(t.ev.User, t.ev.Peer)
	if err != nil {
		return err
	}
	e := &p.after
	if t.ev.Backfill {
		if t.at <= e.followBackfill {
			return nil
		}
		e.followBackfill = t.at
		// An exclusion that stood there without a follow may now hold.
		if err := t.rederiveAll(p); err != nil {
			return err
		}
		return t.write(p)
	}
	if e.blockedLive() || e.followLive != 0 {
		return nil // ignored while a block stands; a repeat is not newer
	}
	e.followLive = t.at
	if err := t.rederiveHeld(p); err != nil { // exclusions end
		return err
	}
	return t.write(p)
}

// userUnfollowed: A follows neither B nor any board of B.
func (t *txn) userUnfollowed() error {
	p, err := t.read(t.ev.User, t.ev.Peer)
	if err != nil {
		return err
	}
	t.unfollow(&p.after)
	if err := t.rederiveHeld(p); err != nil {
		return err
	}
	return t.write(p)
}

// unfollow records an unfollow, or a block, which counts as one.
func (t *txn) unfollow(e *edge) {
	if t.ev.Backfill {
		e.unfollowBackfill = max(e.unfollowBackfill, t.at)
		return
	}
	e.unfollowLive, e.followLive = t.at, 0
}

// block: A blocks B, or no longer does. Both edges of the two change.
func (t *txn) block() error {
	p, err := t.read(t.ev.User, t.ev.Peer)
	if err != nil {
		return err
	}
	q, err := t.read(t.ev.Peer, t.ev.User)
	if err != nil {
		return err
	}
	// A block can only end relations. The end of one brings back what a backfilled block had hidden, since the
	// live follows that came under it count.
	rederive := t.rederiveHeld
	if t.ev.Kind == events.UserBlocked {
		if !t.ev.Backfill && p.before.block.on != 0 {
			return nil // a repeat: no live follow can have come since
		}
		p.after.block.begin(t.at)
		t.unfollow(&p.after)
		t.unfollow(&q.after)
	} else {
		rederive = t.rederiveAll
		p.after.block.end(t.at)
	}
	q.after.blockedBy, q.after.blockedByLive = p.after.block.holds(), p.after.block.on != 0
	for _, edge := range []*pair{p, q} {
		if err := rederive(edge); err != nil {
			return err
		}
		if err := t.write(edge); err != nil {
			return err
		}
	}
	return nil
}

// mute: A hides B, or no longer does.
func (t *txn) mute() error {
	p, err := t.read(t.ev.User, t.ev.Peer)
	if err != nil {
		return err
	}
	if t.ev.Kind == events.UserMuted {
		p.after.mute.begin(t.at)
	} else {
		p.after.mute.end(t.at)
	}
	if p.after == p.before {
		return nil
	}
	return t.write(p)
}
