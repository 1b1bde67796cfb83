package audit

import (
	"context"
	"errors"

	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

const (
	// pageRows is the number of entries of a list that are in memory.
	pageRows = 1000
	// restRows is the number of lookups after which the audit may rest.
	restRows = 100
)

// unknown stands for the length of a list that is longer than the limit.
const unknown = -1

// same adds a finding if a count is not the length of its list. An unknown length is not compared.
func (a *Audit) same(what, of string, count, length int64, stores ...string) {
	if length != unknown && count != length {
		a.find("counts", stores, "%s: the count of %s is %d, the list is %d long", what, of, count, length)
	}
}

// user makes all checks of a user.
func (a *Audit) user(ctx context.Context, id string) error {
	count, err := a.counters.UserCounts(id)
	if err != nil {
		return err
	}
	own, err := a.graph.UserCounts(id)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		kind graph.ListKind
		name string
		own  int64
	}{
		{graph.FollowingExplicit, "following", own.Following},
		{graph.FollowingImplicit, "following implicitly", own.FollowingImplicit},
		{graph.FollowersExplicit, "followers", own.Followers},
		{graph.FollowersImplicit, "implicit followers", own.FollowersImplicit},
		{graph.Boards, "boards", own.Boards},
		{graph.FollowedBoards, "followed boards", own.FollowedBoards},
		{graph.ExcludedBoards, "excluded boards", own.ExcludedBoards},
		{graph.Blocked, "blocked", own.Blocked},
		{graph.Muted, "muted", own.Muted},
	} {
		n, here, err := a.list(ctx, graph.List{Kind: l.kind, User: id}, l.name)
		if err == nil && l.kind == graph.FollowersExplicit && n != unknown {
			err = a.region(id, here)
		}
		if err != nil {
			return err
		}
		a.same(l.name, "graph", l.own, n, "graph")
	}
	if err := a.pins(ctx, id, nil, count.Pins); err != nil || !a.limits.has(id) {
		return err
	}
	return a.feed(ctx, id)
}

// checksum is of some users: how many, and the sum of their hashes.
type checksum struct {
	n   int64
	sum uint64
}

func (c *checksum) add(key []byte) {
	c.n++
	c.sum += xxh3.Hash(key)
}

// region compares the followers of a user who are held with the rows that the other ends of their follows have at the user's home: one
// walk over neighboring rows, and not a row of each other home.
func (a *Audit) region(id string, followers checksum) (err error) {
	prefix := graph.RegionPrefix(nil, id)
	it := a.views[0].Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	var other checksum
	for it.Next() {
		rest := it.Key()[len(prefix):]
		if len(rest) > 0 && !a.held.Has(rest[0]) {
			continue // only the graph has its home
		}
		r, err := graph.DecodeRegionRow(rest, it.Value())
		if err != nil {
			return err
		}
		if r.Follows {
			other.add(r.Key)
		}
	}
	if err := it.Error(); err != nil {
		return err // what was not read is not missing
	}
	if other != followers {
		a.find("mirror", []string{"graph"}, "followers: %d in the list, %d from the other side, and not the same", followers.n, other.n)
	}
	return nil
}

// board makes all checks of a board.
func (a *Audit) board(ctx context.Context, owner, id string) error {
	pins, err := a.counters.BoardPins(owner, id)
	if err != nil {
		return err
	}
	own, err := a.graph.BoardCounts(owner, id)
	if err != nil {
		return err
	}
	for _, l := range []struct {
		kind graph.ListKind
		name string
		own  int64
	}{
		{graph.BoardFollowersExplicit, "board followers", own.Followers},
		{graph.BoardExcluders, "excluders", own.Excluders},
		{graph.BoardFollowers, "for whom it appears", own.Appears},
	} {
		n, _, err := a.list(ctx, graph.List{Kind: l.kind, User: owner, Board: id}, l.name)
		if err != nil {
			return err
		}
		a.same(l.name, "graph", l.own, n, "graph")
	}
	return a.pins(ctx, owner, &id, pins)
}

// rest is the part of a list after its first page.
type rest struct {
	l     graph.List
	name  string
	after graph.PageCursor
}

// list walks over a list and returns its length and the checksum of its users who are held, all at one position. It looks up the other
// sides of the first page at once, and leaves those of later pages to [Audit.mirrors], which may use another position.
func (a *Audit) list(ctx context.Context, l graph.List, name string) (n int64, here checksum, err error) {
	var after graph.PageCursor
	var key []byte
	for {
		page, next, err := a.graph.List(ctx, l, after, pageRows)
		if err != nil {
			return 0, here, err
		}
		if after == nil {
			if err := a.mirrorPage(ctx, l, page, name); err != nil {
				return 0, here, err
			}
			if next != nil {
				a.later = append(a.later, rest{l, name, next})
			}
		}
		for i := range page {
			if a.holds(page[i].User) {
				key = events.AppendID(key[:0], page[i].User)
				here.add(key)
			}
		}
		n += int64(len(page))
		if next == nil {
			return n, here, nil
		}
		if err := a.rest(ctx); err != nil {
			return 0, here, err
		}
		if a.limits.List > 0 && n >= int64(a.limits.List) {
			return unknown, here, nil
		}
		after = next
	}
}

// mirrors looks up the other sides of the rests of long lists. That takes long, so it may move to another position between two pages. An
// entry and its other side are read at the same position.
func (a *Audit) mirrors(ctx context.Context) error {
	for _, r := range a.later {
		for n := pageRows; r.after != nil && (a.limits.List == 0 || n < a.limits.List); n += pageRows {
			if err := a.move(ctx); err != nil {
				return err
			}
			page, next, err := a.graph.List(ctx, r.l, r.after, pageRows)
			if err == nil {
				err = a.mirrorPage(ctx, r.l, page, r.name)
			}
			if err != nil {
				return err
			}
			r.after = next
		}
	}
	return nil
}

// mirrorPage looks up the other side of every entry of a page whose turn it is.
func (a *Audit) mirrorPage(ctx context.Context, l graph.List, page []graph.Entry, name string) error {
	for i := range page {
		if !a.limits.has(page[i].User) {
			continue
		}
		if err := a.mirror(l, &page[i], name); err != nil {
			return err
		}
		if i%restRows == restRows-1 {
			if err := a.rest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// mirror looks up an entry of a list from its other side, if that is held, and otherwise asks for it on this side.
func (a *Audit) mirror(l graph.List, e *graph.Entry, name string) error {
	elsewhere := !a.holds(e.User)
	here := graph.Entry{User: l.User, Board: l.Board, Since: e.Since}
	other := graph.List{User: e.User, Board: e.Board}
	ok := true
	var err error
	switch l.Kind {
	case graph.FollowingExplicit, graph.FollowingImplicit:
		other.Kind = map[graph.ListKind]graph.ListKind{
			graph.FollowingExplicit: graph.FollowersExplicit, graph.FollowingImplicit: graph.FollowersImplicit,
		}[l.Kind]
		var f graph.Follow
		if f, err = a.graph.UserFollow(l.User, e.User); err == nil && f != (graph.Follow{Kind: e.Kind, Since: e.Since}) {
			a.find("mirror", []string{"graph"}, "%s: %s since %d, asked for directly %v", name, e.User, e.Since, f)
		}
	case graph.FollowersExplicit:
		other.Kind = graph.FollowingExplicit
	case graph.FollowersImplicit:
		other.Kind = graph.FollowingImplicit
	case graph.FollowedBoards:
		other.Kind = graph.BoardFollowersExplicit
	case graph.ExcludedBoards:
		other.Kind = graph.BoardExcluders
	case graph.BoardFollowersExplicit:
		other.Kind = graph.FollowedBoards
	case graph.BoardExcluders:
		other.Kind = graph.ExcludedBoards
	case graph.Blocked, graph.Muted:
		var mine, theirs graph.Relationship
		if mine, err = a.graph.Relationship(l.User, e.User); err == nil && !elsewhere {
			theirs, err = a.graph.Relationship(e.User, l.User)
		}
		ok = l.Kind == graph.Muted && mine.Muting || l.Kind == graph.Blocked && mine.Blocking && (elsewhere || theirs.BlockedBy)
	}
	if err == nil && other.Kind != 0 && !elsewhere {
		ok, err = a.graph.HasEntry(other, here)
	}
	if err == nil && !ok {
		a.find("mirror", []string{"graph"}, "%s: %s %s since %d, which is not so from the other side", name, e.User, e.Board, e.Since)
	}
	return err
}

// pins compares the length of a list of pins with the counts that inbox and counters have of it.
func (a *Audit) pins(ctx context.Context, owner string, board *string, count int64) error {
	own, err := a.inbox.PinCount(owner, board)
	if err != nil {
		return err
	}
	var items *shown
	if board == nil {
		items = &shown{owner: owner, all: map[string]int64{}, on: map[[2]string]int64{}}
	}
	var after inbox.PageCursor
	for n := int64(0); ; {
		page, next, err := a.inbox.Pins(ctx, owner, board, after, pageRows)
		if err != nil {
			return err
		}
		n += int64(len(page))
		for i := range page {
			if items != nil {
				items.add(page[i].Item, page[i].Board)
			}
		}
		if next == nil {
			a.same("pins", "inbox", own, n, "inbox")
			a.same("pins", "counters", count, n, "inbox", "counters")
			if items != nil {
				return a.shows(ctx, items)
			}
			return nil
		}
		if err := a.rest(ctx); err != nil {
			return err
		}
		if a.limits.List > 0 && n >= int64(a.limits.List) {
			return nil
		}
		after = next
	}
}
