package graph

import (
	"bytes"
	"context"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// ListKind is a kind of list.
type ListKind uint8

// The kinds of lists. Their values are part of page tokens and never change.
const (
	// Following and Followers have explicit and implicit follows. The kinds with "Explicit" or
	// "Implicit" in their names have only these.
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
	// Mutuals has the users whom List.User follows and who follow List.Peer, in the order of
	// Following.
	Mutuals ListKind = 15
	// Favorites and Notifying have the follows with these settings, explicit and implicit ones.
	// They are ordered by the time at which the settings were set, newest first.
	Favorites ListKind = 16
	Notifying ListKind = 17
)

// List identifies a list.
type List struct {
	Kind ListKind
	// User is the user to whom the list belongs. If the list belongs to a board, User is the owner
	// of the board.
	User string
	// Board is the board to which the list belongs, if it belongs to one.
	Board string
	// Peer is the other user, for Mutuals.
	Peer string
}

// Entry is one entry of a list.
type Entry struct {
	// User is the user whom the entry shows. In a list of boards, it is the owner of the board.
	User string
	// Board is the board that the entry shows, in a list of boards. Title is its title, in the list
	// Boards only.
	Board, Title string
	// Kind says how the one user follows the other, or a board, in lists of follows and of
	// excluders or excluded boards. It is None in all other lists.
	Kind FollowKind
	// Since is the time since when the relation holds. In Favorites and Notifying, that relation is
	// the follow, although the times of the settings decide the order. In Boards, it is the time
	// since when the board exists.
	Since events.Micros
	// Settings are the settings of the follow, in lists of users whom List.User follows. They are 0
	// in all other lists.
	Settings events.FollowSettings
	// Until is when the mute ends, in the list Muted. 0 means that it has no end.
	Until events.Micros
}

// PageCursor says where a list continues after a page. It is the sort key of the last entry of the
// page, which is the part of the row's key with the time and the ids, or a result of
// [CursorBefore]. A nil PageCursor stands for the beginning of the list. Events that add or remove
// entries do not invalidate it.
type PageCursor []byte

// CursorBefore returns a page cursor after which a list continues with the newest entry that is not
// newer than at. The cursor is a time without ids, which sorts before all entries of this time.
func CursorBefore(at events.Micros) PageCursor {
	return appendDescendingTime(nil, at)
}

// listIterator walks over the rows of one list of rows, beginning after a page cursor.
type listIterator struct {
	rows projections.Iterator
	// prefix is the prefix of the keys of the rows. The sort key follows it.
	prefix []byte
	// kind is the FollowKind of all entries.
	kind FollowKind
	// valid says that the iterator is at a row. It is false at the end and after an error.
	valid bool
}

// openList returns an iterator over the stored rows whose keys have the prefix. The caller must
// close listIterator.rows.
func (q *Queries) openList(prefix []byte, kind FollowKind, after PageCursor) *listIterator {
	return newListIterator(q.reader.Iter(prefix, projections.PrefixEnd(prefix)), prefix, kind, after)
}

// newListIterator returns an iterator over rows whose keys have the prefix, at the first row after
// the page cursor.
func newListIterator(
	rows projections.Iterator, prefix []byte, kind FollowKind, after PageCursor,
) *listIterator {
	l := &listIterator{rows: rows, prefix: prefix, kind: kind}
	if after == nil {
		l.valid = l.rows.Next()
		return l
	}

	// Seek to the first key that is greater than that of the page cursor: the same key with a zero
	// byte appended. The entry of the cursor itself may have been removed.
	key := append(append(append([]byte(nil), prefix...), after...), 0)
	l.valid = l.rows.SeekGE(key)
	return l
}

// sortKey returns the part of the current key by which entries are sorted: the time and the ids.
func (l *listIterator) sortKey() []byte { return l.rows.Key()[len(l.prefix):] }

// next moves the iterator to the next row.
func (l *listIterator) next() { l.valid = l.rows.Next() }

// listIterators returns iterators over one or two lists of rows. The list that a query returns is
// their merge, without the entries that [Queries.listFilter] leaves out. The caller must close
// their rows.
func (q *Queries) listIterators(l List, after PageCursor) []*listIterator {
	ofUser := func(tag projections.Tag, kind FollowKind) *listIterator {
		return q.openList(projections.AppendKey(nil, tag, l.User), kind, after)
	}
	ofBoard := func(tag projections.Tag, kind FollowKind) *listIterator {
		return q.openList(projections.AppendKey(nil, tag, l.User, l.Board), kind, after)
	}
	// The list of explicit follows may have to be made from the edges (following_list.go).
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
		return []*listIterator{ofUser(tagBoards, None)}
	case Blocked:
		return []*listIterator{ofUser(tagBlocked, None)}
	case Muted:
		prefix := projections.AppendKey(nil, tagMuted, l.User)
		return []*listIterator{ofUser(tagMuted, None), newListIterator(q.timedMuteRows(l.User), prefix, None, after)}
	case Favorites:
		return []*listIterator{ofUser(tagFavorites, None)}
	case Notifying:
		return []*listIterator{ofUser(tagNotifying, None)}
	}
	return nil
}

// List returns at most n entries after a page cursor, or from the newest entry if after is nil. n
// must be at least 1. next is the page cursor of the last entry returned if there are more entries,
// else nil. List reads the rows of the entries, of the entry that follows them, and of all that the
// filter of the list leaves out before that entry. If the list of explicit follows is not stored,
// List reads all edges of the user (following_list.go).
func (q *Queries) List(
	ctx context.Context, list List, after PageCursor, n int,
) (page []Entry, next PageCursor, err error) {
	filter, err := q.listFilter(list)
	if err != nil || filter == nil {
		return nil, nil, err
	}

	iterators := q.listIterators(list, after)
	defer func() {
		for _, it := range iterators {
			if closeErr := it.rows.Close(); err == nil {
				err = closeErr
			}
		}
	}()

	var last PageCursor // that of the last entry of page
	// The entry is declared outside of the loop, because the call of filter makes it escape: that
	// is one allocation instead of one for each row.
	var entry Entry
	for step := 0; ; step++ {
		// The filter may leave out many rows, so a page can take long. Check the context once in
		// 1024 rows.
		if step%1024 == 1023 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}

		it := newestIterator(iterators)
		if it == nil {
			return page, nil, nil
		}
		sortKey := it.sortKey()
		if entry, err = list.decodeEntry(it.kind, sortKey, it.rows.Value()); err != nil {
			return nil, nil, err
		}

		belongs, err := filter(&entry)
		if err != nil {
			return nil, nil, err
		}
		// If q.remote is full, the filter has asked as many questions about other homes as can be
		// answered at once. The caller gets the answers and runs the query again.
		if q.remote != nil && q.remote.Full() {
			return nil, nil, projections.ErrUnresolved
		}
		if belongs {
			if len(page) == n {
				return page, last, nil // this entry is the first of the next page
			}
			page = append(page, entry)
			last = append(last[:0], sortKey...)
		}
		it.next()
	}
}

// newestIterator returns the iterator whose current row sorts first, or nil if all are at their
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

// decodeEntry decodes an entry from the sort key and the value of its row. Rows of the list Muted
// have the end of the mute as their value, if there is one. In all other lists, the value is that
// of [settingsValue], or empty.
func (l List) decodeEntry(kind FollowKind, sortKey, value []byte) (e Entry, err error) {
	e.Kind = kind
	switch {
	case l.Kind == Muted && len(value) != 0:
		e.Until, _, err = cutDescendingTime(value)
	case l.Kind != Muted:
		e.Settings, err = decodeSettingsValue(value)
	}
	if err != nil {
		return e, err
	}

	var rest []byte
	if e.Since, rest, err = cutDescendingTime(sortKey); err != nil {
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

// entryFilter reports whether the entry of a row belongs to a list, and sets fields of the entry
// that the row does not have.
type entryFilter func(*Entry) (belongs bool, err error)

// acceptEntry is the filter of a list that leaves out no row.
func acceptEntry(*Entry) (bool, error) { return true, nil }

// listFilter returns the filter of the list. A nil filter without an error means that the list is
// empty.
func (q *Queries) listFilter(l List) (entryFilter, error) {
	switch l.Kind {
	case BoardFollowers:
		return q.boardFollowersFilter(l.User, l.Board)
	case Boards:
		return func(e *Entry) (bool, error) {
			row, err := readBoard(q.reader, q.keyBuffer(), e.User, e.Board)
			e.Title = row.title
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
			follow, err := q.FollowedBy(l.Peer, e.User)
			return follow.Kind != None, err
		}, nil
	}
	return acceptEntry, nil
}

// boardFollowersFilter returns the filter of the list BoardFollowers, which is a merge of the
// board's own followers and its owner's explicit followers. The filter leaves out users who exclude
// the board. A user in both lists belongs to the list once, at the later of the two times. The
// filter is nil if the board does not exist.
func (q *Queries) boardFollowersFilter(owner, board string) (entryFilter, error) {
	row, err := readBoard(q.reader, q.keyBuffer(), owner, board)
	if err != nil || (board != "" && !row.exists()) {
		return nil, err
	}

	// Most boards have no followers of their own and no excluders. Then the list is that of the
	// owner's followers, and no edge needs to be read.
	var counts BoardCounts
	key := projections.AppendKey(q.keyBuffer(), tagBoardCounts, owner, board)
	if err := readCounts(q.reader, key, counts.fields()); err != nil {
		return nil, err
	}
	if counts.Followers == 0 && counts.Excluders == 0 {
		return acceptEntry, nil
	}

	return func(e *Entry) (bool, error) {
		edge, err := readEdge(q.reader, q.keyBuffer(), inEnd, e.User, owner)
		if err != nil {
			return false, err
		}

		// The entry is from the board's own list. It belongs to the merged list, unless the owner's
		// list has the user at a later time.
		if e.Kind == OnBoard {
			since, explicit := edge.explicitSince()
			return !explicit || since <= e.Since, nil
		}

		// The entry is from the owner's list. It belongs to the merged list, unless the user
		// excludes the board, or the board's own list has the user at the same time or later.
		relation, err := q.readBoardRelation(&edge, inEnd, e.User, owner, board)
		switch {
		case err != nil || relation.kind == relationExclude:
			return false, err
		case relation.kind == relationFollow:
			e.Kind = OnBoard
			return relation.since < e.Since, nil
		}
		return true, nil
	}, nil
}

// Total returns the length of the list. It returns 0 for Mutuals, which are not counted.
func (q *Queries) Total(l List) (int64, error) {
	switch l.Kind {
	case BoardFollowers, BoardFollowersExplicit, BoardExcluders:
		counts, err := q.BoardCounts(l.User, l.Board)
		switch l.Kind {
		case BoardFollowers:
			return counts.Appears, err
		case BoardFollowersExplicit:
			return counts.Followers, err
		}
		return counts.Excluders, err
	}

	counts, err := q.UserCounts(l.User)
	switch l.Kind {
	case Following:
		return counts.Following + counts.FollowingImplicit, err
	case FollowingExplicit:
		return counts.Following, err
	case FollowingImplicit:
		return counts.FollowingImplicit, err
	case Followers:
		return counts.Followers + counts.FollowersImplicit, err
	case FollowersExplicit:
		return counts.Followers, err
	case FollowersImplicit:
		return counts.FollowersImplicit, err
	case FollowedBoards:
		return counts.FollowedBoards, err
	case ExcludedBoards:
		return counts.ExcludedBoards, err
	case Boards:
		return counts.Boards, err
	case Blocked:
		return counts.Blocked, err
	case Muted:
		return counts.Muted, err
	case Favorites:
		return counts.Favorites, err
	case Notifying:
		return counts.Notifying, err
	}
	return 0, err
}
