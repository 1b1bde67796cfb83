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

// feedEntry has the fields of a pin by which checkFeed compares an entry of a feed with its
// definition.
type feedEntry struct {
	created           events.Micros
	owner, pin, board string
}

// String describes the entry to people.
func (e feedEntry) String() string {
	return fmt.Sprintf("pin %s of %s on board %q at %d", e.pin, e.owner, e.board, e.created)
}

// compare orders entries as a feed does: newest first, and entries of the same time by owner, then
// by pin. Ids are compared in the order of their key encodings ([events.AppendID]), because the
// rows of the inbox store are sorted in that order.
func (e feedEntry) compare(other feedEntry) int {
	return cmp.Or(
		cmp.Compare(other.created, e.created),
		bytes.Compare(events.AppendID(nil, e.owner), events.AppendID(nil, other.owner)),
		bytes.Compare(events.AppendID(nil, e.pin), events.AppendID(nil, other.pin)),
	)
}

// checkFeed compares the feed that the inbox store gives a reader with the definition of that feed
// (I8, docs/semantics.md). It adds a finding for the first entry that differs, and then stops. It
// compares at most [Limits.Feed] entries, beginning with the newest.
//
// By the definition, the feed has all living pins on the boards that appear for the reader, newest
// first, except
//   - pins of owners whom the reader mutes, or whom a block in either direction separates from the
//     reader,
//   - re-pins by owners whose re-pins the reader hides,
//   - re-pins of pins of another user who was deleted, whom the reader mutes, or whom a block
//     separates from the reader,
//   - pins of items that the reader hides.
//
// The follows, mutes, blocks and settings come from the graph store. The inbox store has its own
// rows for them, so the two stores can disagree. The pins and the hidden items come from the inbox
// store on both sides: a pin that its outboxes lack, or an item that is hidden by mistake, gives no
// finding here.
//
// The audit reads the inbox store without its cache. So it compares the feed that is merged from
// outboxes, and neither the inboxes in memory nor the pull rows.
//
// Pins of owners who are not held are left out on both sides.
func (a *Audit) checkFeed(ctx context.Context, reader string) error {
	want, err := a.definedFeed(ctx, reader)
	if err != nil {
		return err
	}

	var after inbox.PageCursor
	// at is the number of entries that were compared, so want[at] is the next one to compare.
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
				continue // want has no pins of this owner either
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

// definedFeed returns the entries that the feed of a reader has by the definition that checkFeed
// describes, newest first: the newest [Limits.Feed] entries, or all if there is no limit.
func (a *Audit) definedFeed(ctx context.Context, reader string) ([]feedEntry, error) {
	excluded := map[[2]string]bool{}
	err := a.eachListEntry(ctx, graph.List{Kind: graph.ExcludedBoards, User: reader}, func(e graph.Entry) error {
		excluded[[2]string{e.User, e.Board}] = true
		return nil
	})
	if err != nil {
		return nil, err
	}

	// hiddenOrigins caches the answers of hidesOrigin, by the owner of the repeated pin.
	hiddenOrigins := map[string]bool{}
	// hidesOrigin reports whether the feed leaves out a pin because it is a re-pin of a pin whose
	// owner the reader does not see.
	hidesOrigin := func(p *inbox.Pin) (bool, error) {
		switch p.RepinOwner {
		case "":
			return p.Repin, nil // a re-pin loses the name of that owner when the owner is deleted
		case p.Owner, reader:
			return false, nil // addPins has checked p.Owner, and nobody can mute or block oneself
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
	// When addPins shortens all to the limit, cut becomes the time of the oldest entry in all.
	// Older pins cannot be among the newest entries. Before that, cut is 0 and excludes nothing,
	// because no pin is older than 1970.
	var cut events.Micros
	// addPins adds the visible pins of an owner to all or, if board is not nil, only those on this
	// board. It adds nothing if the owner is not held, or if the reader sees no pin of the owner
	// because of a mute or a block.
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
			// An exclusion takes a board out of the follow of its owner. A follow of the board
			// itself, for which board is not nil, is not affected.
			isExcluded := board == nil && excluded[[2]string{owner, p.Board}]
			if isHiddenRepin || isExcluded {
				return false, nil
			}
			// Of the three stores that an audit compares, only inbox has the hidden items. So both
			// sides take them from inbox, and this check does not find a wrong one.
			if _, hides, err := a.inbox.Hiding(reader, p.Item); err != nil || hides {
				return false, err
			}
			hidden, err := hidesOrigin(p)
			return !hidden, err
		})
		if err != nil {
			return err
		}

		// Drop the entries that the limit excludes, because there may be thousands of owners. That
		// takes a sort, so wait until there are four times as many entries as the limit: a sort
		// after each owner would sort the same entries again and again.
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

// sortAndLimit sorts entries as a feed does, and drops duplicates and the entries after
// [Limits.Feed]. A pin is there twice if the reader follows both its owner and its board. The
// result uses the memory of all.
func (a *Audit) sortAndLimit(all []feedEntry) []feedEntry {
	slices.SortFunc(all, feedEntry.compare)
	all = slices.Compact(all)
	if a.limits.Feed > 0 && len(all) > a.limits.Feed {
		all = all[:a.limits.Feed]
	}
	return all
}

// firstOutboxPage is how many pins appendOutbox reads first if the feed has a limit. The first page
// is small for readers who follow many owners: the newest pins of most owners are already too old
// for the newest entries of the feed, so the other pins on a large page would be read in vain.
const firstOutboxPage = 8

// appendOutbox appends the newest visible pins of an owner to dst or, if board is not nil, those on
// this board. isVisible decides which pins are visible. appendOutbox stops at the first pin that is
// older than cut, and after the page on which the number of visible pins reaches [Limits.Feed]. So
// it may append more visible pins than the limit.
func (a *Audit) appendOutbox(
	ctx context.Context, dst []feedEntry, owner string, board *string, cut events.Micros, isVisible func(*inbox.Pin) (bool, error),
) ([]feedEntry, error) {
	var after inbox.PageCursor
	size := pageSize
	if a.limits.Feed > 0 {
		size = min(firstOutboxPage, a.limits.Feed)
	}

	// If the first page was not enough, more pins are needed, perhaps many: only visible pins count
	// towards the limit. So each page is four times as large as the one before, up to pageSize.
	for n := 0; ; size = min(4*size, pageSize) {
		page, next, err := a.inbox.Pins(ctx, owner, board, after, size)
		if err != nil {
			return nil, err
		}

		for i := range page {
			p := &page[i]
			if p.Created < cut {
				return dst, nil // pins are listed newest first, so all that follow are older, too
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

// eachListEntry calls do with each entry of a list of the graph store. It stops at the first error
// of do, and returns that error. It does not rest between pages.
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
