package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// stateSince is the rule that follows, board follows, blocks and mutes without an end have in common: a state holds if it was begun
// later than it was ended. A live fact that repeats what holds is not newer, unless one of the renewals lies between the two.
func stateSince(begun, ended, renewals facts) (since events.Micros, holds bool) {
	if begun.last().rank <= ended.last().rank {
		return 0, false
	}
	// No live end, and the backfills alone say that it holds: since the latest backfilled beginning.
	history := begun.backfilled().last()
	if len(ended.live()) == 0 && history.rank > ended.backfilled().last().rank {
		return history.Time, true
	}
	// Else since the latest live fact that began it and was no repeat.
	return firstFacts(begun, union(ended, renewals)).last().Time, true
}

// firstFacts returns the live facts that begin a state and do not repeat it: each is the first one after a boundary.
func firstFacts(begun, boundaries facts) facts {
	live := begun.live()
	return live.where(func(f *fact) bool {
		return live.after(boundaries.before(f.rank).last().rank).first().rank == f.rank
	})
}

// relations returns what happened between two users.
func (g *Graph) relations(a, b string) facts { return g.relationFacts[pairOf(a, b)] }

// unfollows is U: the unfollows of b by a, and every block by either and every end of one, which count as unfollows.
func (g *Graph) unfollows(a, b string) facts {
	return g.relations(a, b).where(func(f *fact) bool {
		switch f.Kind {
		case events.UserUnfollowed:
			return f.User == a
		case events.UserBlocked:
			return true
		case events.UserUnblocked:
			return g.blocksBefore(f).last().Kind == events.UserBlocked
		}
		return false
	})
}

// possibleEnds is N: the unblocks between a and b that would end a block if a backfilled one arrived. They are the first unblocks of
// one user by the other, or the first after a live block, as long as backfills may still arrive.
func (g *Graph) possibleEnds(a, b string) facts {
	return g.relations(a, b).of(events.UserUnblocked).where(func(f *fact) bool {
		return g.blocksBefore(f).live().last().Kind != events.UserUnblocked && !g.allClosedBefore(f)
	})
}

// blocksBefore returns the blocks and unblocks before an unblock, of the same user by the same user.
func (g *Graph) blocksBefore(unblock *fact) facts {
	return g.relations(unblock.User, unblock.Peer).by(unblock.User).before(unblock.rank).where(func(f *fact) bool {
		return f.Kind == events.UserBlocked || f.Kind == events.UserUnblocked
	})
}

// allClosedBefore reports whether all backfills were closed before a live fact.
func (g *Graph) allClosedBefore(f *fact) bool {
	return slices.ContainsFunc(g.log, func(ev loggedEvent) bool {
		return ev.Kind == events.BackfillClosed && ev.Source == "" && ev.Time < f.Time
	})
}

// deletions is D: the deletions of a board.
func (g *Graph) deletions(board BoardID) facts { return g.boardFacts[board].of(events.BoardDeleted) }

// explicit reports whether and since when a follows b explicitly: F > U.
func (g *Graph) explicit(a, b string) (events.Micros, bool) {
	if g.hasBlockBetween(a, b) {
		return 0, false
	}
	return stateSince(g.relations(a, b).of(events.UserFollowed).by(a), g.unfollows(a, b), g.possibleEnds(a, b))
}

// onBoard reports whether and since when a follows the board itself: f > u, f > U, f > D.
func (g *Graph) onBoard(a string, board BoardID) (events.Micros, bool) {
	if g.hasBlockBetween(a, board.Owner) {
		return 0, false
	}
	own := g.relations(a, board.Owner).by(a).on(board.Board)
	ended := union(own.of(events.BoardUnfollowed), g.unfollows(a, board.Owner), g.deletions(board))
	return stateSince(own.of(events.BoardFollowed), ended, g.possibleEnds(a, board.Owner))
}

// excluded reports whether and since when a excludes the board: u > f, u > U, u > F, u > D, and its owner is followed
// explicitly.
func (g *Graph) excluded(a string, board BoardID) (events.Micros, bool) {
	if _, follows := g.explicit(a, board.Owner); !follows {
		return 0, false
	}
	own := g.relations(a, board.Owner).by(a).on(board.Board)
	u := own.of(events.BoardUnfollowed)
	ended := union(own.of(events.BoardFollowed), g.newFollows(a, board.Owner), g.unfollows(a, board.Owner),
		g.deletions(board))
	if u.last().rank <= ended.last().rank {
		return 0, false
	}
	// Since the latest live one that was no repeat; without one, the latest backfilled.
	if live := firstFacts(u, union(ended, g.possibleEnds(a, board.Owner))); len(live) > 0 {
		return live.last().Time, true
	}
	return u.backfilled().last().Time, true
}

// newFollows is the follows of b by a that may be F: the backfilled ones, and the live ones that do not repeat what holds by live facts.
func (g *Graph) newFollows(a, b string) facts {
	follows := g.relations(a, b).of(events.UserFollowed).by(a)
	return union(follows.backfilled(), firstFacts(follows, union(g.unfollows(a, b), g.possibleEnds(a, b))))
}

// hasBlockBetween reports whether a block, by live facts or backfills, stands between two users in either direction.
func (g *Graph) hasBlockBetween(a, b string) bool {
	_, ab := g.blocks(a, b)
	_, ba := g.blocks(b, a)
	return ab || ba
}

// blocks reports whether and since when a blocks b: the latest block fact is a block.
func (g *Graph) blocks(a, b string) (events.Micros, bool) {
	own := g.relations(a, b).by(a)
	return stateSince(own.of(events.UserBlocked), own.of(events.UserUnblocked), nil)
}

// mutes reports whether and since when a mutes b: the latest fact is a mute that has not ended.
func (g *Graph) mutes(a, b string) (since events.Micros, holds bool) {
	own := g.relations(a, b).by(a)
	mutes, unmutes := own.of(events.UserMuted), own.of(events.UserUnmuted)
	last := mutes.last()
	if last.rank <= unmutes.last().rank || endOfMute(last) <= g.now {
		return 0, false
	}

	// It holds since the first live mute after which it was never ended, neither by an unmute nor by itself.
	live, history := mutes.live(), mutes.backfilled().last()
	if len(live) == 0 {
		return history.Time, true
	}
	first := live.last()
	ended := len(unmutes) > 0
	for _, earlier := range slices.Backward(live.after(unmutes.last().rank)) {
		if endOfMute(earlier) <= first.Time {
			ended = true
			break
		}
		first = earlier
	}

	// If history says so, too, and nothing has ended it since, it holds since then.
	if !ended && history.rank > 0 && endOfMute(history) > first.Time {
		return history.Time, true
	}
	return first.Time, true
}

// muteUntil returns when the mute of b by a ends by itself, and 0 if there is none, or it does not end.
func (g *Graph) muteUntil(a, b string) events.Micros {
	if _, muted := g.mutes(a, b); !muted {
		return 0
	}
	return g.relations(a, b).by(a).of(events.UserMuted).last().Until
}

// settings returns the settings of the follow of b by a: the latest ones, if no unfollow and no block is later, and a follows b.
func (g *Graph) settings(a, b string) events.FollowSettings {
	set := g.relations(a, b).by(a).of(events.FollowSettingsSet).last()
	if set.rank <= g.unfollows(a, b).last().rank || g.User(a, b).Kind == None {
		return 0
	}
	return set.Settings
}

// hidesRepins reports whether a hides the re-pins of b.
func (g *Graph) hidesRepins(a, b string) bool {
	return g.settings(a, b).Has(events.SettingHideRepins)
}

// With lists the users whom a follows with a setting, as a follows them: the settings that were set last first, equal times by id.
func (g *Graph) With(a string, setting events.FollowSettings) []Entry {
	var list []Entry
	set := map[string]events.Micros{}
	for _, b := range g.users {
		if f := g.User(a, b); g.settings(a, b).Has(setting) {
			set[b] = g.relations(a, b).by(a).of(events.FollowSettingsSet).last().Time
			list = append(list, Entry{User: b, Kind: f.Kind, Since: f.Since, Settings: g.settings(a, b)})
		}
	}
	slices.SortFunc(list, func(x, y Entry) int {
		return cmp.Or(cmp.Compare(set[y.User], set[x.User]), events.CompareIDs(x.User, y.User))
	})
	return list
}

// implicit reports whether and since when a follows at least one board of b, whatever else.
func (g *Graph) implicit(a, b string) (since events.Micros, holds bool) {
	for _, board := range g.boards {
		if board.Owner != b {
			continue
		}
		// Since the earliest among those boards.
		if t, follows := g.onBoard(a, board); follows && (!holds || t < since) {
			since, holds = t, true
		}
	}
	return since, holds
}

// boardState reports whether a board exists, since when, and its title.
func (g *Graph) boardState(board BoardID) (created events.Micros, title string, exists bool) {
	if board.Board == "" {
		return 0, "", true // the default board always exists
	}
	mentions := g.boardFacts[board].where(func(f *fact) bool { return f.Kind != events.BoardDeleted })
	creations := mentions.of(events.BoardCreated)
	if deletions := g.deletions(board); len(deletions) > 0 {
		// After a deletion, only a live creation begins a new life. It starts empty.
		creations = creations.live().after(deletions.last().rank)
		return creations.first().Time, creations.last().Title, len(creations) > 0
	}
	// Never deleted: since the earliest backfilled mention, else since the first live one. As backfills come first
	// in the order of facts, both are the first mention.
	return mentions.first().Time, creations.last().Title, len(mentions) > 0
}

// User reports how a follower follows a user: explicitly, or else implicitly through a board.
func (g *Graph) User(follower, user string) Follow {
	if since, follows := g.explicit(follower, user); follows {
		return Follow{Explicit, since}
	}
	if since, follows := g.implicit(follower, user); follows {
		return Follow{Implicit, since}
	}
	return Follow{}
}

// Board reports how a follower follows a board.
func (g *Graph) Board(follower, owner, board string) Follow {
	id := BoardID{owner, board}
	if _, _, exists := g.boardState(id); !exists || follower == owner {
		return Follow{}
	}
	explicit, follows := g.explicit(follower, owner)
	if since, on := g.onBoard(follower, id); on {
		if follows {
			since = max(since, explicit) // the later, if both
		}
		return Follow{Board, since}
	}
	if since, excluded := g.excluded(follower, id); excluded {
		return Follow{Excluded, since}
	}
	if follows {
		return Follow{Explicit, explicit}
	}
	return Follow{}
}

// Relationship is everything between a viewer and a user.
type Relationship struct {
	Following, FollowedBy       Follow
	Blocking, BlockedBy, Muting bool
	// MuteUntil is when the mute ends by itself.
	MuteUntil events.Micros
	Settings  events.FollowSettings
}

// Relationship reports everything between a viewer and a user.
func (g *Graph) Relationship(viewer, user string) Relationship {
	r := Relationship{Following: g.User(viewer, user), FollowedBy: g.User(user, viewer)}
	_, r.Blocking = g.blocks(viewer, user)
	_, r.BlockedBy = g.blocks(user, viewer)
	_, r.Muting = g.mutes(viewer, user)
	r.MuteUntil, r.Settings = g.muteUntil(viewer, user), g.settings(viewer, user)
	return r
}
