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
	// Board is the owner's board that it is on; empty means the default board.
	Board string
	// Item is what it shows.
	Item string
	// Repin: it names the pin that it repeats.
	Repin bool
	// RepinOwner and RepinPin name that pin. They are empty if its owner was deleted later.
	RepinOwner, RepinPin string
	// Attributes are those given at its creation.
	Attributes []byte
	// Created is when it was created. Moving it does not change that.
	Created events.Micros
}

// isPinKind reports whether facts of a kind decide which pins of the acting user live, and where.
func isPinKind(k events.Kind) bool {
	switch k {
	case events.PinCreated, events.PinMoved, events.PinDeleted, events.BoardDeleted:
		return true
	}
	return false
}

// findPin runs the life of one pin through the facts about the pins and boards of its owner, and reports whether it lives
// at their end.
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
		case f.Kind == events.PinDeleted && f.Pin == id:
			lives = false
		case f.Kind == events.BoardDeleted && f.Board == pin.Board:
			lives = false
		}
	}
	return pin, lives
}

// Pins lists the living pins of a user, newest first.
func (g *Graph) Pins(owner string) []Pin {
	var list []Pin
	tried := map[string]bool{}
	for _, f := range g.pinFacts[owner].of(events.PinCreated) {
		if tried[f.Pin] {
			continue
		}
		tried[f.Pin] = true
		if pin, lives := findPin(g.pinFacts[owner], f.Pin); lives {
			list = append(list, pin)
		}
	}
	return sortNewestFirst(list)
}

// BoardPins lists the living pins on a board, newest first.
func (g *Graph) BoardPins(owner, board string) []Pin {
	return slices.DeleteFunc(g.Pins(owner), func(p Pin) bool { return p.Board != board })
}

// sortNewestFirst puts pins newest first, equal times by owner and id.
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

// Feed lists the living pins on the boards that the reader follows, less those of owners whom the reader mutes or a block
// separates from the reader, less the re-pins of owners whose re-pins the reader hides, and less what the reader does not see whoever owns it
// ([Graph.hidesPin]), newest first. The reader's own pins are in it only with own.
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

// isSelected reports whether an owner is among those of [Graph.FeedWith].
func (g *Graph) isSelected(reader, owner string, only events.FollowSettings) bool {
	list := g.With(reader, only)
	list = list[:min(len(list), 500)]
	return slices.ContainsFunc(list, func(e Entry) bool { return e.User == owner })
}

// FeedWith lists the pins of [Graph.Feed] of the 500 owners whose follows had a setting set last. With notify, it leaves out re-pins.
func (g *Graph) FeedWith(reader string, own bool, only events.FollowSettings) []Pin {
	return slices.DeleteFunc(g.Feed(reader, own), func(p Pin) bool {
		return p.Owner != reader && !g.isSelected(reader, p.Owner, only) || only == events.SettingNotify && p.Repin
	})
}

// Origin is what keeps a re-pin out of a feed because of the owner of the pin that it repeats.
type Origin struct{ Deleted, Muted, Blocked bool }

// originOf reports what a reader has against the owner of the pin that a pin repeats. A re-pin of an own pin is like any other pin of its owner.
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

// hidesPin reports whether a reader does not see a pin, whoever owns it: because the reader hides the item, or because the pin is a re-pin and the
// owner of the pin that it repeats was deleted, is muted by the reader, or is separated from the reader by a block.
func (g *Graph) hidesPin(reader string, pin Pin) bool {
	_, hidden := g.hidesItem(reader, pin.Item)
	return hidden || g.originOf(reader, pin) != Origin{}
}

// Read reports up to when a reader has read the feed: the latest time that was said since the user was last deleted, none of them after the
// event that said so; 0 means never.
func (g *Graph) Read(reader string) (at events.Micros) {
	for _, ev := range g.log {
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

// After keeps the pins that were created after a time.
func After(at events.Micros, list []Pin) (kept []Pin) {
	for _, pin := range list {
		if pin.Created > at {
			kept = append(kept, pin)
		}
	}
	return kept
}

// TrendingFeed lists the newest pins of [Graph.Feed], as many as are ranked, those of the hottest items first: by the score that heat
// tells, then newest first. Those of items without a score come last, after those of the lowest.
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

// OnePerItem keeps the first pin of each item, in the order given.
func OnePerItem(list []Pin) []Pin {
	var kept []Pin
	for _, pin := range list {
		if !slices.ContainsFunc(kept, func(p Pin) bool { return p.Item == pin.Item }) {
			kept = append(kept, pin)
		}
	}
	return kept
}

// Absence is what keeps a pin out of [Graph.Feed], all that holds. Of a pin that does not live NotFollowed means that the reader follows
// its owner in no way.
type Absence struct {
	NotLiving, Own, NotFollowed, Excluded, Muted, RepinsHidden, Blocked, NotSelected, ItemHidden bool
	// Origin is about the pin that a re-pin repeats.
	Origin Origin
}

// AbsenceWith reports what keeps a pin out of [Graph.FeedWith].
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

// Absence reports what keeps a pin out of the feed of a reader.
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
	a.NotFollowed, a.Excluded = kind == None, kind == Excluded
	return a
}
