package graph

import "github.com/skein-feed/skein/events"

// userFollowed: A follows all boards of B, present and future.
func (t *txn) followUser(h *edgeEnd) error {
	e := &h.after
	switch {
	case t.ev.Backfill:
		if t.order <= e.followBackfill {
			return nil
		}
		e.followBackfill = t.order
	case e.isBlockedLive() || e.followLive > e.latestPossibleLiveEnd():
		return nil // ignored while a live block stands; a repeat is not newer
	default:
		e.followLive = t.order
	}
	return t.writeWithBoards(h)
}

// userUnfollowed: A follows neither B nor any board of B.
func (t *txn) unfollowUser(h *edgeEnd) error {
	t.recordUnfollow(&h.after)
	return t.writeWithBoards(h)
}

// unfollow records an unfollow, or a block, which counts as one.
func (t *txn) recordUnfollow(e *edge) {
	if t.ev.Backfill {
		e.unfollowBackfill = max(e.unfollowBackfill, t.order)
		return
	}
	e.unfollowLive, e.followLive = t.order, 0
}

// block: one user blocks another, or no longer does. The edges between the two change in both directions.
func (t *txn) changeBlock(h *edgeEnd) error {
	b := &h.after.block
	if h.follower != t.ev.User {
		b = &h.after.blockedBy
	}
	switch {
	case t.ev.Kind == events.UserUnblocked:
		// No unfollow is recorded here. If a backfilled block is known or arrives later, edge.endedLive finds its end in block.off.
		b.end(t.order, t.batch.BackfillsClosed())
	case !t.ev.Backfill && b.liveBegin != 0:
		return nil // a repeat: no live follow can have come since
	default:
		b.begin(t.order)
		t.recordUnfollow(&h.after)
	}
	if h.after == h.before {
		return nil
	}
	return t.writeWithBoards(h)
}

// mute: A hides B, or no longer does.
func (t *txn) changeMute(h *edgeEnd) error {
	return t.changeToggle(h, &h.after.mute, t.ev.Kind == events.UserMuted)
}

// hideRepins: A hides the re-pins of B, or no longer does.
func (t *txn) changeHideRepins(h *edgeEnd) error {
	return t.changeToggle(h, &h.after.hideRepins, t.ev.Kind == events.RepinsHidden)
}

// stand begins or ends what A alone decides and B does not know of.
func (t *txn) changeToggle(h *edgeEnd, s *toggle, begins bool) error {
	if begins {
		s.begin(t.order)
	} else {
		s.end(t.order, t.batch.BackfillsClosed())
	}
	if h.after == h.before {
		return nil
	}
	return t.writeEnd(h)
}
