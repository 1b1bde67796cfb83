package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

// feedEntry is a pin in a feed.
type feedEntry struct {
	created           events.Micros
	owner, pin, board string
}

func (p feedEntry) String() string {
	return fmt.Sprintf("pin %s of %s on board %q at %d", p.pin, p.owner, p.board, p.created)
}

// compare orders entries as feeds do: newest first, equal times by owner, then by pin.
func (p feedEntry) compare(o feedEntry) int {
	return cmp.Or(cmp.Compare(o.created, p.created),
		bytes.Compare(events.AppendID(nil, p.owner), events.AppendID(nil, o.owner)),
		bytes.Compare(events.AppendID(nil, p.pin), events.AppendID(nil, o.pin)))
}

// feed compares the feed of a reader with its definition (I8): all living pins on the boards that the reader follows by the graph,
// newest first, without the pins of muted users and without the re-pins of users whose re-pins the reader hides. Of a reader who follows
// users that are not held, the feed is compared without their pins.
func (a *Audit) feed(ctx context.Context, reader string) error {
	want, err := a.defined(ctx, reader)
	if err != nil {
		return err
	}
	var after inbox.PageCursor
	for at := 0; ; {
		page, err := a.inbox.Feed(ctx, inbox.Feed{Reader: reader}, after, pageRows)
		if err != nil {
			return err
		}
		for _, p := range page.Pins {
			if a.limits.Feed > 0 && at == a.limits.Feed {
				return nil
			}
			if !a.holds(p.Owner) {
				continue // only the inbox has its home
			}
			got := feedEntry{p.Created, p.Owner, p.ID, p.Board}
			if at >= len(want) || want[at] != got {
				wanted := "the end"
				if at < len(want) {
					wanted = want[at].String()
				}
				a.find("feed", []string{"graph", "inbox"}, "entry %d is %v, by definition %s", at, got, wanted)
				return nil
			}
			at++
		}
		if page.Next == nil {
			if at < len(want) {
				a.find("feed", []string{"graph", "inbox"}, "it ends after %d entries, by definition %v is next", at, want[at])
			}
			return nil
		}
		if err := a.rest(ctx); err != nil {
			return err
		}
		after = page.Next
	}
}

// defined returns the newest entries of a feed by its definition, up to the limit.
func (a *Audit) defined(ctx context.Context, reader string) ([]feedEntry, error) {
	var all []feedEntry
	excluded := map[[2]string]bool{}
	err := a.each(ctx, graph.List{Kind: graph.ExcludedBoards, User: reader}, func(e graph.Entry) error {
		excluded[[2]string{e.User, e.Board}] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	var cut events.Micros // older pins are not among the newest
	add := func(owner string, board *string) error {
		if !a.holds(owner) {
			return nil
		}
		relation, err := a.graph.Relationship(reader, owner)
		if err != nil || relation.Muting || relation.Blocking || relation.BlockedBy {
			return err
		}
		all, err = a.outbox(ctx, all, owner, board, cut, func(p *inbox.Pin) bool {
			return (!relation.HidingRepins || !p.Repin) && (board != nil || !excluded[[2]string{owner, p.Board}])
		})
		if err != nil || a.limits.Feed == 0 || len(all) < 4*a.limits.Feed {
			return errors.Join(err, a.rest(ctx))
		}
		all = a.newest(all)
		if len(all) == a.limits.Feed {
			cut = all[len(all)-1].created
		}
		return a.rest(ctx)
	}
	err = a.each(ctx, graph.List{Kind: graph.FollowingExplicit, User: reader}, func(e graph.Entry) error {
		return add(e.User, nil)
	})
	if err != nil {
		return nil, err
	}
	err = a.each(ctx, graph.List{Kind: graph.FollowedBoards, User: reader}, func(e graph.Entry) error {
		return add(e.User, &e.Board)
	})
	return a.newest(all), err
}

// newest sorts entries, and drops duplicates and entries beyond the limit.
func (a *Audit) newest(all []feedEntry) []feedEntry {
	slices.SortFunc(all, feedEntry.compare)
	all = slices.Compact(all)
	if a.limits.Feed > 0 && len(all) > a.limits.Feed {
		all = all[:a.limits.Feed]
	}
	return all
}

// outboxRows is the number of pins that are read from an outbox first. A reader with many outboxes needs few pins of most of them: even
// their newest pins are too old.
const outboxRows = 8

// outbox appends the newest visible pins of an owner or a board, without those older than the cut.
func (a *Audit) outbox(
	ctx context.Context, dst []feedEntry, owner string, board *string, cut events.Micros, shown func(*inbox.Pin) bool,
) ([]feedEntry, error) {
	var after inbox.PageCursor
	size := pageRows
	if a.limits.Feed > 0 {
		size = min(outboxRows, a.limits.Feed)
	}
	for n := 0; ; size = min(4*size, pageRows) {
		page, next, err := a.inbox.Pins(ctx, owner, board, after, size)
		if err != nil {
			return nil, err
		}
		for i := range page {
			p := &page[i]
			if p.Created < cut {
				return dst, nil
			}
			if shown(p) {
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

// each walks over a list of the graph.
func (a *Audit) each(ctx context.Context, l graph.List, do func(graph.Entry) error) error {
	var after graph.PageCursor
	for {
		page, next, err := a.graph.List(ctx, l, after, pageRows)
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
