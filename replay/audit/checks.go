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
	// pageSize is how many entries of a list are in memory at a time.
	pageSize = 1000
	// lookupsPerRest is the number of lookups after which the audit may rest.
	lookupsPerRest = 100
)

// unknownLength stands for the length of a list that has more entries than the limit.
const unknownLength = -1

// compareCount adds a finding if a count is not the length of its list. list is the name of the
// list, and counter is the store that has the count. A list of unknownLength is not compared.
// suspects are the stores that may be wrong.
func (a *Audit) compareCount(list, counter string, count, length int64, suspects ...string) {
	if length != unknownLength && count != length {
		a.addFinding("counts", suspects, "%s: the count of %s is %d, the list is %d long", list, counter, count, length)
	}
}

// checkUser performs all checks of a user.
func (a *Audit) checkUser(ctx context.Context, id string) error {
	fromCounters, err := a.counters.UserCounts(id)
	if err != nil {
		return err
	}
	own, err := a.graph.UserCounts(id)
	if err != nil {
		return err
	}

	for _, l := range []struct {
		kind  graph.ListKind
		name  string
		count int64
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
		// Lists of followers are also compared with the region rows, which are written by other
		// code of the fold.
		length, heldUsers, err := a.readList(ctx, graph.List{Kind: l.kind, User: id}, l.name)
		if err == nil && l.kind == graph.FollowersExplicit && length != unknownLength {
			err = a.compareRegionRows(id, heldUsers)
		}
		if err != nil {
			return err
		}
		a.compareCount(l.name, "graph", l.count, length, "graph")
	}

	if err := a.checkPins(ctx, id, nil, fromCounters.Pins); err != nil {
		return err
	}
	if !a.limits.isTurnOf(id) {
		return nil
	}
	return a.checkFeed(ctx, id)
}

// userSetSum identifies a set of users by their number and the sum of their hashes. Neither depends
// on the order, so sets that are read in different orders can be compared without keeping them.
type userSetSum struct {
	n   int64
	sum uint64
}

// add adds the user with this key.
func (c *userSetSum) add(key []byte) {
	c.n++
	c.sum += xxh3.Hash(key)
}

// compareRegionRows compares the followers of a user with the region rows at the user's home, which
// are written together with the other ends of the follows. Only held followers count. Region rows
// are neighbors, so this takes one walk; the lists of the followers themselves are spread over all
// homes.
func (a *Audit) compareRegionRows(id string, followers userSetSum) (err error) {
	prefix := graph.RegionPrefix(nil, id)
	it := a.views[0].Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	var fromRegions userSetSum
	for it.Next() {
		rest := it.Key()[len(prefix):]
		if len(rest) > 0 && !a.heldPartitions.Has(rest[0]) {
			continue // only the graph holds the home of these followers
		}
		r, err := graph.DecodeRegionRow(rest, it.Value())
		if err != nil {
			return err
		}
		if r.Follows {
			fromRegions.add(r.Key)
		}
	}
	if err := it.Error(); err != nil {
		return err // do not report as missing what was not read
	}
	if fromRegions != followers {
		a.addFinding("mirror", []string{"graph"},
			"followers: the list has %d, the other side %d, and they are not the same users", followers.n, fromRegions.n)
	}
	return nil
}

// checkBoard performs all checks of a board.
func (a *Audit) checkBoard(ctx context.Context, owner, id string) error {
	pins, err := a.counters.BoardPins(owner, id)
	if err != nil {
		return err
	}
	own, err := a.graph.BoardCounts(owner, id)
	if err != nil {
		return err
	}

	for _, l := range []struct {
		kind  graph.ListKind
		name  string
		count int64
	}{
		{graph.BoardFollowersExplicit, "board followers", own.Followers},
		{graph.BoardExcluders, "excluders", own.Excluders},
		{graph.BoardFollowers, "for whom it appears", own.Appears},
	} {
		length, _, err := a.readList(ctx, graph.List{Kind: l.kind, User: owner, Board: id}, l.name)
		if err != nil {
			return err
		}
		a.compareCount(l.name, "graph", l.count, length, "graph")
	}
	return a.checkPins(ctx, owner, &id, pins)
}

// listRest is the part of a list after its first page.
type listRest struct {
	list  graph.List
	name  string
	after graph.PageCursor // the end of the pages whose other sides have been looked up
}

// readList reads a list and returns its length and the sum of its users who are held, all at one
// position. The length may be unknownLength. readList looks up the other sides of the entries
// of the first page at once. It leaves those of later pages to checkLaterMirrors, which may move to
// another position.
func (a *Audit) readList(ctx context.Context, l graph.List, name string) (length int64, heldUsers userSetSum, err error) {
	var after graph.PageCursor
	var key []byte
	for {
		page, next, err := a.graph.List(ctx, l, after, pageSize)
		if err != nil {
			return 0, heldUsers, err
		}

		if after == nil {
			if err := a.checkMirrorsOfPage(ctx, l, page, name); err != nil {
				return 0, heldUsers, err
			}
			if next != nil {
				a.unmirrored = append(a.unmirrored, listRest{l, name, next})
			}
		}

		for i := range page {
			if a.holds(page[i].User) {
				key = events.AppendID(key[:0], page[i].User)
				heldUsers.add(key)
			}
		}
		length += int64(len(page))
		if next == nil {
			return length, heldUsers, nil
		}
		// Rest, but do not move to another position: the length must be that of one position.
		if err := a.rest(ctx); err != nil {
			return 0, heldUsers, err
		}
		if a.limits.List > 0 && length >= int64(a.limits.List) {
			return unknownLength, heldUsers, nil
		}
		after = next
	}
}

// checkLaterMirrors looks up the other sides of the later pages of long lists. That takes long, so
// it may move to another position between two pages. An entry and its other side are always read at
// the same position.
func (a *Audit) checkLaterMirrors(ctx context.Context) error {
	for _, r := range a.unmirrored {
		isWithinLimit := func(n int) bool { return a.limits.List == 0 || n < a.limits.List }
		for n := pageSize; r.after != nil && isWithinLimit(n); n += pageSize {
			if err := a.moveIfDue(ctx); err != nil {
				return err
			}
			page, next, err := a.graph.List(ctx, r.list, r.after, pageSize)
			if err == nil {
				err = a.checkMirrorsOfPage(ctx, r.list, page, r.name)
			}
			if err != nil {
				return err
			}
			r.after = next
		}
	}
	return nil
}

// checkMirrorsOfPage looks up the other side of every entry of a page whose user has its turn in
// this audit.
func (a *Audit) checkMirrorsOfPage(ctx context.Context, l graph.List, page []graph.Entry, name string) error {
	for i := range page {
		if !a.limits.isTurnOf(page[i].User) {
			continue
		}
		if err := a.checkMirror(l, &page[i], name); err != nil {
			return err
		}
		if i%lookupsPerRest == lookupsPerRest-1 {
			if err := a.rest(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMirror looks up an entry of a list from its other side, the user whom the entry names. If
// the rows of that user are not held, it only checks blocks and mutes, on this side.
func (a *Audit) checkMirror(l graph.List, e *graph.Entry, name string) error {
	isHeldElsewhere := !a.holds(e.User)
	// other is the list that must contain mirrored. A Kind of 0 means that there is no such list.
	mirrored := graph.Entry{User: l.User, Board: l.Board, Since: e.Since}
	other := graph.List{User: e.User, Board: e.Board}
	ok := true
	var err error
	switch l.Kind {
	case graph.FollowingExplicit, graph.FollowingImplicit:
		other.Kind = graph.FollowersExplicit
		if l.Kind == graph.FollowingImplicit {
			other.Kind = graph.FollowersImplicit
		}
		// A lookup of the single follow must give what the list says.
		var f graph.Follow
		f, err = a.graph.UserFollow(l.User, e.User)
		if err == nil && f != (graph.Follow{Kind: e.Kind, Since: e.Since}) {
			a.addFinding("mirror", []string{"graph"},
				"%s: %s since %d, but a lookup of the follow gives %v", name, e.User, e.Since, f)
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
		mine, err = a.graph.Relationship(l.User, e.User)
		if err == nil && !isHeldElsewhere {
			theirs, err = a.graph.Relationship(e.User, l.User)
		}
		if l.Kind == graph.Muted {
			ok = mine.Muting
		} else {
			ok = mine.Blocking && (isHeldElsewhere || theirs.BlockedBy)
		}
	}

	if err == nil && other.Kind != 0 && !isHeldElsewhere {
		ok, err = a.graph.HasEntry(other, mirrored)
	}
	if err == nil && !ok {
		a.addFinding("mirror", []string{"graph"},
			"%s: %s %s since %d, which the other side does not have", name, e.User, e.Board, e.Since)
	}
	return err
}

// checkPins compares the length of a list of pins with the counts that inbox and counters keep.
// board is nil for all pins of the owner; their items are compared with counters, too. fromCounters
// is the count that counters has.
func (a *Audit) checkPins(ctx context.Context, owner string, board *string, fromCounters int64) error {
	own, err := a.inbox.PinCount(owner, board)
	if err != nil {
		return err
	}

	var items *itemCounts
	if board == nil {
		items = &itemCounts{owner: owner, byItem: map[string]int64{}, byItemAndBoard: map[[2]string]int64{}}
	}

	var after inbox.PageCursor
	for n := int64(0); ; {
		page, next, err := a.inbox.Pins(ctx, owner, board, after, pageSize)
		if err != nil {
			return err
		}

		n += int64(len(page))
		if items != nil {
			for i := range page {
				items.add(page[i].Item, page[i].Board)
			}
		}

		if next == nil {
			a.compareCount("pins", "inbox", own, n, "inbox")
			a.compareCount("pins", "counters", fromCounters, n, "inbox", "counters")
			if items != nil {
				return a.checkItems(ctx, items)
			}
			return nil
		}

		if err := a.rest(ctx); err != nil {
			return err
		}
		if a.limits.List > 0 && n >= int64(a.limits.List) {
			return nil // the counts and items of a part prove nothing
		}
		after = next
	}
}
