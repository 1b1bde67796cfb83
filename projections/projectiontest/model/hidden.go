package model

import (
	"cmp"
	"slices"

	"github.com/skein-feed/skein/events"
)

// hiding names a user and an item.
type hiding struct{ user, item string }

// isHidingKind reports whether events of a kind decide which items the acting user hides.
func isHidingKind(k events.Kind) bool { return k == events.ItemHidden || k == events.ItemShown }

// hidesItem returns since when a user hides an item, and whether the user does.
func (g *Graph) hidesItem(user, item string) (events.Micros, bool) {
	own := g.hidingFacts[hiding{user, item}]
	return stateSince(own.of(events.ItemHidden), own.of(events.ItemShown), nil)
}

// HiddenItem is an item that a user hides, with the time since when.
type HiddenItem struct {
	Item  string
	Since events.Micros
}

// Hidden returns the items that a user hides, the newest first. Equal times are ordered by id.
func (g *Graph) Hidden(user string) (list []HiddenItem) {
	for _, item := range g.items {
		if since, hides := g.hidesItem(user, item); hides {
			list = append(list, HiddenItem{item, since})
		}
	}
	slices.SortFunc(list, func(x, y HiddenItem) int {
		return cmp.Or(cmp.Compare(y.Since, x.Since), events.CompareIDs(x.Item, y.Item))
	})
	return list
}
