package audit

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

// feedEntry is what a feed says of a pin.
type feedEntry struct {
	created           events.Micros
	owner, pin, board string
}

// String describes the entry to people.
func (p feedEntry) String() string {
	return fmt.Sprintf("pin %s of %s on board %q at %d", p.pin, p.owner, p.board, p.created)
}

// compare orders entries as feeds do: newest first; if they have the same time, by the keys of
// owner and pin.
func (p feedEntry) compare(o feedEntry) int {
	return cmp.Or(
		cmp.Compare(o.created, p.created),
		bytes.Compare(events.AppendID(nil, p.owner), events.AppendID(nil, o.owner)),
		bytes.Compare(events.AppendID(nil, p.pin), events.AppendID(nil, o.pin)),
	)
}

// checkFeed compares the feed of a reader in inbox with its definition (I8): all pins that exist on
// the boards that the reader follows by the graph, newest first, without
//   - the pins of muted and blocked users,
//   - the re-pins by users whose re-pins the reader hides,
//   - the re-pins of pins of deleted, muted and blocked users,
//   - the items that the reader hides.
//
// Pins of users who are not held are left out on both sides.
func (a *Audit) checkFeed(ctx context.Context, reader string) error {
	want, err := a.definedFeed(ctx, reader)
	if err != nil {
		return err
	}

	var after inbox.PageCursor
	for at := 0; ; {
		page, err := a.inbox.Feed(ctx, inbox.Feed{Reader: reader}, after, pageSize)
		if err != nil {
			return err
		}
		for _, p := range page.Pins {
			if a.limits.Feed > 0 && at == a.limits.Feed {
				return nil
			}
			if !a.holds(p.Owner) {
				continue // only the inbox holds the home of the owner
			}

			got := feedEntry{p.Created, p.Owner, p.ID, p.Board}
			if at >= len(want) || want[at] != got {
				wanted := "the end"
				if at < len(want) {
					wanted = want[at].String()
				}
				a.addFinding("feed", []string{"graph", "inbox"}, "entry %d is %v, by definition %s", at, got, wanted)
				return nil
			}
			at++
		}

		if page.Next == nil {
			if at < len(want) {
				a.addFinding("feed", []string{"graph", "inbox"}, "it ends after %d entries, by definition %v is next", at, want[at])
			}
			return nil
		}

		if err := a.rest(ctx); err != nil {
			return err
		}
		after = page.Next
	}
}

// definedFeed returns the newest entries of a feed, up to the limit, as the definition of a feed
// demands.
func (a *Audit) definedFeed(ctx context.Context, reader string) ([]feedEntry, error) {
	excluded := map[[2]string]bool{}
	err := a.eachListEntry(ctx, graph.List{Kind: graph.ExcludedBoards, User: reader}, func(e graph.Entry) error {
		excluded[[2]string{e.User, e.Board}] = true
		return nil
	})
	if err != nil {
		return nil, err
	}

	hiddenOrigins := map[string]bool{}
	// hidesOrigin reports whether the reader does not see a re-pin because of the owner of the pin
	// that it repeats.
	hidesOrigin := func(p *inbox.Pin) (bool, error) {
		switch p.RepinOwner {
		case "":
			return p.Repin, nil // a re-pin without that owner: the owner was deleted
		case p.Owner, reader:
			return false, nil
		}
		hidden, known := hiddenOrigins[p.RepinOwner]
		if known {
			return hidden, nil
		}
		relation, err := a.graph.Relationship(reader, p.RepinOwner)
		hidden = relation.Muting || relation.Blocking || relation.BlockedBy
		hiddenOrigins[p.RepinOwner] = hidden
		return hidden, err
	}

	var all []feedEntry
	// Pins older than cut cannot be among the newest ones.
	var cut events.Micros
	// addPins adds the pins of an owner, or those on one board if board is not nil.
	addPins := func(owner string, board *string) error {
		if !a.holds(owner) {
			return nil
		}
		relation, err := a.graph.Relationship(reader, owner)
		if err != nil || relation.Muting || relation.Blocking || relation.BlockedBy {
			return err
		}

		all, err = a.appendOutbox(ctx, all, owner, board, cut, func(p *inbox.Pin) (bool, error) {
			isHiddenRepin := p.Repin && relation.Settings.Has(events.SettingHideRepins)
			// A board that is followed by itself appears even if it is excluded from its owner's.
			isExcluded := board == nil && excluded[[2]string{owner, p.Board}]
			if isHiddenRepin || isExcluded {
				return false, nil
			}
			// Of the stores that are compared, only the inbox knows which items are hidden, so this
			// is not compared with another store.
			if _, hides, err := a.inbox.Hiding(reader, p.Item); err != nil || hides {
				return false, err
			}
			hidden, err := hidesOrigin(p)
			return !hidden, err
		})
		if err != nil {
			return err
		}

		// Keep the list short. Sorting it only when it has four times as many entries as needed
		// keeps the cost per entry low.
		if a.limits.Feed > 0 && len(all) >= 4*a.limits.Feed {
			all = a.sortAndLimit(all)
			if len(all) == a.limits.Feed {
				cut = all[len(all)-1].created
			}
		}
		return a.rest(ctx)
	}

	err = a.eachListEntry(ctx, graph.List{Kind: graph.FollowingExplicit, User: reader}, func(e graph.Entry) error {
		return addPins(e.User, nil)
	})
	if err != nil {
		return nil, err
	}
	err = a.eachListEntry(ctx, graph.List{Kind: graph.FollowedBoards, User: reader}, func(e graph.Entry) error {
		return addPins(e.User, &e.Board)
	})
	return a.sortAndLimit(all), err
}

// sortAndLimit sorts entries and drops duplicates and the entries after the limit.
func (a *Audit) sortAndLimit(all []feedEntry) []feedEntry {
	slices.SortFunc(all, feedEntry.compare)
	all = slices.Compact(all)
	if a.limits.Feed > 0 && len(all) > a.limits.Feed {
		all = all[:a.limits.Feed]
	}
	return all
}

// firstOutboxPage is how many pins of an outbox are read first. A reader who follows many needs few
// pins of most of them, because even their newest pins are too old.
const firstOutboxPage = 8

// appendOutbox appends the newest visible pins of an owner, or of a board if board is not nil, to
// dst. It stops at pins older than cut. isVisible selects the pins.
func (a *Audit) appendOutbox(
	ctx context.Context, dst []feedEntry, owner string, board *string, cut events.Micros, isVisible func(*inbox.Pin) (bool, error),
) ([]feedEntry, error) {
	var after inbox.PageCursor
	size := pageSize
	if a.limits.Feed > 0 {
		size = min(firstOutboxPage, a.limits.Feed)
	}

	// Only visible pins count towards the limit. If many are hidden, larger pages reach it sooner.
	for n := 0; ; size = min(4*size, pageSize) {
		page, next, err := a.inbox.Pins(ctx, owner, board, after, size)
		if err != nil {
			return nil, err
		}

		for i := range page {
			p := &page[i]
			if p.Created < cut {
				return dst, nil // pins are listed newest first, so all others are older, too
			}
			visible, err := isVisible(p)
			if err != nil {
				return nil, err
			}
			if visible {
				dst = append(dst, feedEntry{p.Created, p.Owner, p.ID, p.Board})
				n++
			}
		}
		if next == nil || a.limits.Feed > 0 && n >= a.limits.Feed {
			return dst, nil
		}
		if err := a.rest(ctx); err != nil {
			return nil, err
		}
		after = next
	}
}

// eachListEntry calls do with each entry of a list of the graph.
func (a *Audit) eachListEntry(ctx context.Context, l graph.List, do func(graph.Entry) error) error {
	var after graph.PageCursor
	for {
		page, next, err := a.graph.List(ctx, l, after, pageSize)
		if err != nil {
			return err
		}
		for _, e := range page {
			if err := do(e); err != nil {
				return err
			}
		}
		if next == nil {
			return nil
		}
		after = next
	}
}
