package graph

import "github.com/skein-feed/skein/events"

// userFollowed: A follows all boards of B, present and future.
func (t *txn) userFollowed(h *half) error {
	e := &h.after
	switch {
	case t.ev.Backfill:
		if t.at <= e.followBackfill {
			return nil
		}
		e.followBackfill = t.at
	case e.blockedLive() || e.followLive > e.renewedAfter():
		return nil // ignored while a live block stands; a repeat is not newer
	default:
		e.followLive = t.at
	}
	return t.rewrite(h)
}

// userUnfollowed: A follows neither B nor any board of B.
func (t *txn) userUnfollowed(h *half) error {
	t.unfollow(&h.after)
	return t.rewrite(h)
}

// unfollow records an unfollow, or a block, which counts as one.
func (t *txn) unfollow(e *edge) {
	if t.ev.Backfill {
		e.unfollowBackfill = max(e.unfollowBackfill, t.at)
		return
	}
	e.unfollowLive, e.followLive = t.at, 0
}

// block: one user blocks another, or no longer does. The edges between the two change in both directions.
func (t *txn) block(h *half) error {
	b := &h.after.block
	if h.a != t.ev.User {
		b = &h.after.blockedBy
	}
	switch {
	case t.ev.Kind == events.UserUnblocked:
		// No unfollow is recorded here. If a backfilled block is known or arrives later, edge.endedLive finds its end in block.off.
		b.end(t.at, t.b.BackfillsClosed())
	case !t.ev.Backfill && b.on != 0:
		return nil // a repeat: no live follow can have come since
	default:
		b.begin(t.at)
		t.unfollow(&h.after)
	}
	if h.after == h.before {
		return nil
	}
	return t.rewrite(h)
}

// mute: A hides B, or no longer does.
func (t *txn) mute(h *half) error {
	return t.stand(h, &h.after.mute, t.ev.Kind == events.UserMuted)
}

// hideRepins: A hides the re-pins of B, or no longer does.
func (t *txn) hideRepins(h *half) error {
	return t.stand(h, &h.after.repins, t.ev.Kind == events.RepinsHidden)
}

// stand begins or ends what A alone decides and B does not know of.
func (t *txn) stand(h *half, s *standing, begins bool) error {
	if begins {
		s.begin(t.at)
	} else {
		s.end(t.at, t.b.BackfillsClosed())
	}
	if h.after == h.before {
		return nil
	}
	return t.write(h)
}
