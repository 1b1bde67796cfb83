package histories

import (
	"fmt"

	"github.com/skein-feed/skein/events"
)

// feedWeights are the weights of histories with [Options.Feeds]: pins, follows of those who see
// them, and what gives items heat.
var feedWeights = []weight{
	{events.PinCreated, 26, true},
	{events.UserFollowed, 10, true},
	{events.BoardFollowed, 11, true},
	{events.FeedRead, 6, false},
	{events.PinMoved, 7, false},
	{events.PinDeleted, 5, false},
	{events.PinEdited, 6, false},
	{events.Played, 8, false},
	{events.Reacted, 8, false},
	{events.Unreacted, 5, false},
	{events.ItemScored, 2, false},
	{events.BoardDeleted, 5, false},
	{events.BoardCreated, 6, false},
	{events.UserUnfollowed, 4, false},
	{events.BoardUnfollowed, 6, false},
	{events.UserBlocked, 2, false},
	{events.UserUnblocked, 3, false},
	{events.UserMuted, 5, false},
	{events.UserUnmuted, 2, false},
	{events.FollowSettingsSet, 8, false},
	{events.UserDeleted, 1, false},
	{events.BackfillClosed, 1, false},
	{events.ItemHidden, 5, false},
	{events.ItemShown, 3, false},
}

// pinIDs has ids of every form. The first ones are drawn more often.
var pinIDs = [...]string{"p1", "8", "p2", "10", "6ba7b811-9dad-11d1-80b4-00c04fd430c8", "p3", "08", "p4"}

// itemIDs are items that the pins of several users show. Pins also show items with the same id as
// the pin.
var itemIDs = [...]string{"i", "9", "p1"}

// setFeedFields sets the fields of events about pins and items. It returns false for kinds that it
// does not know.
func (g generator) setFeedFields(d chooser, ev *events.Event) bool {
	switch ev.Kind {
	case events.UserFollowed, events.BoardFollowed:
		if d.choose(3, "whom") > 0 {
			return false
		}
		// One user has many followers.
		ev.User, ev.Peer = userIDs[1+d.choose(g.users-1, "follower")], userIDs[0]
		if ev.Kind == events.BoardFollowed {
			ev.Board = boardIDs[0]
		}
	case events.UserMuted:
		if g.users < 3 || d.choose(3, "whose mute") > 0 {
			return false
		}
		// A follower of the user who has many mutes the one whose pins that user repeats.
		ev.User, ev.Peer = userIDs[2+d.choose(g.users-2, "who mutes")], userIDs[1]
	case events.PinCreated:
		ev.Board = g.randomBoard(d)
		ev.User, ev.Pin = g.randomOwnedPin(d)
		ev.Item = ev.Pin
		if d.choose(2, "shares its item") == 1 {
			ev.Item = itemIDs[d.choose(len(itemIDs), "item")]
		}
		if d.choose(4, "re-pin") == 3 {
			ev.RepinUser, ev.RepinPin = g.randomUser(d), g.randomPin(d) // may be a pin of the same user
		}
		if d.choose(3, "attributes") == 2 {
			ev.Attributes = []byte{byte(d.choose(256, "attribute")), 0}
		}
	case events.PinMoved:
		ev.Board = g.randomBoard(d)
		ev.User, ev.Pin = g.randomOwnedPin(d)
	case events.PinDeleted:
		ev.User, ev.Pin = g.randomOwnedPin(d)
	case events.PinEdited:
		ev.User, ev.Pin = g.randomOwnedPin(d)
		if d.choose(4, "attributes") > 0 {
			ev.Attributes = []byte{byte(d.choose(256, "attribute"))}
		}
	case events.BoardCreated, events.BoardDeleted:
		if d.choose(3, "whose board") == 0 {
			ev.User, ev.Board = userIDs[0], boardIDs[0]
			return true
		}
		return false
	case events.Reacted, events.Unreacted:
		g.setReaction(d, ev)
		if d.choose(2, "whose reaction") == 0 {
			ev.User, ev.Item = userIDs[0], itemIDs[0]
			return true
		}
		ev.Item = g.randomItem(d)
	case events.Played, events.ItemHidden, events.ItemShown:
		ev.Item = g.randomItem(d)
	case events.ItemScored:
		ev.User = ""
		ev.Item = g.randomItem(d)
		// Scores below those of all items that are played, zero, among them, and above them.
		ev.Score = [...]int64{-5, 0, 1_700_000_000 * 65536, 1_700_000_100 * 65536}[d.choose(4, "score")]
	case events.FeedRead:
		// Times before all live events, about now, and in the future.
		ev.Read = [...]events.Micros{Start - 10, Start + 5, Start + 20, Start + 60, Start + 1_000_060, 1 << 53}[d.choose(6, "read")]
	default:
		return false
	}
	return true
}

// randomOwnedPin draws a user and a pin of this user. It often draws the same pin, so that several
// events are about it.
func (g generator) randomOwnedPin(d chooser) (owner, pin string) {
	if d.choose(4, "whose pin") == 0 {
		return userIDs[0], pinIDs[0]
	}
	return g.randomUser(d), g.randomPin(d)
}

// randomPin draws the id of a pin, the first ids more often.
func (generator) randomPin(d chooser) string {
	n := len(pinIDs)
	return pinIDs[min(d.choose(n, "pin"), d.choose(n, "pin"), d.choose(n, "pin"))]
}

// randomItem draws an item that many pins show, or one that the pins with the same id show.
func (g generator) randomItem(d chooser) string {
	if d.choose(3, "item of a pin") == 2 {
		return g.randomPin(d)
	}
	return itemIDs[min(d.choose(len(itemIDs), "item"), d.choose(len(itemIDs), "item"))]
}

// addFollowUps sometimes adds steps after one that creates or moves a pin.
func (g generator) addFollowUps(d chooser, s *step) {
	if s.event.Kind == events.PinCreated && s.event.Backfill && d.choose(2, "at the time of others") == 1 {
		s.event.Time = Start - 10
	}
	switch {
	case s.event.Kind == events.PinCreated && d.choose(30, "burst") == 29:
		g.addBurst(d, s)
	case s.event.Kind == events.PinCreated && !s.event.Backfill && d.choose(20, "second creation") == 19:
		g.addSecondCreation(d, s)
	case s.event.Kind == events.PinMoved && d.choose(8, "pin history") == 7:
		g.addPinHistory(d, s)
	}
}

// addBurst adds the creation of 19 to 39 further pins in the same envelope, by one or two users.
// All of them are live, or all of them are backfills of one import with the same time.
func (g generator) addBurst(d chooser, s *step) {
	users := []string{s.event.User, g.randomUser(d)}
	boards := [...]string{s.event.Board, s.event.Board, g.randomBoard(d)}
	first := d.choose(3, "first of the burst") * 10
	for i := range 19 + d.choose(21, "size of the burst") {
		more := step{event: s.event, sharesEnvelope: true, offset: 1}
		ev := &more.event
		ev.User = users[i%2]
		ev.Board = boards[i%3]
		ev.Pin = fmt.Sprint("b", first+i)
		ev.Item = ev.Pin
		if i%4 == 3 {
			ev.Item = itemIDs[i/4%len(itemIDs)]
		}
		if ev.Backfill {
			encode(ev)
		}
		s.followUps = append(s.followUps, more)
	}
}

// addSecondCreation creates the pin again. That changes nothing, until a backfill says that the pin
// was created before on a board that was deleted between the two live creations.
func (g generator) addSecondCreation(d chooser, s *step) {
	deletedBoard := boardIDs[0]
	if s.event.Board == deletedBoard {
		deletedBoard = boardIDs[1]
	}

	secondCreation := step{event: s.event, pause: 1}
	secondCreation.event.Item = g.randomItem(d)
	lateCreation := step{event: s.event, pause: 1}
	lateCreation.event.Board = deletedBoard
	g.makeBackfill(d, &lateCreation)
	deletion := step{event: events.Event{Kind: events.BoardDeleted, User: s.event.User, Board: deletedBoard}, pause: 1}
	if !g.without.Has(events.BoardDeleted) {
		s.followUps = append(s.followUps, deletion, secondCreation, lateCreation)
	}
}

// addPinHistory adds several events about a pin that is moved, on few boards that are deleted and
// created, with backfills between live events.
func (g generator) addPinHistory(d chooser, s *step) {
	for i := range 4 + d.choose(8, "length of the pin history") {
		more := step{sharesEnvelope: d.choose(4, "shares the envelope") == 3, pause: 1}
		ev := &more.event
		ev.User = s.event.User
		board := boardIDs[d.choose(len(boardIDs), "board")]
		switch what := d.choose(14, "pin history"); {
		case what < 6:
			ev.Kind = events.PinCreated
			ev.Pin = s.event.Pin
			ev.Board = board
			ev.Item = g.randomItem(d)
			if d.choose(2, "re-pin") == 1 {
				ev.RepinUser, ev.RepinPin = g.randomUser(d), g.randomPin(d)
			}
			if what > 2 {
				g.makeBackfill(d, &more)
			}
		case what < 8:
			ev.Kind = events.PinMoved
			ev.Pin = s.event.Pin
			ev.Board = board
		case what < 10:
			ev.Kind = events.BoardDeleted
			ev.Board = g.randomNamedBoard(d)
		case what < 11:
			ev.Kind = events.BoardCreated
			ev.Board = g.randomNamedBoard(d)
		case what < 13:
			ev.Kind = events.PinEdited
			ev.Pin = s.event.Pin
			ev.Attributes = []byte{byte(i)}
		default:
			ev.Kind = events.PinDeleted
			ev.Pin = s.event.Pin
		}
		if !g.without.Has(ev.Kind) {
			s.followUps = append(s.followUps, more)
		}
	}
}
