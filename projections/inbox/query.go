package inbox

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
)

// ErrExpired is returned for a page cursor whose session in the order Trending began longer ago
// than [SessionLifetime].
var ErrExpired = errors.New("inbox: the session has expired")

// ErrPageCursor is returned for bytes that are not a page cursor of the list that is read.
var ErrPageCursor = errors.New("inbox: not a cursor of this list")

// SessionLifetime is how long a session in the order Trending can be continued, in log time.
// Counters keep old scores for one hour.
const SessionLifetime events.Micros = 3600 * 1_000_000

// Order is the order of the pins in a feed.
type Order uint8

// The orders.
const (
	// Newest shows the newest pins first. Pins of the same time are sorted by owner, then by pin.
	Newest Order = iota
	// Trending takes the newest pins of the feed and sorts them by the heat of their items, the
	// hottest first. Pins without a score come last. Pins of the same score are sorted as in
	// Newest.
	Trending
)

// Pin is a living pin.
type Pin struct {
	Owner, ID string
	// Board is the board of the owner that the pin is on.
	Board string
	Item  string
	// Repin is set if the pin repeats another pin. RepinOwner and RepinPin name that pin. They are
	// empty if its owner was deleted since.
	Repin                bool
	RepinOwner, RepinPin string
	// Attributes are those of the event that created the pin or, if later, of the last one that
	// edited it.
	Attributes []byte
	Created    events.Micros
	// Edited is when the pin was last edited since it was created, or 0 if it was not.
	Edited events.Micros
	// Score is the heat of the item. It is 0 except in the order Trending.
	Score int64
}

// PageCursor says where a list continues after a page. It is opaque to callers. It names the last
// entry of the page and what the session needs, and not an offset, so writes do not invalidate it
// (I9).
type PageCursor []byte

// Feed says whose feed to read, and how.
type Feed struct {
	Reader string
	Order  Order
	// IncludeOwn includes the reader's own pins.
	IncludeOwn bool
	// OnePerItem shows only the first pin of each item. Each page must then read again what the
	// earlier pages of the session have read.
	OnePerItem bool
	// Only shows only the pins of the [MaxSelectedOwners] owners whose follows had this setting set
	// last, which is notify or favorite. With notify, the feed of the bell, re-pins are left out. 0
	// shows the pins of all owners whom the reader follows.
	Only events.FollowSettings
	// NewerThan shows only what is newer than the page that returned this cursor as its Top. nil
	// shows everything. NewerThan is valid in the order Newest only.
	NewerThan PageCursor
	// UnreadOnly shows only what is newer than the marker of the feed ([Queries.unreadMarker]).
	// It is valid in the order Newest only, and not together with NewerThan.
	UnreadOnly bool
	// Heat has the scores for the order Trending.
	Heat Heat
	// MaxRanked is how many of the newest pins the order Trending ranks. It shows no others.
	MaxRanked int
	// HiddenItems reports for each of the given items whether its pins are to be left out: hide[i]
	// is about items[i]. A nil function, or a nil result, hides nothing.
	HiddenItems func(items []string) (hide []bool, err error)
}

// MaxSelectedOwners is how many owners a feed with [Feed.Only] has. It bounds how many outboxes a
// page merges.
const MaxSelectedOwners = 500

// Page is a page of a feed.
type Page struct {
	Pins []Pin
	// Next is the cursor of the next page. It is nil on the last page, and only there.
	Next PageCursor
	// Top marks the top of the feed at the position of this page. Given as [Feed.NewerThan], it
	// selects what came later. It is set in the order Newest only.
	Top PageCursor
	// ReadMarker is the read marker of the reader, or 0 if there is none.
	ReadMarker events.Micros
	// OutboxesOpened is how many outboxes were merged for the page. It is 0 if the inbox had all of
	// the page and no owner is pulled.
	OutboxesOpened int
}

// State has the rows of an inbox store at one position. A [projections.View] is one.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers questions about a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state State
	graph *graph.Queries
	// scratch is memory for keys, reused by each read.
	scratch []byte
	// cache has the inboxes and outboxes that the store keeps in memory; nil means that there is no
	// such cache.
	cache *inboxcache.Cache
	// version is the version of the view. The cache decides by it whether an inbox or outbox can be
	// read for the view.
	version uint64
	// remoteLookup answers for partitions that are not in the state; nil means that the state has
	// all partitions.
	remoteLookup RemoteLookup
}

// RemoteLookup answers what queries ask about owners whose rows are not in their state. An answer
// that is not known is recorded. The query then goes on without it, its result is discarded, and
// the caller runs it again once the answer was fetched from another node.
type RemoteLookup interface {
	projections.RemoteLookup
	// Pin returns a pin, or nil if it does not live. known is false if the answer must be fetched
	// first.
	Pin(owner, id string) (p *Pin, known bool)
	// Outbox answers like [Queries.Outbox]. known is false if the answer must be fetched first.
	Outbox(owner string, board *string, from []byte, n int) (pins []Pin, next []byte, known bool)
	// Hiding answers like [Queries.Hiding]. known is false if the answer must be fetched first.
	Hiding(user, item string) (total int64, hides, known bool)
}

// Query returns the queries over a state of an inbox store.
func Query(r State) *Queries { return &Queries{state: r, graph: graph.NewQueries(r)} }

// CachedQuery returns queries over a view that also use what the store keeps in memory: whom
// readers follow, the newest pins of outboxes, and inboxes. Their answers are those of [Query].
func CachedQuery(v *projections.View) *Queries {
	q := &Queries{state: v, graph: graph.NewCachedQueries(v)}
	if c, ok := v.QueryCache().(*inboxcache.Cache); ok {
		q.cache, q.version = c, v.Version()
	}
	return q
}

// WithRemote sets where the queries look up what is not in their state, and returns the queries.
func (q *Queries) WithRemote(e RemoteLookup) *Queries {
	q.remoteLookup = e
	return q
}

// isRemote reports whether the rows of an owner are not in the state.
func (q *Queries) isRemote(owner string) bool {
	return q.remoteLookup != nil && !q.remoteLookup.Holds(owner)
}

// isIncomplete reports that an answer of another node was missing so far. The result of the query
// will then be discarded.
func (q *Queries) isIncomplete() bool {
	return q.remoteLookup != nil && q.remoteLookup.Unresolved()
}

// Feed returns a page of at most n pins. after is the cursor of the page; nil means the first page.
// A page has at least one pin unless the feed has ended. Feed returns [ErrExpired] and
// [ErrPageCursor] for cursors that it cannot use.
//
// The order Newest reads the rows of the page and, below the floor of the inbox, looks into each
// outbox that the reader follows. The order Trending does so for all pins that are ranked.
func (q *Queries) Feed(ctx context.Context, f Feed, after PageCursor, n int) (Page, error) {
	if f.Order == Trending {
		return q.readTrending(ctx, &f, after, n)
	}
	return q.readNewest(ctx, &f, after, n)
}

// FirstMuteEnd returns the earliest time at which a mute of the reader will end, among the mutes
// with an end that hold now. It is 0 if there is none.
func (q *Queries) FirstMuteEnd(reader string) (events.Micros, error) {
	return graph.NewQueries(q.state).FirstMuteEnd(reader)
}

// EachOwner calls do with every owner, other than the reader, whose pins may be in the reader's
// feed. It may name an owner more than once. It stops at the first error of do and returns that
// error.
func (q *Queries) EachOwner(reader string, do func(owner string) error) error {
	relations := graph.NewQueries(q.state)
	if err := relations.EachFollowee(reader, do); err != nil {
		return err
	}
	return relations.EachFollowedBoard(reader, func(owner, _ string) error { return do(owner) })
}

// Pin returns a pin and reports whether it lives. It costs one point read.
func (q *Queries) Pin(owner, id string) (p Pin, lives bool, err error) {
	found, err := q.livingPin(owner, id)
	if err != nil || found == nil {
		return Pin{}, false, err
	}
	return *found, true, nil
}

// livingPin returns a pin, or nil if it does not live. It also returns nil for a pin of another
// node that is not known yet.
func (q *Queries) livingPin(owner, id string) (*Pin, error) {
	if q.isRemote(owner) {
		p, known := q.remoteLookup.Pin(owner, id)
		if !known && q.remoteLookup.Full() {
			return nil, projections.ErrUnresolved // enough was recorded for one fetch
		}
		return p, nil
	}

	q.scratch = projections.AppendKey(q.scratch[:0], tagPin, owner, id)
	row, ok, err := q.state.Get(q.scratch)
	if err != nil || !ok {
		return nil, err
	}
	p, err := decodePin(row, id)
	if err != nil {
		return nil, err
	}
	s := p.State()
	if s.Creation == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	pin := &Pin{
		Owner: owner, ID: id, Board: s.Board, Item: s.Creation.Item, Repin: s.Creation.Repin, RepinOwner: s.Creation.RepinOwner,
		Attributes: s.Attributes(), Created: s.Creation.Time, Edited: s.Edited(),
	}
	if pin.RepinOwner != "" {
		pin.RepinPin = s.Creation.RepinPin
	}
	return pin, nil
}

// Pins lists at most n living pins of a user or, if board is not nil, of one of the user's boards,
// newest first. after is the cursor of the page; nil means the first page.
func (q *Queries) Pins(
	ctx context.Context, owner string, board *string, after PageCursor, n int,
) (pins []Pin, next PageCursor, err error) {
	var from []byte
	if after != nil {
		last, err := parsePinsCursor(after)
		if err != nil {
			return nil, nil, err
		}
		from = append(bytes.Clone(last), 0) // no key lies between the last entry and this
	}

	pins, more, err := q.Outbox(ctx, owner, board, from, n)
	if err != nil || more == nil {
		return pins, nil, err
	}
	last := &pins[len(pins)-1]
	next = appendNewestFirst(PageCursor{cursorPins}, last.Created)
	return pins, events.AppendID(next, last.ID), nil
}

// Outbox returns at most n pins of the outbox of an owner or, if board is not nil, of the outbox of
// a board, newest first. from says where to begin, as the time and the pin id in the key of a row;
// nil means at the newest pin. next is where the following pins begin, or nil if there are none.
func (q *Queries) Outbox(
	ctx context.Context, owner string, board *string, from []byte, n int,
) (pins []Pin, next []byte, err error) {
	prefix := q.outboxStream(new(arena), owner, board).prefix
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() {
		if closeErr := it.Close(); err == nil {
			err = closeErr
		}
	}()

	for more := it.SeekGE(append(bytes.Clone(prefix), from...)); more; more = it.Next() {
		if len(pins)%contextCheckInterval == contextCheckInterval-1 && ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if len(pins) == n {
			return pins, bytes.Clone(it.Key()[len(prefix):]), nil
		}

		created, id, err := cutOutboxKey(it.Key()[len(prefix):])
		if err != nil {
			return nil, nil, err
		}
		p, err := q.livingPin(owner, id)
		if err != nil {
			return nil, nil, err
		}
		// A pin and its outbox rows are written by one commit, so one without the other is corrupt.
		if p == nil || p.Created != created {
			return nil, nil, errRow("outbox of a pin that does not live", it.Key())
		}
		pins = append(pins, *p)
	}
	return pins, nil, nil
}

// MaxHiddenItems is how many items a user may hide. It is checked when events are published.
const MaxHiddenItems = hiddenitems.Max

// Hiding returns how many items a user hides, and whether the given item is one of them. It costs
// at most two point reads.
func (q *Queries) Hiding(user, item string) (total int64, hides bool, err error) {
	if q.isRemote(user) {
		total, hides, known := q.remoteLookup.Hiding(user, item)
		if !known && q.remoteLookup.Full() {
			return 0, false, projections.ErrUnresolved // enough was recorded for one fetch
		}
		return total, hides, nil
	}
	if total, err = hiddenItems.CountOf(q.state, user); err != nil || total == 0 {
		return 0, false, err
	}
	hides, err = hiddenItems.Hides(q.state, &q.scratch, user, item)
	return total, hides, err
}

// PinCount returns how many pins [Queries.Pins] lists in total.
func (q *Queries) PinCount(owner string, board *string) (int64, error) {
	if board != nil {
		return readCount(q.state, projections.AppendKey(nil, tagBoardPinCount, owner, *board))
	}
	return readCount(q.state, projections.AppendKey(nil, tagPinCount, owner))
}
