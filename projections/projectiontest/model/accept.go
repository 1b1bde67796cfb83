package model

import (
	"slices"

	"github.com/skein-feed/skein/events"
)

// isAccepted reports whether an event is accepted, given the events before it in the log. Live
// events always are.
func isAccepted(before []events.Event, ev events.Event) bool {
	if !ev.Backfill {
		return true
	}
	for i := range before {
		old := &before[i] // copying events would take most of the time of a test

		// An offset that is not above the highest one so far of its source and kind was imported
		// before.
		if old.Backfill && old.Source == ev.Source && old.Kind == ev.Kind && old.Offset >= ev.Offset {
			return false
		}
		// No backfill is accepted after the end of its source, or of all sources.
		if old.Kind == events.BackfillClosed && (old.Source == ev.Source || old.Source == "") {
			return false
		}
		// No backfill about a deleted user is accepted, for ever.
		if old.Kind == events.UserDeleted && (old.User == ev.User || old.User == ev.Peer) {
			return false
		}
	}
	return true
}

// isVoid reports whether a live event is ignored, given the events before it in the log. Only live
// events decide that, so the answer does not depend on when an import arrives.
func isVoid(before []events.Event, ev events.Event) bool {
	if ev.Backfill {
		return false
	}
	switch ev.Kind {
	case events.UserFollowed:
		// No live follow begins while there is a live block in either direction.
		return hasLiveBlock(before, ev.User, ev.Peer) || hasLiveBlock(before, ev.Peer, ev.User)
	case events.BoardFollowed:
		return hasLiveBlock(before, ev.User, ev.Peer) || hasLiveBlock(before, ev.Peer, ev.User) ||
			isBoardDeleted(before, BoardID{ev.Peer, ev.Board})
	case events.BoardUnfollowed:
		// On a deleted board, follows, unfollows and pins are ignored. An unfollow during a block
		// is not.
		return isBoardDeleted(before, BoardID{ev.Peer, ev.Board})
	case events.PinCreated, events.PinMoved:
		return isBoardDeleted(before, BoardID{ev.User, ev.Board})
	}
	return false
}

// hasLiveBlock reports whether blocker blocks the other user by live events alone: the latest of
// the blocks, unblocks and deletions of the two is a block.
func hasLiveBlock(before []events.Event, blocker, other string) bool {
	last := events.Kind(0)
	for i := range before {
		ev := &before[i]
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

// isBoardDeleted reports whether a board was deleted and not created again: the latest of its live
// creations, its deletions and the deletions of its owner is a deletion of the board.
func isBoardDeleted(before []events.Event, board BoardID) bool {
	last := events.Kind(0)
	for i := range before {
		ev := &before[i]
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

// hasDeletion reports whether a part of the log deletes one of the users.
func hasDeletion(log []loggedEvent, users ...string) bool {
	for i := range log {
		if ev := &log[i]; ev.Kind == events.UserDeleted && slices.Contains(users, ev.User) {
			return true
		}
	}
	return false
}
