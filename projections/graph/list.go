package graph

import (
	"bytes"
	"context"
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// ListKind names a kind of list.
type ListKind uint8

// The kinds of lists. Their values are part of page tokens and never change.
const (
	// Following and Followers have explicit and implicit follows. The kinds with longer names have
	// one of them.
	Following         ListKind = 1
	FollowingExplicit ListKind = 2
	FollowingImplicit ListKind = 3
	Followers         ListKind = 4
	FollowersExplicit ListKind = 5
	FollowersImplicit ListKind = 6
	// BoardFollowers has every user for whom a board appears.
	BoardFollowers ListKind = 7
	// BoardFollowersExplicit has the users who follow the board itself.
	BoardFollowersExplicit ListKind = 8
	BoardExcluders         ListKind = 9
	FollowedBoards         ListKind = 10
	ExcludedBoards         ListKind = 11
	Boards                 ListKind = 12
	Blocked                ListKind = 13
	Muted                  ListKind = 14
	// Mutuals has the followers of List.Peer whom List.User follows, in the order of User's
	// follows.
	Mutuals ListKind = 15
	// Favorites and Notifying have the follows with these settings, explicit and implicit ones. The
	// settings that were set last come first.
	Favorites ListKind = 16
	Notifying ListKind = 17
)

// List names one list.
type List struct {
	Kind ListKind
	// User is the user whose list it is. For a list of a board, it is the owner of the board.
	User string
	// Board is the board, for a list of a board.
	Board string
	// Peer is the other user, for Mutuals.
	Peer string
}

// Entry is one entry of a list.
type Entry struct {
	// User is the other user of a relation. In a list of boards, it is the owner of the board.
	User string
	// Board and Title are set in lists of boards. Title is set in the list Boards only.
	Board, Title string
	// Kind is set in lists of follows.
	Kind  FollowKind
	Since events.Micros
	// Settings are the settings of the follow, in lists of follows of List.User.
	Settings events.FollowSettings
	// Until is when the mute ends, in the list Muted. 0 means that it has no end.
	Until events.Micros
}

// PageCursor says where a list continues after a page: it is the time and the ids of the last
// entry, as they are in the entry's key. Writes do not invalidate a page cursor.
type PageCursor []byte

// CursorBefore returns a page cursor after which a list continues with the newest entry whose time
// is not after at. It has no id, so it precedes all entries of this time.
func CursorBefore(at events.Micros) PageCursor {
	return binary.BigEndian.AppendUint64(nil, ^uint64(at))
}

// listIterator walks over the rows of one stored list, beginning after a page cursor.
type listIterator struct {
	rows   projections.Iterator
	prefix []byte
	// kind is the kind of the entries.
	kind FollowKind
	// valid is set while it is at a row.
	valid bool
}

func (q *Queries) openList(prefix []byte, kind FollowKind, after PageCursor) *listIterator {
	return newListIterator(q.reader.Iter(prefix, projections.PrefixEnd(prefix)), prefix, kind, after)
}

func newListIterator(
	rows projections.Iterator, prefix []byte, kind FollowKind, after PageCursor,
) *listIterator {
	l := &listIterator{rows: rows, prefix: prefix, kind: kind}
	if after == nil {
		l.valid = l.rows.Next()
		return l
	}

	// Seek to the first key after that of the page cursor, which is the cursor's key and a zero
	// byte: no key is a prefix of another.
	key := append(append(append([]byte(nil), prefix...), after...), 0)
	l.valid = l.rows.SeekGE(key)
	return l
}

// sortKey returns the part of the key that orders the entries: the time and the ids.
func (l *listIterator) sortKey() []byte { return l.rows.Key()[len(l.prefix):] }

func (l *listIterator) next() { l.valid = l.rows.Next() }

// listIterators returns iterators over the stored lists whose merge is the list.
func (q *Queries) listIterators(l List, after PageCursor) []*listIterator {
	ofUser := func(tag projections.Tag, kind FollowKind) *listIterator {
		return q.openList(projections.AppendKey(nil, tag, l.User), kind, after)
	}
	ofBoard := func(tag projections.Tag, kind FollowKind) *listIterator {
		return q.openList(projections.AppendKey(nil, tag, l.User, l.Board), kind, after)
	}
	// The list of explicit follows may have to be sorted first.
	explicitFollows := func() *listIterator {
		prefix := projections.AppendKey(nil, tagFollowingExplicit, l.User)
		return newListIterator(q.followingRows(l.User), prefix, Explicit, after)
	}

	switch l.Kind {
	case Following, Mutuals:
		return []*listIterator{explicitFollows(), ofUser(tagFollowingImplicit, Implicit)}
	case FollowingExplicit:
		return []*listIterator{explicitFollows()}
	case FollowingImplicit:
		return []*listIterator{ofUser(tagFollowingImplicit, Implicit)}
	case Followers:
		return []*listIterator{ofUser(tagFollowersExplicit, Explicit), ofUser(tagFollowersImplicit, Implicit)}
	case FollowersExplicit:
		return []*listIterator{ofUser(tagFollowersExplicit, Explicit)}
	case FollowersImplicit:
		return []*listIterator{ofUser(tagFollowersImplicit, Implicit)}
	case BoardFollowers:
		return []*listIterator{ofUser(tagFollowersExplicit, Explicit), ofBoard(tagBoardFollowers, OnBoard)}
	case BoardFollowersExplicit:
		return []*listIterator{ofBoard(tagBoardFollowers, OnBoard)}
	case BoardExcluders:
		return []*listIterator{ofBoard(tagBoardExcluders, Excluded)}
	case FollowedBoards:
		return []*listIterator{ofUser(tagFollowedBoards, OnBoard)}
	case ExcludedBoards:
		return []*listIterator{ofUser(tagExcludedBoards, Excluded)}
	case Boards:
		return []*listIterator{ofUser(tagBoardList, None)}
	case Blocked:
		return []*listIterator{ofUser(tagBlocked, None)}
	case Muted:
		prefix := projections.AppendKey(nil, tagMuted, l.User)
		return []*listIterator{ofUser(tagMuted, None), newListIterator(q.timedMutes(l.User), prefix, None, after)}
	case Favorites:
		return []*listIterator{ofUser(tagFavorites, None)}
	case Notifying:
		return []*listIterator{ofUser(tagNotifying, None)}
	}
	return nil
}

// List returns at most n entries after a page cursor, or from the newest entry if after is nil.
// next is the page cursor of the last entry returned if there are more entries, else nil. List
// reads the rows of the page and those that the filter of the list leaves out on it. If the list of
// explicit follows is not stored, List reads all of the user's edges (following_list.go).
func (q *Queries) List(
	ctx context.Context, l List, after PageCursor, n int,
) (page []Entry, next PageCursor, err error) {
	belongs, err := q.listFilter(l)
	if err != nil || belongs == nil {
		return nil, nil, err
	}

	iterators := q.listIterators(l, after)
	defer func() {
		for _, it := range iterators {
			if cerr := it.rows.Close(); err == nil {
				err = cerr
			}
		}
	}()

	var last PageCursor
	var e Entry // declared here, because the call of belongs makes it escape: one allocation instead of one for each row
	for step := 0; ; step++ {
		// The filter may leave out many rows, so a page can take long.
		if step%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}

		it := newestIterator(iterators)
		if it == nil {
			return page, nil, nil
		}
		sortKey := it.sortKey()
		if e, err = l.decodeEntry(it.kind, sortKey, it.rows.Value()); err != nil {
			return nil, nil, err
		}

		ok, err := belongs(&e)
		if err != nil {
			return nil, nil, err
		}
		if q.remote != nil && q.remote.Full() {
			return nil, nil, projections.ErrUnresolved
		}
		if ok {
			if len(page) == n {
				return page, last, nil // this entry is the first of the next page
			}
			page = append(page, e)
			last = append(last[:0], sortKey...)
		}
		it.next()
	}
}

// newestIterator returns the iterator whose next entry comes first, or nil if all are at their
// ends.
func newestIterator(iterators []*listIterator) *listIterator {
	var newest *listIterator
	for _, it := range iterators {
		if it.valid && (newest == nil || bytes.Compare(it.sortKey(), newest.sortKey()) < 0) {
			newest = it
		}
	}
	return newest
}

// decodeEntry reads an entry from its sort key and the value of its row.
func (l List) decodeEntry(kind FollowKind, sortKey, value []byte) (e Entry, err error) {
	e.Kind = kind
	switch {
	case l.Kind == Muted && len(value) != 0:
		e.Until, _, err = cutSince(value)
	case l.Kind != Muted:
		e.Settings, err = decodeSettingsValue(value)
	}
	if err != nil {
		return e, err
	}

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

// listFilter returns a function that decides whether a row belongs to the list, and completes its
// entry. A nil function means that the list is empty.
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
	case Favorites, Notifying:
		return func(e *Entry) (bool, error) {
			edge, err := readEdge(q.reader, q.keyBuffer(), outEnd, l.User, e.User)
			follow := edge.currentFollow()
			e.Kind, e.Since, e.Settings = follow.Kind, follow.Since, edge.followSettings()
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

// boardFollowersFilter returns the filter for the merge of a board's own followers and its owner's
// explicit followers. It leaves out users who exclude the board. A user in both lists is kept once,
// at the later of the two times.
func (q *Queries) boardFollowersFilter(owner, id string) (func(*Entry) (bool, error), error) {
	b, err := readBoard(q.reader, q.keyBuffer(), owner, id)
	if err != nil || (id != "" && !b.exists()) {
		return nil, err
	}

	// Most boards have no followers or excluders of their own. Then no edge needs to be read.
	var c BoardCounts
	key := projections.AppendKey(q.keyBuffer(), tagBoardCounts, owner, id)
	if err := readCounts(q.reader, key, c.fields()); err != nil {
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

		// The entry is from the board's own list. If the owner's list has the user at a later time,
		// that entry is kept.
		if e.Kind == OnBoard {
			since, explicit := edge.explicitSince()
			return !explicit || since <= e.Since, nil
		}

		// The entry is from the owner's list. If the board's own list has the user at the same time
		// or later, that entry is kept.
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

// Total returns the length of the list, or 0 for Mutuals, which are not counted.
func (q *Queries) Total(l List) (int64, error) {
	switch l.Kind {
	case BoardFollowers, BoardFollowersExplicit, BoardExcluders:
		c, err := q.BoardCounts(l.User, l.Board)
		switch l.Kind {
		case BoardFollowers:
			return c.Appears, err
		case BoardFollowersExplicit:
			return c.Followers, err
		}
		return c.Excluders, err
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
	case Favorites:
		return c.Favorites, err
	case Notifying:
		return c.Notifying, err
	}
	return 0, err
}
