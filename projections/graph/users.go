package graph

import "github.com/skein-feed/skein/events"

// The methods below fold events about two users, at one end of an edge between them. They are
// called by [eventFold.applyOneEnd].

// followUser records that the follower follows the followee.
func (f *eventFold) followUser(change *edgeChange) error {
	facts := &change.after
	switch {
	case f.ev.Backfill:
		if f.order <= facts.followBackfill {
			return nil // only the latest backfilled follow counts
		}
		facts.followBackfill = f.order
	case facts.isBlockedLive():
		return nil // live follows are void while a live block stands
	case facts.followLive > facts.latestPossibleFollowEnd():
		return nil // a repeat: the first time stays
	default:
		facts.followLive = f.order
	}
	return f.writeEndWithBoards(change)
}

// unfollowUser records that the follower stops following the followee and all of the followee's
// boards.
func (f *eventFold) unfollowUser(change *edgeChange) error {
	f.recordUnfollow(&change.after)
	return f.writeEndWithBoards(change)
}

// recordUnfollow adds an unfollow, or a block, which counts as an unfollow, to the facts of an
// edge.
func (f *eventFold) recordUnfollow(facts *edge) {
	if f.ev.Backfill {
		facts.unfollowBackfill = max(facts.unfollowBackfill, f.order)
		return
	}
	facts.unfollowLive = f.order
	facts.followLive = 0
}

// beginOrEndBlock records that one user blocks the other, or ends the block. It is called for the
// edges in both directions, so the blocker is either the follower or the followee.
func (f *eventFold) beginOrEndBlock(change *edgeChange) error {
	block := &change.after.block
	if change.follower != f.ev.User {
		block = &change.after.blockedBy
	}

	switch {
	case f.ev.Kind == events.UserUnblocked:
		// An unblock counts as an unfollow only if it ends a backfilled block. That block may still
		// arrive, so no unfollow is recorded here. Instead, edge.latestLiveFollowEnd counts
		// block.liveEnd as an unfollow once there is a backfilled block.
		block.recordEnd(f.order, f.batch.BackfillsClosed())
	case !f.ev.Backfill && block.liveBegin != 0:
		return nil // a repeat: live follows were void since the block, so there is nothing to end
	default:
		block.recordBegin(f.order)
		f.recordUnfollow(&change.after)
	}

	if change.after == change.before {
		return nil
	}
	return f.writeEndWithBoards(change)
}

// muteOrUnmute records that the follower mutes the followee, or ends the mute. Board relations do
// not depend on mutes, so the board edges need not be read.
func (f *eventFold) muteOrUnmute(change *edgeChange) error {
	if f.ev.Kind == events.UserMuted {
		change.after.mute.recordMute(f.order, f.ev.Until)
	} else {
		change.after.mute.recordUnmute(f.order, f.batch.BackfillsClosed())
	}

	if change.after == change.before {
		return nil
	}
	return f.writeEnd(change)
}

// setFollowSettings records the settings of a follow. They are recorded even without a follow,
// because the follow may begin later.
func (f *eventFold) setFollowSettings(change *edgeChange) error {
	fact := settingsFact{order: f.order, settings: f.ev.Settings}
	if !change.after.settings.isBefore(fact) {
		return nil
	}
	if !f.ev.Backfill && change.after.isBlockedLive() {
		return nil // live settings are void while a live block stands
	}
	change.after.settings = fact
	return f.writeEnd(change)
}
