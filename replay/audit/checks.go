package audit

import (
	"context"

	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox"
)

const (
	// pageRows is how many entries of a list are in memory.
	pageRows = 1000
	// restRows is how many of them are looked up between two looks whether it is time to rest.
	restRows = 100
)

// unknown is the length of a list that is longer than the limit.
const unknown = -1

// side is one of the stores that have the graph.
type side struct {
	name string
	q    *graph.Queries
}

func (a *Audit) sides() []side { return []side{{"graph", a.graph}, {"inbox", a.embedded}} }

// same compares a count with a length.
func (a *Audit) same(what, of string, count, length int64, stores ...string) {
	if length != unknown && count != length {
		a.find("counts", stores, "%s: the count of %s is %d, the list is %d long", what, of, count, length)
	}
}

// user checks all that is known of a user.
func (a *Audit) user(ctx context.Context, id string) error {
	count, err := a.counters.User(id)
	if err != nil {
		return err
	}
	for _, s := range a.sides() {
		own, err := s.q.UserCounts(id)
		if err != nil {
			return err
		}
		for _, l := range []struct {
			kind       graph.ListKind
			name       string
			own, count int64
		}{
			{graph.FollowingExplicit, "following", own.Following, count.Following},
			{graph.FollowingImplicit, "following implicitly", own.FollowingImplicit, count.FollowingImplicit},
			{graph.FollowersExplicit, "followers", own.Followers, count.Followers},
			{graph.FollowersImplicit, "implicit followers", own.FollowersImplicit, count.FollowersImplicit},
			{graph.Boards, "boards", own.Boards, count.Boards},
			{graph.FollowedBoards, "followed boards", own.FollowedBoards, count.FollowedBoards},
			{graph.ExcludedBoards, "excluded boards", own.ExcludedBoards, count.ExcludedBoards},
			{graph.Blocked, "blocked", own.Blocked, unknown},
			{graph.Muted, "muted", own.Muted, unknown},
		} {
			n, err := a.list(ctx, s, graph.List{Kind: l.kind, User: id}, l.name)
			if err != nil {
				return err
			}
			a.same(l.name, s.name, l.own, n, s.name)
			if l.count != unknown {
				a.same(l.name, "counters", l.count, n, s.name, "counters")
			}
		}
	}
	if err := a.pins(ctx, id, nil, count.Pins); err != nil {
		return err
	}
	return a.feed(ctx, id)
}

// board checks all that is known of a board.
func (a *Audit) board(ctx context.Context, owner, id string) error {
	count, err := a.counters.Board(owner, id)
	if err != nil {
		return err
	}
	for _, s := range a.sides() {
		own, err := s.q.BoardCounts(owner, id)
		if err != nil {
			return err
		}
		for _, l := range []struct {
			kind       graph.ListKind
			name       string
			own, count int64
		}{
			{graph.BoardFollowersExplicit, "board followers", own.Followers, count.Followers},
			{graph.BoardExcluders, "excluders", own.Excluders, count.Excluders},
			{graph.BoardFollowers, "for whom it appears", own.Appears, count.Appears},
		} {
			n, err := a.list(ctx, s, graph.List{Kind: l.kind, User: owner, Board: id}, l.name)
			if err != nil {
				return err
			}
			a.same(l.name, s.name, l.own, n, s.name)
			a.same(l.name, "counters", l.count, n, s.name, "counters")
		}
	}
	return a.pins(ctx, owner, &id, count.Pins)
}

// rest is what is left of a list behind its first page.
type rest struct {
	s     side
	l     graph.List
	name  string
	after graph.Mark
}

// list walks over a list and returns its length, which is of one position. The other sides of its first page are looked up
// at once; those of the others need not be of that position ([Audit.mirrors]).
func (a *Audit) list(ctx context.Context, s side, l graph.List, name string) (n int64, err error) {
	var after graph.Mark
	for {
		page, next, err := s.q.List(ctx, l, after, pageRows)
		if err != nil {
			return 0, err
		}
		if after == nil {
			if err := a.mirrorPage(ctx, s, l, page, name); err != nil {
				return 0, err
			}
			if next != nil {
				a.later = append(a.later, rest{s, l, name, next})
			}
		}
		n += int64(len(page))
		if next == nil {
			return n, nil
		}
		if err := a.rest(ctx); err != nil {
			return 0, err
		}
		if a.limits.List > 0 && n >= int64(a.limits.List) {
			return unknown, nil
		}
		after = next
	}
}

// mirrors looks up the other sides of what is left of long lists. It takes long, and may move: an entry and its other side
// are read at one position, two pages need not be.
func (a *Audit) mirrors(ctx context.Context) error {
	for _, r := range a.later {
		for n := pageRows; r.after != nil && (a.limits.List == 0 || n < a.limits.List); n += pageRows {
			if err := a.move(ctx); err != nil {
				return err
			}
			page, next, err := r.s.q.List(ctx, r.l, r.after, pageRows)
			if err == nil {
				err = a.mirrorPage(ctx, r.s, r.l, page, r.name)
			}
			if err != nil {
				return err
			}
			r.after = next
		}
	}
	return nil
}

// mirrorPage looks up the other side of every entry of a page.
func (a *Audit) mirrorPage(ctx context.Context, s side, l graph.List, page []graph.Entry, name string) error {
	for i := range page {
		if err := a.mirror(s, l, &page[i], name); err != nil {
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

// mirror looks up an entry of a list from its other side.
func (a *Audit) mirror(s side, l graph.List, e *graph.Entry, name string) error {
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
		if f, err = s.q.User(l.User, e.User); err == nil && f != (graph.Follow{Kind: e.Kind, Since: e.Since}) {
			a.find("mirror", []string{s.name}, "%s in %s: %s since %d, asked for directly %v", name, s.name, e.User, e.Since, f)
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
		if mine, err = s.q.Relationship(l.User, e.User); err == nil {
			theirs, err = s.q.Relationship(e.User, l.User)
		}
		ok = l.Kind == graph.Muted && mine.Muting || l.Kind == graph.Blocked && mine.Blocking && theirs.BlockedBy
	}
	if err == nil && other.Kind != 0 {
		ok, err = s.q.InList(other, here)
	}
	if err == nil && !ok {
		a.find("mirror", []string{s.name}, "%s in %s: %s %s since %d, which is not so from the other side", name, s.name, e.User,
			e.Board, e.Since)
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
	var after inbox.Mark
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
