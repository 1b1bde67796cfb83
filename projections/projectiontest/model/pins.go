package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// Pin is a living pin.
type Pin struct {
	// Owner and ID name the pin.
	Owner, ID string
	// Board is the board of the owner on which the pin is. Empty means the default board.
	Board string
	// Item is the item that the pin shows.
	Item string
	// Repin says that the pin is a re-pin: its creation names the pin that it repeats.
	Repin bool
	// RepinOwner and RepinPin name the repeated pin. They are empty if its owner was deleted later.
	RepinOwner, RepinPin string
	// Attributes are the attributes of its last edit or, if it was not edited since its creation,
	// those of its creation.
	Attributes []byte
	// Edited is the time of its last edit since its creation. 0 means that there was none.
	Edited events.Micros
	// Created is the time of its creation. A move does not change it.
	Created events.Micros
}

// isPinKind reports whether events of a kind decide which pins of the acting user live, and on
// which boards.
func isPinKind(k events.Kind) bool {
	switch k {
	case events.PinCreated, events.PinMoved, events.PinEdited, events.PinDeleted, events.BoardDeleted:
		return true
	}
	return false
}

// findPin returns one pin, and whether it lives. It applies the facts about the pins and boards of
// the owner one after the other.
func findPin(owned facts, id string) (pin Pin, lives bool) {
	for _, f := range owned {
		switch {
		case f.Kind == events.PinCreated && f.Pin == id && !lives:
			lives = true
			pin = Pin{
				Owner: f.User, ID: f.Pin, Board: f.Board, Item: f.Item, Repin: f.RepinPin != "", Attributes: f.Attributes,
				Created: f.Time,
			}
			if !f.isRepinEnded {
				pin.RepinOwner, pin.RepinPin = f.RepinUser, f.RepinPin
			}
		case f.Kind == events.PinMoved && f.Pin == id && lives:
			pin.Board = f.Board
		case f.Kind == events.PinEdited && f.Pin == id && lives:
			pin.Attributes = f.Attributes
			pin.Edited = f.Time
		case f.Kind == events.PinDeleted && f.Pin == id:
			lives = false
		case f.Kind == events.BoardDeleted && f.Board == pin.Board:
			lives = false
		}
	}
	return pin, lives
}

// Pins returns the living pins of a user, the newest first.
func (g *Graph) Pins(owner string) []Pin {
	var list []Pin
	isDone := map[string]bool{}
	for _, f := range g.pinFacts[owner].of(events.PinCreated) {
		if isDone[f.Pin] {
			continue
		}
		isDone[f.Pin] = true
		if pin, lives := findPin(g.pinFacts[owner], f.Pin); lives {
			list = append(list, pin)
		}
	}
	return sortNewestFirst(list)
}

// BoardPins returns the living pins on a board, the newest first.
func (g *Graph) BoardPins(owner, board string) []Pin {
	return slices.DeleteFunc(g.Pins(owner), func(p Pin) bool { return p.Board != board })
}

// sortNewestFirst sorts pins by time, the newest first. Equal times are ordered by owner and id.
func sortNewestFirst(list []Pin) []Pin {
	slices.SortFunc(list, func(x, y Pin) int {
		return cmp.Or(
			cmp.Compare(y.Created, x.Created),
			events.CompareIDs(x.Owner, y.Owner),
			events.CompareIDs(x.ID, y.ID),
		)
	})
	return list
}

// Feed returns the feed of a reader, the newest pin first: the living pins on the boards that the
// reader follows. It leaves out the pins of owners whom the reader mutes or whom a block separates
// from the reader, the re-pins of owners whose re-pins the reader hides, and the pins that
// [Graph.hidesPin] leaves out whoever owns them. The reader's own pins are in it only if own is
// true.
func (g *Graph) Feed(reader string, own bool) []Pin {
	var list []Pin
	for _, owner := range g.users {
		if owner == reader {
			for _, pin := range g.Pins(owner) {
				if own && !g.hidesPin(reader, pin) {
					list = append(list, pin)
				}
			}
			continue
		}
		if _, muted := g.mutes(reader, owner); muted || g.hasBlockBetween(reader, owner) {
			continue
		}
		repinsHidden := g.hidesRepins(reader, owner)
		for _, pin := range g.Pins(owner) {
			if pin.Repin && repinsHidden || g.hidesPin(reader, pin) {
				continue
			}
			if f := g.Board(reader, owner, pin.Board); f.Kind == Board || f.Kind == Explicit {
				list = append(list, pin)
			}
		}
	}
	return sortNewestFirst(list)
}

// isSelected reports whether an owner is among the 500 owners of [Graph.FeedWith].
func (g *Graph) isSelected(reader, owner string, only events.FollowSettings) bool {
	list := g.With(reader, only)
	list = list[:min(len(list), 500)]
	return slices.ContainsFunc(list, func(e Entry) bool { return e.User == owner })
}

// FeedWith returns the pins of [Graph.Feed] whose owners are the 500 for whom the reader set the
// setting only last. For notify, it leaves out re-pins. The reader's own pins stay.
func (g *Graph) FeedWith(reader string, own bool, only events.FollowSettings) []Pin {
	return slices.DeleteFunc(g.Feed(reader, own), func(p Pin) bool {
		return p.Owner != reader && !g.isSelected(reader, p.Owner, only) || only == events.SettingNotify && p.Repin
	})
}

// Origin says why a re-pin is left out of a feed because of the owner of the pin that it repeats.
type Origin struct{ Deleted, Muted, Blocked bool }

// originOf returns why a reader does not see a re-pin because of the owner of the repeated pin. The
// zero Origin means that the reader does. A re-pin of a pin of the same owner is like any other
// pin.
func (g *Graph) originOf(reader string, pin Pin) (o Origin) {
	if !pin.Repin || pin.RepinOwner == pin.Owner {
		return o
	}
	if pin.RepinOwner == "" {
		return Origin{Deleted: true}
	}
	_, o.Muted = g.mutes(reader, pin.RepinOwner)
	o.Blocked = g.hasBlockBetween(reader, pin.RepinOwner)
	return o
}

// hidesPin reports whether a reader does not see a pin whoever owns it. That is so if the reader
// hides the item, or if the pin is a re-pin and the owner of the repeated pin was deleted, is muted
// by the reader, or is separated from the reader by a block.
func (g *Graph) hidesPin(reader string, pin Pin) bool {
	_, hidden := g.hidesItem(reader, pin.Item)
	return hidden || g.originOf(reader, pin) != Origin{}
}

// Read returns the read marker of a reader: the latest time of all feed_read since the user was
// last deleted. A time after its own event counts as the time of the event. 0 means that there is
// no marker.
func (g *Graph) Read(reader string) (at events.Micros) {
	for i := range g.log {
		ev := &g.log[i]
		switch {
		case ev.User != reader:
		case ev.Kind == events.UserDeleted:
			at = 0
		case ev.Kind == events.FeedRead:
			at = max(at, min(ev.Read, ev.Time))
		}
	}
	return at
}

// After returns the pins that were created after a time.
func After(at events.Micros, list []Pin) (later []Pin) {
	for _, pin := range list {
		if pin.Created > at {
			later = append(later, pin)
		}
	}
	return later
}

// TrendingFeed returns the newest pins of [Graph.Feed], at most as many as ranked says, by the
// score that heat returns for the item: the highest first, equal scores as in the feed. Pins of
// items without a score come last.
func (g *Graph) TrendingFeed(reader string, own bool, ranked int, heat func(item string) (score int64, ok bool)) []Pin {
	list := g.Feed(reader, own)
	list = list[:min(len(list), ranked)]
	slices.SortStableFunc(list, func(x, y Pin) int {
		scoreX, okX := heat(x.Item)
		scoreY, okY := heat(y.Item)
		switch {
		case okX && okY:
			return cmp.Compare(scoreY, scoreX)
		case okX:
			return -1
		case okY:
			return 1
		}
		return 0
	})
	return list
}

// OnePerItem returns the first pin of each item, in the order of the list.
func OnePerItem(list []Pin) []Pin {
	var first []Pin
	for _, pin := range list {
		if !slices.ContainsFunc(first, func(p Pin) bool { return p.Item == pin.Item }) {
			first = append(first, pin)
		}
	}
	return first
}

// Absence has all reasons why a pin is not in [Graph.Feed]. For a pin that does not live,
// NotFollowed means that the reader follows neither its owner nor any board of its owner.
type Absence struct {
	NotLiving, Own, NotFollowed, Excluded, Muted, RepinsHidden, Blocked, NotSelected, ItemHidden bool
	// Origin is about the pin that a re-pin repeats.
	Origin Origin
}

// AbsenceWith returns the reasons why a pin is not in [Graph.FeedWith].
func (g *Graph) AbsenceWith(reader, owner, id string, own bool, only events.FollowSettings) Absence {
	a := g.Absence(reader, owner, id, own)
	pin, lives := findPin(g.pinFacts[owner], id)
	isRepinOfBell := lives && pin.Repin && only == events.SettingNotify
	if owner == reader {
		a.RepinsHidden = own && isRepinOfBell
		return a
	}
	a.NotSelected = !g.isSelected(reader, owner, only)
	a.RepinsHidden = a.RepinsHidden || isRepinOfBell
	return a
}

// Absence returns the reasons why a pin is not in the feed of a reader.
func (g *Graph) Absence(reader, owner, id string, own bool) (a Absence) {
	pin, lives := findPin(g.pinFacts[owner], id)
	a.NotLiving = !lives
	if owner == reader {
		a.Own = !own
		if own && lives {
			a.Origin = g.originOf(reader, pin)
			_, a.ItemHidden = g.hidesItem(reader, pin.Item)
		}
		return a
	}
	_, a.Muted = g.mutes(reader, owner)
	a.Blocked = g.hasBlockBetween(reader, owner)
	if !lives {
		a.NotFollowed = g.User(reader, owner).Kind == None
		return a
	}
	a.RepinsHidden = g.hidesRepins(reader, owner) && pin.Repin
	a.Origin = g.originOf(reader, pin)
	_, a.ItemHidden = g.hidesItem(reader, pin.Item)
	kind := g.Board(reader, owner, pin.Board).Kind
	a.NotFollowed = kind == None
	a.Excluded = kind == Excluded
	return a
}
