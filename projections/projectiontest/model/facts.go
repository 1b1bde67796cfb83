package model

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/skein-feed/skein/events"
)

// loggedEvent is an event of the log, with the decision whether it counts.
type loggedEvent struct {
	events.Event
	// accepted is false for a backfill that is a repeat, that comes after the end of its import, or
	// that is about a deleted user.
	accepted bool
	// counts says that the event is accepted, and that neither a block nor the deletion of a board
	// makes it void.
	counts bool
}

// markCounted decides for each event of a history whether it counts. The events before it in the
// log decide that.
func markCounted(history []events.Event) []loggedEvent {
	all := make([]loggedEvent, len(history))
	for i, ev := range history {
		before := history[:i]
		accepted := isAccepted(before, ev)
		all[i] = loggedEvent{Event: ev, accepted: accepted, counts: accepted && !isVoid(before, ev)}
	}
	return all
}

// fact is an event that counts.
type fact struct {
	events.Event
	// rank is the place in the order of facts, from 1. The zero fact, which means "none", has the
	// rank 0, and so comes before all others.
	rank int
	// isRelationEnded says that one of the two users was deleted later, which ended the relation.
	// For a fact about one user, such as a pin or a reaction, it says that this user was deleted
	// later.
	isRelationEnded bool
	// isBoardEnded says that the owner of the board was deleted later, which deleted the board.
	isBoardEnded bool
	// isRepinEnded says that the owner of the repeated pin was deleted later. Deletions are live,
	// so each is later than every backfill, even if it arrived before.
	isRepinEnded bool
	// isCleared says that the fact is a play or serve that a seen_cleared of its user has removed.
	isCleared bool
}

// facts is a list of facts in the order of facts.
type facts []*fact

// orderFacts returns the events that count, in the order of facts.
func orderFacts(log []loggedEvent) facts {
	var all facts
	for i := range log {
		ev := &log[i]
		if !ev.counts {
			continue
		}
		after := log[i+1:]
		board, _ := boardOf(&ev.Event)
		all = append(all, &fact{
			Event:           ev.Event,
			isRelationEnded: hasDeletion(after, ev.User, ev.Peer),
			isBoardEnded:    hasDeletion(after, board.Owner),
			isRepinEnded:    hasDeletion(after, ev.RepinUser) || ev.Backfill && hasDeletion(log[:i], ev.RepinUser),
			isCleared:       isCleared(log, i),
		})
	}
	slices.SortStableFunc(all, compareFacts)
	for i, f := range all {
		f.rank = i + 1
	}
	return all
}

// compareFacts compares two facts for a stable sort. Backfills come before live facts, and are
// ordered by (time, removals last, mutes that end later last, more settings last, larger encoded
// bytes last). Live facts are equal, so they keep the order of the log.
func compareFacts(x, y *fact) int {
	switch {
	case x.Backfill && y.Backfill:
		return cmp.Or(
			cmp.Compare(x.Time, y.Time),
			cmp.Compare(removalRank(x.Kind), removalRank(y.Kind)),
			cmp.Compare(endOfMute(x), endOfMute(y)),
			cmp.Compare(x.Settings, y.Settings),
			bytes.Compare(x.Encoded, y.Encoded),
		)
	case x.Backfill:
		return -1
	case y.Backfill:
		return 1
	}
	return 0
}

// endOfMute returns when a mute ends by itself. A mute that does not end by itself ends after all
// others.
func endOfMute(f *fact) events.Micros {
	if f.Kind == events.UserMuted && f.Until == 0 {
		return math.MaxInt64
	}
	return f.Until
}

// removalRank returns 1 for kinds that end something and can be backfilled: unfollows, and blocks,
// which count as unfollows. For others it returns 0.
func removalRank(k events.Kind) int {
	switch k {
	case events.UserUnfollowed, events.BoardUnfollowed, events.UserBlocked:
		return 1
	}
	return 0
}

// pair is two users, the smaller id first, so that both orders of the two give the same pair.
type pair [2]string

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

// boardOf returns the board that an event mentions or deletes. It returns false if the event does
// neither.
func boardOf(ev *events.Event) (BoardID, bool) {
	switch ev.Kind {
	case events.BoardFollowed, events.BoardUnfollowed:
		return BoardID{ev.Peer, ev.Board}, true
	case events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved:
		return BoardID{ev.User, ev.Board}, true
	}
	return BoardID{}, false
}

// where returns the facts for which keep returns true.
func (fs facts) where(keep func(*fact) bool) facts {
	var selected facts
	for _, f := range fs {
		if keep(f) {
			selected = append(selected, f)
		}
	}
	return selected
}

func (fs facts) of(k events.Kind) facts { return fs.where(func(f *fact) bool { return f.Kind == k }) }

func (fs facts) by(user string) facts { return fs.where(func(f *fact) bool { return f.User == user }) }

func (fs facts) on(board string) facts {
	return fs.where(func(f *fact) bool { return f.Board == board })
}

func (fs facts) live() facts { return fs.where(func(f *fact) bool { return !f.Backfill }) }

func (fs facts) backfilled() facts { return fs.where(func(f *fact) bool { return f.Backfill }) }

func (fs facts) before(rank int) facts { return fs.where(func(f *fact) bool { return f.rank < rank }) }

func (fs facts) after(rank int) facts { return fs.where(func(f *fact) bool { return f.rank > rank }) }

// first returns the earliest fact, or the zero fact if there is none.
func (fs facts) first() *fact {
	if len(fs) == 0 {
		return &fact{}
	}
	return fs[0]
}

// last returns the latest fact, or the zero fact if there is none.
func (fs facts) last() *fact {
	if len(fs) == 0 {
		return &fact{}
	}
	return fs[len(fs)-1]
}

// union merges lists, and returns the result in the order of facts.
func union(lists ...facts) facts {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(x, y *fact) int { return cmp.Compare(x.rank, y.rank) })
	return all
}
