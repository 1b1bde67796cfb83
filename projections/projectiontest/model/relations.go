package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// stateSince is the rule that follows, follows of boards, blocks, reactions and hidden items have
// in common. A state holds if its last beginning is later than its last end. A live fact that
// repeats a state that holds does not make it newer, unless one of the renewals lies between the
// two.
func stateSince(begun, ended, renewals facts) (since events.Micros, holds bool) {
	if begun.last().rank <= ended.last().rank {
		return 0, false
	}
	// If there is no live end and the state holds by the backfills alone, it holds since the latest
	// backfilled beginning.
	history := begun.backfilled().last()
	if len(ended.live()) == 0 && history.rank > ended.backfilled().last().rank {
		return history.Time, true
	}
	// Otherwise it holds since the latest live beginning that was no repeat.
	return firstFacts(begun, union(ended, renewals)).last().Time, true
}

// firstFacts returns the live facts that begin a state and do not repeat it: each is the first one
// after one of the boundaries.
func firstFacts(begun, boundaries facts) facts {
	live := begun.live()
	return live.where(func(f *fact) bool {
		return live.after(boundaries.before(f.rank).last().rank).first().rank == f.rank
	})
}

// relations returns the facts about two users.
func (g *Graph) relations(a, b string) facts { return g.relationFacts[pairOf(a, b)] }

// unfollows returns the facts U of docs/semantics.md: the unfollows of b by a, and the blocks
// between the two and their ends, which count as unfollows.
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

// possibleEnds returns the unblocks between a and b that would end a block if a backfilled block
// arrived. These are the first unblock of one user by the other, and the first one after each live
// block, as long as backfills may still arrive.
func (g *Graph) possibleEnds(a, b string) facts {
	return g.relations(a, b).of(events.UserUnblocked).where(func(f *fact) bool {
		return g.blocksBefore(f).live().last().Kind != events.UserUnblocked && !g.allClosedBefore(f)
	})
}

// blocksBefore returns the blocks and unblocks before an unblock, by the same user of the same
// other user.
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

// deletions returns the facts D of docs/semantics.md: the deletions of a board.
func (g *Graph) deletions(board BoardID) facts { return g.boardFacts[board].of(events.BoardDeleted) }

// explicit returns since when a follows b explicitly, and whether it does: F > U.
func (g *Graph) explicit(a, b string) (events.Micros, bool) {
	if g.hasBlockBetween(a, b) {
		return 0, false
	}
	return stateSince(g.relations(a, b).of(events.UserFollowed).by(a), g.unfollows(a, b), g.possibleEnds(a, b))
}

// onBoard returns since when a follows the board itself, and whether it does: f > u, f > U, f > D.
func (g *Graph) onBoard(a string, board BoardID) (events.Micros, bool) {
	if g.hasBlockBetween(a, board.Owner) {
		return 0, false
	}
	own := g.relations(a, board.Owner).by(a).on(board.Board)
	ended := union(own.of(events.BoardUnfollowed), g.unfollows(a, board.Owner), g.deletions(board))
	return stateSince(own.of(events.BoardFollowed), ended, g.possibleEnds(a, board.Owner))
}

// excluded returns since when a excludes the board, and whether it does: u > f, u > U, u > F, u >
// D, and a follows the owner explicitly.
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
	// It holds since the latest live exclusion that was no repeat. If there is none, it holds since
	// the latest backfilled one.
	if live := firstFacts(u, union(ended, g.possibleEnds(a, board.Owner))); len(live) > 0 {
		return live.last().Time, true
	}
	return u.backfilled().last().Time, true
}

// newFollows returns the follows of b by a that may be F: the backfilled ones, and the live ones
// that do not repeat a follow that holds by live facts.
func (g *Graph) newFollows(a, b string) facts {
	follows := g.relations(a, b).of(events.UserFollowed).by(a)
	return union(follows.backfilled(), firstFacts(follows, union(g.unfollows(a, b), g.possibleEnds(a, b))))
}

// hasBlockBetween reports whether one of the two users blocks the other.
func (g *Graph) hasBlockBetween(a, b string) bool {
	_, ab := g.blocks(a, b)
	_, ba := g.blocks(b, a)
	return ab || ba
}

// blocks returns since when a blocks b, and whether it does: the latest of the blocks and unblocks
// is a block.
func (g *Graph) blocks(a, b string) (events.Micros, bool) {
	own := g.relations(a, b).by(a)
	return stateSince(own.of(events.UserBlocked), own.of(events.UserUnblocked), nil)
}

// mutes returns since when a mutes b, and whether it does: the latest of the mutes and unmutes is a
// mute that has not ended by itself.
func (g *Graph) mutes(a, b string) (since events.Micros, holds bool) {
	own := g.relations(a, b).by(a)
	mutes := own.of(events.UserMuted)
	unmutes := own.of(events.UserUnmuted)
	last := mutes.last()
	if last.rank <= unmutes.last().rank || endOfMute(last) <= g.now {
		return 0, false
	}

	// It holds since the first live mute after which it has never ended, neither by an unmute nor
	// by itself.
	live := mutes.live()
	history := mutes.backfilled().last()
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

	// If there is also a backfilled mute, and it has not ended before that live one, the mute holds
	// since the backfilled one.
	if !ended && history.rank > 0 && endOfMute(history) > first.Time {
		return history.Time, true
	}
	return first.Time, true
}

// muteUntil returns when the mute of b by a ends by itself. It returns 0 if there is no mute, or if
// it does not end by itself.
func (g *Graph) muteUntil(a, b string) events.Micros {
	if _, muted := g.mutes(a, b); !muted {
		return 0
	}
	return g.relations(a, b).by(a).of(events.UserMuted).last().Until
}

// settings returns the settings of the follow of b by a: the latest ones, if a follows b and no
// unfollow or block is later than the settings.
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

// With returns the users whom a follows with a setting. The user for whom the settings were set
// last comes first. Equal times are ordered by id.
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

// implicit returns since when a follows at least one board of b, and whether it does. It does not
// look at explicit follows.
func (g *Graph) implicit(a, b string) (since events.Micros, holds bool) {
	for _, board := range g.boards {
		if board.Owner != b {
			continue
		}
		// It holds since the earliest follow of one of these boards.
		if t, follows := g.onBoard(a, board); follows && (!holds || t < since) {
			since = t
			holds = true
		}
	}
	return since, holds
}

// boardState returns whether a board exists, since when, and its title.
func (g *Graph) boardState(board BoardID) (created events.Micros, title string, exists bool) {
	if board.Board == "" {
		return 0, "", true // the default board always exists
	}
	mentions := g.boardFacts[board].where(func(f *fact) bool { return f.Kind != events.BoardDeleted })
	creations := mentions.of(events.BoardCreated)
	if deletions := g.deletions(board); len(deletions) > 0 {
		// After a deletion, only a live creation makes the board exist again.
		creations = creations.live().after(deletions.last().rank)
		return creations.first().Time, creations.last().Title, len(creations) > 0
	}
	// The board was never deleted. It exists since the earliest backfilled mention or, if there is
	// none, since the first live one. Backfills come first in the order of facts, so this is the
	// first mention in either case.
	return mentions.first().Time, creations.last().Title, len(mentions) > 0
}

// User returns how a follower follows a user: explicitly, or otherwise implicitly through a board.
func (g *Graph) User(follower, user string) Follow {
	if since, follows := g.explicit(follower, user); follows {
		return Follow{Explicit, since}
	}
	if since, follows := g.implicit(follower, user); follows {
		return Follow{Implicit, since}
	}
	return Follow{}
}

// Board returns how a follower follows a board.
func (g *Graph) Board(follower, owner, board string) Follow {
	id := BoardID{owner, board}
	if _, _, exists := g.boardState(id); !exists || follower == owner {
		return Follow{}
	}
	explicit, follows := g.explicit(follower, owner)
	if since, on := g.onBoard(follower, id); on {
		if follows {
			since = max(since, explicit) // the later one of the two follows
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

// Relationship has all relations between a viewer and a user.
type Relationship struct {
	Following, FollowedBy       Follow
	Blocking, BlockedBy, Muting bool
	// MuteUntil is when the mute ends by itself, or 0.
	MuteUntil events.Micros
	Settings  events.FollowSettings
}

// Relationship returns all relations between a viewer and a user.
func (g *Graph) Relationship(viewer, user string) Relationship {
	r := Relationship{Following: g.User(viewer, user), FollowedBy: g.User(user, viewer)}
	_, r.Blocking = g.blocks(viewer, user)
	_, r.BlockedBy = g.blocks(user, viewer)
	_, r.Muting = g.mutes(viewer, user)
	r.MuteUntil = g.muteUntil(viewer, user)
	r.Settings = g.settings(viewer, user)
	return r
}
