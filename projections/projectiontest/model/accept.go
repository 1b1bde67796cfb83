package model

import "github.com/skein-feed/skein/events"

// isAccepted reports whether a fact counts at all, given what stands before it in the log.
func isAccepted(before []events.Event, ev events.Event) bool {
	if !ev.Backfill {
		return true
	}
	for _, old := range before {
		// What is not above the highest offset so far of its source and kind was imported already.
		if old.Backfill && old.Source == ev.Source && old.Kind == ev.Kind && old.Offset >= ev.Offset {
			return false
		}
		// A closed import, or the end of all imports, lets no later backfill pass.
		if old.Kind == events.BackfillClosed && (old.Source == ev.Source || old.Source == "") {
			return false
		}
		// A deleted user is closed to backfills, as either party, for ever.
		if old.Kind == events.UserDeleted && (old.User == ev.User || old.User == ev.Peer) {
			return false
		}
	}
	return true
}

// isVoid reports whether a live fact is to be ignored, given what stands before it in the log. Only live facts decide,
// so that an import may arrive at any time.
func isVoid(before []events.Event, ev events.Event) bool {
	if ev.Backfill {
		return false
	}
	switch ev.Kind {
	case events.UserFollowed:
		// No live follow begins while a live block stands, in either direction.
		return hasLiveBlock(before, ev.User, ev.Peer) || hasLiveBlock(before, ev.Peer, ev.User)
	case events.BoardFollowed:
		return hasLiveBlock(before, ev.User, ev.Peer) || hasLiveBlock(before, ev.Peer, ev.User) ||
			isBoardDeleted(before, BoardID{ev.Peer, ev.Board})
	case events.BoardUnfollowed:
		// On a deleted board, follows, unfollows and pins are ignored. An unfollow during a block is not.
		return isBoardDeleted(before, BoardID{ev.Peer, ev.Board})
	case events.PinCreated, events.PinMoved:
		return isBoardDeleted(before, BoardID{ev.User, ev.Board})
	}
	return false
}

// hasLiveBlock reports whether, by live facts alone, blocker blocks the other: the latest of blocks, unblocks and
// deletions of either user is a block.
func hasLiveBlock(before []events.Event, blocker, other string) bool {
	last := events.Kind(0)
	for _, ev := range before {
		if ev.Backfill {
			continue
		}
		switch ev.Kind {
		case events.UserBlocked, events.UserUnblocked:
			if ev.User == blocker && ev.Peer == other {
				last = ev.Kind
			}
		case events.UserDeleted:
			if ev.User == blocker || ev.User == other {
				last = ev.Kind
			}
		}
	}
	return last == events.UserBlocked
}

// isBoardDeleted reports whether a board was deleted and not created again: the latest of its live creations, its
// deletions and the deletions of its owner is a deletion of the board.
func isBoardDeleted(before []events.Event, board BoardID) bool {
	last := events.Kind(0)
	for _, ev := range before {
		if ev.Backfill || ev.User != board.Owner {
			continue
		}
		switch ev.Kind {
		case events.BoardCreated, events.BoardDeleted:
			if ev.Board == board.Board {
				last = ev.Kind
			}
		case events.UserDeleted:
			last = ev.Kind
		}
	}
	return last == events.BoardDeleted
}

// hasDeletion reports whether one of some users is deleted in a part of the log.
func hasDeletion(log []loggedEvent, users ...string) bool {
	for _, ev := range log {
		for _, user := range users {
			if ev.Kind == events.UserDeleted && ev.User == user {
				return true
			}
		}
	}
	return false
}
