package graph

import "github.com/skein-feed/skein/events"

// The methods below fold events about two users, at one end of an edge between them.

// followUser records that the follower follows the followee, with all boards, present and future.
func (t *eventFold) followUser(e *edgeEnd) error {
	facts := &e.after
	switch {
	case t.ev.Backfill:
		if t.order <= facts.followBackfill {
			return nil
		}
		facts.followBackfill = t.order
	case facts.isBlockedLive():
		return nil // live follows are ignored while a live block stands
	case facts.followLive > facts.latestPossibleLiveEnd():
		return nil // a repeat is not newer
	default:
		facts.followLive = t.order
	}
	return t.writeWithBoards(e)
}

// unfollowUser records that the follower follows neither the followee nor any of the followee's
// boards.
func (t *eventFold) unfollowUser(e *edgeEnd) error {
	t.recordUnfollow(&e.after)
	return t.writeWithBoards(e)
}

// recordUnfollow records an unfollow, or a block, which counts as one.
func (t *eventFold) recordUnfollow(facts *edge) {
	if t.ev.Backfill {
		facts.unfollowBackfill = max(facts.unfollowBackfill, t.order)
		return
	}
	facts.unfollowLive = t.order
	facts.followLive = 0
}

// changeBlock records that one user blocks the other, or ends the block. It is called for the edges
// in both directions.
func (t *eventFold) changeBlock(e *edgeEnd) error {
	block := &e.after.block
	if e.follower != t.ev.User {
		block = &e.after.blockedBy
	}

	switch {
	case t.ev.Kind == events.UserUnblocked:
		// An unblock counts as an unfollow only if it ends a backfilled block, which may still
		// arrive. So no unfollow is recorded here: edge.latestLiveEnd finds the unblock in liveEnd
		// once there is a backfilled block.
		block.end(t.order, t.batch.BackfillsClosed())
	case !t.ev.Backfill && block.liveBegin != 0:
		return nil // a repeat: no live follow has counted since
	default:
		block.begin(t.order)
		t.recordUnfollow(&e.after)
	}

	if e.after == e.before {
		return nil
	}
	return t.writeWithBoards(e)
}

// changeMute records that the follower mutes the followee, or ends the mute.
func (t *eventFold) changeMute(e *edgeEnd) error {
	if t.ev.Kind == events.UserMuted {
		e.after.mute.begin(t.order, t.ev.Until)
	} else {
		e.after.mute.end(t.order, t.batch.BackfillsClosed())
	}

	if e.after == e.before {
		return nil
	}
	return t.writeEnd(e)
}

// changeSettings records the settings of a follow. The follow may begin later: history arrives in
// any order.
func (t *eventFold) changeSettings(e *edgeEnd) error {
	set := settingsFact{order: t.order, settings: t.ev.Settings}
	if !e.after.settings.isBefore(set) {
		return nil
	}
	if !t.ev.Backfill && e.after.isBlockedLive() {
		return nil // the end of the block would end the settings, too
	}
	e.after.settings = set
	return t.writeEnd(e)
}
