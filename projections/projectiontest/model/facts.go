package model

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/skein-feed/skein/events"
)

// loggedEvent is an event of the log, and whether it counts.
type loggedEvent struct {
	events.Event
	// accepted is false only of a backfill that a repeat, the end of an import or a deletion of a user rules out.
	accepted bool
	// counts: it is accepted, and neither a block nor the deletion of a board makes it void.
	counts bool
}

// markCounted says what counts of a history, which what stands before it in the log decides.
func markCounted(history []events.Event) []loggedEvent {
	all := make([]loggedEvent, len(history))
	for i, ev := range history {
		before := history[:i]
		taken := isAccepted(before, ev)
		all[i] = loggedEvent{Event: ev, accepted: taken, counts: taken && !isVoid(before, ev)}
	}
	return all
}

// fact is an event that counts.
type fact struct {
	events.Event
	// rank is the index in the order of facts, from 1. The zero fact, "none", has rank 0: it is before everything.
	rank int
	// isRelationEnded: one of the two users was deleted later, and the relation with the user. Of a fact about one user,
	// such as a pin or a reaction: this user was.
	isRelationEnded bool
	// isBoardEnded: the owner of the board was deleted later, and the board with the owner.
	isBoardEnded bool
	// isRepinEnded: the owner of the pin that it repeats was deleted later. All deletions are later than history, whenever that arrives.
	isRepinEnded bool
	// isCleared: it is a play or serve that a clearing of its user's seen took away, or made void from the start.
	isCleared bool
}

// facts are some facts, in the order of facts.
type facts []*fact

// orderFacts strikes out what does not count and puts the rest into the order of facts.
func orderFacts(log []loggedEvent) facts {
	var all facts
	for i, ev := range log {
		if !ev.counts {
			continue
		}
		after := log[i+1:]
		board, _ := boardOf(ev.Event)
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

// compareFacts puts backfills before live facts, and backfills by (time, removals last, mutes that end later last, more settings last, larger
// encoded bytes last). Live facts stay as they are: in log order.
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

// endOfMute returns when a mute ends by itself. A mute without an end ends after all others.
func endOfMute(f *fact) events.Micros {
	if f.Kind == events.UserMuted && f.Until == 0 {
		return math.MaxInt64
	}
	return f.Until
}

// removalRank is 1 for the backfillable kinds that end something: unfollows, and blocks, which count as unfollows.
func removalRank(k events.Kind) int {
	switch k {
	case events.UserUnfollowed, events.BoardUnfollowed, events.UserBlocked:
		return 1
	}
	return 0
}

// pair names two users in one way.
type pair [2]string

func pairOf(a, b string) pair { return pair{min(a, b), max(a, b)} }

// boardOf returns the board that an event mentions or deletes.
func boardOf(ev events.Event) (BoardID, bool) {
	switch ev.Kind {
	case events.BoardFollowed, events.BoardUnfollowed:
		return BoardID{ev.Peer, ev.Board}, true
	case events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved:
		return BoardID{ev.User, ev.Board}, true
	}
	return BoardID{}, false
}

func (fs facts) where(keep func(*fact) bool) facts {
	var kept facts
	for _, f := range fs {
		if keep(f) {
			kept = append(kept, f)
		}
	}
	return kept
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

// first returns the earliest fact, or none.
func (fs facts) first() *fact {
	if len(fs) == 0 {
		return &fact{}
	}
	return fs[0]
}

// last returns the latest fact, or none.
func (fs facts) last() *fact {
	if len(fs) == 0 {
		return &fact{}
	}
	return fs[len(fs)-1]
}

// union merges lists into the order of facts.
func union(lists ...facts) facts {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(x, y *fact) int { return cmp.Compare(x.rank, y.rank) })
	return all
}
