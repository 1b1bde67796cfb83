package graph

import (
	"bytes"
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// ListKind names a list.
type ListKind uint8

// The lists. The value of each is part of page tokens and never changes.
const (
	// Following and Followers hold explicit and implicit follows; the others of the name one kind.
	Following         ListKind = 1
	FollowingExplicit ListKind = 2
	FollowingImplicit ListKind = 3
	Followers         ListKind = 4
	FollowersExplicit ListKind = 5
	FollowersImplicit ListKind = 6
	// BoardFollowers holds everyone for whom a board appears.
	BoardFollowers ListKind = 7
	// BoardFollowersExplicit holds who follows the board itself.
	BoardFollowersExplicit ListKind = 8
	BoardExcluders         ListKind = 9
	FollowedBoards         ListKind = 10
	ExcludedBoards         ListKind = 11
	Boards                 ListKind = 12
	Blocked                ListKind = 13
	Muted                  ListKind = 14
	// Mutuals holds the followers of Peer whom User follows, in the order of User's follows.
	Mutuals ListKind = 15
)

// List names one list.
type List struct {
	Kind ListKind
	// User is whose list it is: for lists of a board, its owner.
	User string
	// Board is the board, for lists of a board.
	Board string
	// Peer is the other user, for Mutuals.
	Peer string
}

// Entry is one entry of a list.
type Entry struct {
	// User is the user at the other end; in lists of boards, the board's owner.
	User string
	// Board and Title are of a board, in lists of boards.
	Board, Title string
	// Kind is how, in lists of follows.
	Kind  FollowKind
	Since events.Micros
}

// PageCursor is where a list continues after a page: the time and ids of the last entry, as they stand in its key. Writes do not
// invalidate it.
type PageCursor []byte

// listIterator walks over one newest-first row list, from a page cursor on.
type listIterator struct {
	it     projections.Iterator
	prefix []byte
	kind   FollowKind
	valid  bool
}

func (q *Queries) openList(prefix []byte, kind FollowKind, after PageCursor) *listIterator {
	return newListIterator(q.reader.Iter(prefix, projections.PrefixEnd(prefix)), prefix, kind, after)
}

func newListIterator(it projections.Iterator, prefix []byte, kind FollowKind, after PageCursor) *listIterator {
	s := &listIterator{it: it, prefix: prefix, kind: kind}
	if after == nil {
		s.valid = s.it.Next()
		return s
	}
	// The first key after the page cursor's own: no key is the beginning of another.
	s.valid = s.it.SeekGE(append(append(append([]byte(nil), prefix...), after...), 0))
	return s
}

func (s *listIterator) sortKey() []byte { return s.it.Key()[len(s.prefix):] }

func (s *listIterator) next() { s.valid = s.it.Next() }

// iterators returns those of the row lists of which the list is the merge, with the kind of the entries of each.
func (q *Queries) listIterators(l List, after PageCursor) []*listIterator {
	one := func(tag projections.Tag, kind FollowKind) *listIterator {
		return q.openList(projections.AppendKey(nil, tag, l.User), kind, after)
	}
	followees := func() *listIterator {
		return newListIterator(q.followingRows(l.User), projections.AppendKey(nil, tagFollowing, l.User), Explicit, after)
	}
	ofBoard := func(tag projections.Tag, kind FollowKind) *listIterator {
		return q.openList(projections.AppendKey(nil, tag, l.User, l.Board), kind, after)
	}
	switch l.Kind {
	case Following, Mutuals:
		return []*listIterator{followees(), one(tagFollowingImplicit, Implicit)}
	case FollowingExplicit:
		return []*listIterator{followees()}
	case FollowingImplicit:
		return []*listIterator{one(tagFollowingImplicit, Implicit)}
	case Followers:
		return []*listIterator{one(tagFollowers, Explicit), one(tagFollowersImplicit, Implicit)}
	case FollowersExplicit:
		return []*listIterator{one(tagFollowers, Explicit)}
	case FollowersImplicit:
		return []*listIterator{one(tagFollowersImplicit, Implicit)}
	case BoardFollowers:
		return []*listIterator{one(tagFollowers, Explicit), ofBoard(tagBoardFollowers, OnBoard)}
	case BoardFollowersExplicit:
		return []*listIterator{ofBoard(tagBoardFollowers, OnBoard)}
	case BoardExcluders:
		return []*listIterator{ofBoard(tagBoardExcluders, Excluded)}
	case FollowedBoards:
		return []*listIterator{one(tagFollowedBoards, OnBoard)}
	case ExcludedBoards:
		return []*listIterator{one(tagExcludedBoards, Excluded)}
	case Boards:
		return []*listIterator{one(tagBoards, None)}
	case Blocked:
		return []*listIterator{one(tagBlocked, None)}
	case Muted:
		return []*listIterator{one(tagMuted, None)}
	}
	return nil
}

// List returns at most n entries after a page cursor (nil: from the newest), and the page cursor of the last one if there are
// more. It costs the rows of the page and those it skips on it; of whom a user follows, all of a short list (short.go).
func (q *Queries) List(ctx context.Context, l List, after PageCursor, n int) (page []Entry, next PageCursor, err error) {
	keep, err := q.listFilter(l)
	if err != nil || keep == nil {
		return nil, nil, err
	}
	iterators := q.listIterators(l, after)
	defer func() {
		for _, s := range iterators {
			if cerr := s.it.Close(); err == nil {
				err = cerr
			}
		}
	}()
	var last PageCursor
	var e Entry // one for all: keep makes it escape
	for step := 0; ; step++ {
		if step%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		s := newestIterator(iterators)
		if s == nil {
			return page, nil, nil
		}
		sortKey := s.sortKey()
		if e, err = l.decodeEntry(s.kind, sortKey); err != nil {
			return nil, nil, err
		}
		ok, err := keep(&e)
		if err != nil {
			return nil, nil, err
		}
		if q.remote != nil && q.remote.Full() {
			return nil, nil, projections.ErrElsewhere
		}
		if ok {
			if len(page) == n {
				return page, last, nil
			}
			page, last = append(page, e), append(last[:0], sortKey...)
		}
		s.next()
	}
}

func newestIterator(iterators []*listIterator) *listIterator {
	var best *listIterator
	for _, s := range iterators {
		if s.valid && (best == nil || bytes.Compare(s.sortKey(), best.sortKey()) < 0) {
			best = s
		}
	}
	return best
}

// entry reads an entry from its sort key in a list.
func (l List) decodeEntry(kind FollowKind, sortKey []byte) (e Entry, err error) {
	e.Kind = kind
	var rest []byte
	if e.Since, rest, err = cutSince(sortKey); err != nil {
		return e, err
	}
	switch l.Kind {
	case Boards:
		e.User = l.User
		e.Board, _, err = events.CutID(rest)
	case FollowedBoards, ExcludedBoards:
		if e.User, rest, err = events.CutID(rest); err == nil {
			e.Board, _, err = events.CutID(rest)
		}
	default:
		e.User, _, err = events.CutID(rest)
	}
	return e, err
}

// filter returns what decides whether a row belongs to the list and completes its entry; nil means the list is empty.
func (q *Queries) listFilter(l List) (func(*Entry) (bool, error), error) {
	switch l.Kind {
	case BoardFollowers:
		return q.boardFollowersFilter(l.User, l.Board)
	case Boards:
		return func(e *Entry) (bool, error) {
			b, err := readBoard(q.reader, q.keyBuffer(), e.User, e.Board)
			e.Title = b.title
			return true, err
		}, nil
	case Mutuals:
		return func(e *Entry) (bool, error) {
			f, err := q.FollowedBy(l.Peer, e.User)
			return f.Kind != None, err
		}, nil
	}
	return func(*Entry) (bool, error) { return true, nil }, nil
}

// boardFollowers filters the merge of a board's own followers and its owner's explicit ones: who excludes the
// board does not belong to it, and who stands in both stands at the later time.
func (q *Queries) boardFollowersFilter(owner, id string) (func(*Entry) (bool, error), error) {
	b, err := readBoard(q.reader, q.keyBuffer(), owner, id)
	if err != nil || (id != "" && !b.exists()) {
		return nil, err
	}
	var c BoardCounts
	if err := readCounts(q.reader, projections.AppendKey(q.keyBuffer(), tagBoardCounts, owner, id), c.fields()); err != nil {
		return nil, err
	}
	if c.Followers == 0 && c.Excluders == 0 {
		return func(*Entry) (bool, error) { return true, nil }, nil
	}
	return func(e *Entry) (bool, error) {
		edge, err := readEdge(q.reader, q.keyBuffer(), inEnd, e.User, owner)
		if err != nil {
			return false, err
		}
		since, explicit := edge.explicitSince()
		if e.Kind == OnBoard {
			return !explicit || since <= e.Since, nil
		}
		r, err := q.boardRelation(&edge, inEnd, e.User, owner, id)
		switch {
		case err != nil || r.kind == relationExclude:
			return false, err
		case r.kind == relationFollow:
			e.Kind = OnBoard
			return r.since < e.Since, nil
		}
		return true, nil
	}, nil
}

// Total returns the length of the list; of Mutuals, which no count knows, 0.
func (q *Queries) Total(l List) (int64, error) {
	switch l.Kind {
	case BoardFollowers, BoardFollowersExplicit, BoardExcluders:
		c, err := q.BoardCounts(l.User, l.Board)
		return map[ListKind]int64{
			BoardFollowers: c.Appears, BoardFollowersExplicit: c.Followers, BoardExcluders: c.Excluders,
		}[l.Kind], err
	}
	c, err := q.UserCounts(l.User)
	switch l.Kind {
	case Following:
		return c.Following + c.FollowingImplicit, err
	case FollowingExplicit:
		return c.Following, err
	case FollowingImplicit:
		return c.FollowingImplicit, err
	case Followers:
		return c.Followers + c.FollowersImplicit, err
	case FollowersExplicit:
		return c.Followers, err
	case FollowersImplicit:
		return c.FollowersImplicit, err
	case FollowedBoards:
		return c.FollowedBoards, err
	case ExcludedBoards:
		return c.ExcludedBoards, err
	case Boards:
		return c.Boards, err
	case Blocked:
		return c.Blocked, err
	case Muted:
		return c.Muted, err
	}
	return 0, err
}
