package model

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Notification is what one user did to a pin of another: a reaction, or a re-pin.
type Notification struct {
	// Recipient and Pin name the pin, and Actor is the user who reacted to it or re-pinned it.
	Recipient, Pin, Actor string
	// Kind is Reacted or PinCreated.
	Kind events.Kind
	// Item is the item of the reaction, or the item that the re-pin shows.
	Item string
	// Reaction is the kind of the reaction, and Repin the actor's pin. Only one of them is used.
	Reaction, Repin string
	Since           events.Micros
}

// notificationKey names a notification. The item of a re-pin is not part of the name, because the
// end of a pin does not name it.
type notificationKey struct {
	recipient, pin, actor string
	kind                  events.Kind
	item, reaction, repin string
}

// notificationOf returns the notification that an event begins or ends. It returns false for an
// event that notifies nobody.
func notificationOf(ev *events.Event) (key notificationKey, ok bool) {
	if ev.RepinUser == "" || ev.RepinUser == ev.User {
		return key, false
	}
	key = notificationKey{recipient: ev.RepinUser, pin: ev.RepinPin, actor: ev.User}
	switch ev.Kind {
	case events.Reacted, events.Unreacted:
		key.kind = events.Reacted
		key.item = ev.Item
		key.reaction = ev.Reaction
		return key, !events.IsPrivateReaction(ev.Reaction)
	case events.PinCreated, events.PinDeleted:
		key.kind = events.PinCreated
		key.repin = ev.Pin
		return key, true
	}
	return key, false
}

// NotificationRows lists the notifications of a user that are kept: those whose facts hold, of each
// kind newest first, equal times by pin, actor, item and reaction or re-pin. Whenever an event
// leaves more than keep and a quarter of a kind, the oldest are forgotten until keep are left, with
// everything that is known about them. Here alone the order of arrival decides.
func (g *Graph) NotificationRows(user string, keep int) []Notification {
	known := map[notificationKey][]events.Event{} // in the order of arrival
	for i := range g.log {
		ev := &g.log[i]
		if !ev.accepted {
			continue
		}

		if ev.Kind == events.UserDeleted {
			for key := range known {
				if ev.User == user || key.actor == ev.User {
					delete(known, key)
				}
			}
			continue
		}

		key, ok := notificationOf(&ev.Event)
		if !ok || key.recipient != user || ev.Backfill && hasDeletion(g.log[:i], user) {
			continue
		}

		known[key] = append(known[key], ev.Event)
		if rows := holding(known, key.kind); len(rows) > keep+keep/4 {
			for _, row := range rows[keep:] {
				delete(known, row.key())
			}
		}
	}
	return append(holding(known, events.Reacted), holding(known, events.PinCreated)...)
}

func (n *Notification) key() notificationKey {
	key := notificationKey{recipient: n.Recipient, pin: n.Pin, actor: n.Actor, kind: n.Kind, reaction: n.Reaction, repin: n.Repin}
	if n.Kind == events.Reacted {
		key.item = n.Item
	}
	return key
}

// holding lists the notifications of a kind whose facts hold, newest first.
func holding(known map[notificationKey][]events.Event, kind events.Kind) (list []Notification) {
	for key, facts := range known {
		if key.kind != kind {
			continue
		}
		if begin := beginOf(facts); begin != nil {
			list = append(list, Notification{
				Recipient: key.recipient, Pin: key.pin, Actor: key.actor, Kind: kind, Item: begin.Item,
				Reaction: key.reaction, Repin: key.repin, Since: begin.Time,
			})
		}
	}
	slices.SortFunc(list, func(x, y Notification) int {
		return cmp.Or(
			cmp.Compare(y.Since, x.Since),
			events.CompareIDs(x.Pin, y.Pin),
			events.CompareIDs(x.Actor, y.Actor),
			itemsOfReactions(x, y),
			cmp.Compare(x.Reaction, y.Reaction),
			events.CompareIDs(x.Repin, y.Repin),
		)
	})
	return list
}

// itemsOfReactions compares the items of two reactions. The items of re-pins do not order them.
func itemsOfReactions(x, y Notification) int {
	if x.Kind != events.Reacted {
		return 0
	}
	return events.CompareIDs(x.Item, y.Item)
}

// beginOf returns the event since which a fact holds, or nil if it does not hold. facts are the
// events about it, in the order of arrival. A live end outlasts all backfills. Without one, the
// latest backfill counts. Otherwise the first live event after the last live end counts.
func beginOf(facts []events.Event) (begin *events.Event) {
	var backfilled, live *events.Event
	ended := false
	for i := range facts {
		ev := &facts[i]
		switch {
		case ev.Kind == events.Unreacted || ev.Kind == events.PinDeleted:
			live = nil
			ended = true
		case ev.Backfill:
			if backfilled == nil || compareBegins(ev, backfilled) > 0 {
				backfilled = ev
			}
		case live == nil:
			live = ev
		}
	}
	if backfilled != nil && !ended {
		return backfilled
	}
	return live
}

// compareBegins compares two backfills that begin the same fact. At equal times the one with the
// larger encoded bytes is later, which leave out what the fact does not have: the board and the
// attributes of a re-pin.
func compareBegins(x, y *events.Event) int {
	encode := func(ev *events.Event) []byte {
		begin := *ev
		begin.Board = ""
		begin.Attributes = nil
		return begin.Canonical()
	}
	return cmp.Or(cmp.Compare(x.Time, y.Time), bytes.Compare(encode(x), encode(y)))
}

// NotificationMarkers are the times up to which a user has seen and read notifications. 0 means
// never.
type NotificationMarkers struct {
	Seen, Read events.Micros
	// Groups has the times of the groups that were read, of the 200 that were marked last, by group
	// id.
	Groups map[string]events.Micros
}

// Markers returns the markers of a user: the latest times that were said since the user was last
// deleted, none of them after the event that said so.
func (g *Graph) Markers(user string) NotificationMarkers {
	m := NotificationMarkers{Groups: map[string]events.Micros{}}
	var lastMarked []string // the groups, the one that was marked last at the end
	for _, ev := range g.log {
		at := min(ev.Read, ev.Time)
		switch {
		case ev.User != user:
		case ev.Kind == events.UserDeleted:
			m, lastMarked = NotificationMarkers{Groups: map[string]events.Micros{}}, nil
		case ev.Kind == events.NotificationsSeen:
			m.Seen = max(m.Seen, at)
		case ev.Kind == events.NotificationsRead && ev.Group == "":
			m.Read = max(m.Read, at)
		case ev.Kind == events.NotificationsRead && at > m.Groups[ev.Group]:
			m.Groups[ev.Group] = at
			lastMarked = append(slices.DeleteFunc(lastMarked, func(g string) bool { return g == ev.Group }), ev.Group)
			if len(lastMarked) > 200 {
				delete(m.Groups, lastMarked[0])
				lastMarked = lastMarked[1:]
			}
		}
	}
	return m
}

// NotificationGroup is the notifications of one kind, about one pin, of one day in UTC.
type NotificationGroup struct {
	// Kind is UserFollowed, Reacted or PinCreated.
	Kind events.Kind
	// Pin and Item are the recipient's pin and what it shows. They are empty for UserFollowed.
	Pin, Item string
	// Day is the number of days since 1970.
	Day int64
	// Actors are those who did it, each once, newest first.
	Actors []string
	Newest events.Micros
}

// Notifications lists the groups of a user's notifications, newest first, equal times by kind
// (follows, reactions, re-pins) and pin: of the newest keep of each kind those whose pin lives and
// shows the item, whose re-pin lives and names the pin, and whose actor the user neither mutes nor
// is separated from by a block.
func (g *Graph) Notifications(user string, keep int) (groups []NotificationGroup) {
	add := func(kind events.Kind, pin, item, actor string, since events.Micros) {
		if _, muted := g.mutes(user, actor); muted || g.hasBlockBetween(user, actor) {
			return
		}
		day := int64(since / (24 * 3600 * 1_000_000))
		i := slices.IndexFunc(groups, func(n NotificationGroup) bool { return n.Kind == kind && n.Pin == pin && n.Day == day })
		if i < 0 {
			i = len(groups)
			groups = append(groups, NotificationGroup{Kind: kind, Pin: pin, Item: item, Day: day, Newest: since})
		}
		if !slices.Contains(groups[i].Actors, actor) {
			groups[i].Actors = append(groups[i].Actors, actor)
		}
	}

	followers := g.Followers(user, None)
	for _, e := range followers[:min(keep, len(followers))] {
		add(events.UserFollowed, "", "", e.User, e.Since)
	}

	countByKind := map[events.Kind]int{}
	for _, row := range g.NotificationRows(user, keep) {
		countByKind[row.Kind]++
		if countByKind[row.Kind] > keep {
			continue
		}

		pin, lives := findPin(g.pinFacts[user], row.Pin)
		if !lives || pin.Item != row.Item {
			continue
		}
		if row.Kind == events.PinCreated {
			repin, lives := findPin(g.pinFacts[row.Actor], row.Repin)
			if !lives || repin.RepinOwner != user || repin.RepinPin != row.Pin {
				continue
			}
		}
		add(row.Kind, row.Pin, row.Item, row.Actor, row.Since)
	}

	order := []events.Kind{events.UserFollowed, events.Reacted, events.PinCreated}
	slices.SortFunc(groups, func(x, y NotificationGroup) int {
		return cmp.Or(
			cmp.Compare(y.Newest, x.Newest),
			cmp.Compare(slices.Index(order, x.Kind), slices.Index(order, y.Kind)),
			events.CompareIDs(x.Pin, y.Pin),
		)
	})
	return groups
}
