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

// ErrExpired is returned for a page cursor of the order Trending whose session began longer ago
// than [SessionLifetime], or whose scores the counters store does not have any more.
var ErrExpired = errors.New("inbox: the session has expired")

// ErrPageCursor is returned for bytes that are not a page cursor of the list that the caller reads.
var ErrPageCursor = errors.New("inbox: not a cursor of this list")

// SessionLifetime is how long a session in the order Trending can be continued, in log time. The
// counters store keeps old scores for this long: one hour.
const SessionLifetime events.Micros = 3600 * 1_000_000

// Order is the order of the pins in a feed.
type Order uint8

// The orders.
const (
	// Newest shows the newest pins first. Pins of the same time are sorted by owner, then by pin.
	Newest Order = iota
	// Trending sorts the newest pins of the feed by heat, which is the score of the pin's item: the
	// highest score comes first. Pins without a score come last. Pins of the same score are sorted
	// as in Newest.
	Trending
)

// Pin is a living pin.
type Pin struct {
	Owner, ID string
	// Board is the board of the owner that the pin is on.
	Board string
	Item  string
	// Repin is set if the pin repeats another pin, which RepinOwner and RepinPin name. Both names
	// are empty if the owner of that other pin was deleted.
	Repin                bool
	RepinOwner, RepinPin string
	// Attributes are those of the last event that edited the pin since its creation or, if there
	// was none, of the event that created the pin.
	Attributes []byte
	// Created is the time of the event that created the pin.
	Created events.Micros
	// Edited is the time of the last event that edited the pin since its creation, or 0 if there
	// was none.
	Edited events.Micros
	// Score is the heat of the item. It is 0 in the order Newest, and if the item has no score.
	Score int64
}

// PageCursor says where a list continues after a page. It is opaque to callers. It names the last
// entry of the page, and has what else the following pages of the session need. It has no offset,
// so it stays valid when pins are added or deleted (I9).
type PageCursor []byte

// Feed says whose feed to read, and how.
type Feed struct {
	Reader string
	Order  Order
	// IncludeOwn includes the reader's own pins.
	IncludeOwn bool
	// OnePerItem shows only the first pin of each item. In the order Newest, each page then costs
	// more than the one before, because it reads the pins of the earlier pages of the session
	// again.
	OnePerItem bool
	// Only shows only the pins of owners whom the reader follows with this setting:
	// [events.SettingNotify] or [events.SettingFavorite]. If there are more than
	// [MaxSelectedOwners], Only selects those whose settings the reader changed most recently.
	// IncludeOwn adds the reader's own pins. A feed with SettingNotify also leaves out re-pins. 0
	// shows the pins of all owners whom the reader follows.
	Only events.FollowSettings
	// NewerThan is the [Page.Top] of an earlier page. Only pins that are newer than the position of
	// that page are shown. nil shows all pins. NewerThan is valid in the order Newest only.
	NewerThan PageCursor
	// UnreadOnly shows only pins that are newer than the reader's read marker, or all pins if there
	// is no marker ([Queries.unreadMarker]). The order Trending ignores UnreadOnly. The caller must
	// not set UnreadOnly together with NewerThan.
	UnreadOnly bool
	// Heat has the scores for the order Trending. The order Newest does not use it.
	Heat Heat
	// MaxRanked is how many of the newest pins the order Trending reads and ranks. It shows no
	// other pins. Pins that HiddenItems or OnePerItem leave out count, too.
	MaxRanked int
	// HiddenItems reports for each of the given items whether its pins are to be left out: hide[i]
	// is the answer for items[i]. A nil function or a nil result leaves out no pins.
	HiddenItems func(items []string) (hide []bool, err error)
}

// MaxSelectedOwners is the largest number of owners of a feed with [Feed.Only]. It bounds how many
// outboxes a page merges.
const MaxSelectedOwners = 500

// Page is a page of a feed.
type Page struct {
	Pins []Pin
	// Next is the cursor of the next page. It is nil on the last page, and only there.
	Next PageCursor
	// Top marks the top of the feed at the position of this page. A caller passes it as
	// [Feed.NewerThan] to read only newer pins. It is set in the order Newest only.
	Top PageCursor
	// ReadMarker is the time up to which the reader has read the feed, or 0 if the reader has no
	// read marker.
	ReadMarker events.Micros
	// OutboxesOpened is how many outboxes were opened for the page. It does not count those that
	// were opened only to find the items that earlier pages have shown ([Feed.OnePerItem]). It is 0
	// if the inbox in memory had all pins of the page, the reader has no pull rows, and IncludeOwn
	// is not set. IncludeOwn opens the reader's own outbox.
	OutboxesOpened int
}

// State has the rows of an inbox store at one position. A [projections.View] is a State.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers questions about a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state State
	// graph answers questions about relations. It may use a cache.
	graph *graph.Queries
	// scratch is memory for keys. The next read overwrites it.
	scratch []byte
	// cache has the inboxes and outboxes that the store keeps in memory. It is nil if there is no
	// such cache.
	cache *inboxcache.Cache
	// version is the version of the view ([projections.View.Version]). It tells the cache which
	// events the view shows, and so whether the view can use a cached inbox or outbox. It is not
	// used without a cache.
	version uint64
	// remoteLookup answers for partitions that are not in the state. It is nil if the state has all
	// partitions.
	remoteLookup RemoteLookup
}

// RemoteLookup answers questions of queries about owners whose rows are not in the state. If it
// does not know an answer, it records the question and reports that the answer is unknown. The
// query goes on without the answer, to record further questions. The caller of the query must then
// discard the result, fetch the answers to all recorded questions from other nodes, and run the
// query again.
type RemoteLookup interface {
	projections.RemoteLookup
	// Pin returns a pin, or nil if it does not live. known is false if the answer is unknown.
	Pin(owner, id string) (p *Pin, known bool)
	// Outbox answers like [Queries.Outbox]. known is false if the answer is unknown.
	Outbox(owner string, board *string, from []byte, n int) (pins []Pin, next []byte, known bool)
	// Hiding answers like [Queries.Hiding]. known is false if the answer is unknown.
	Hiding(user, item string) (total int64, hides, known bool)
}

// Query returns the queries over a state of an inbox store.
func Query(r State) *Queries { return &Queries{state: r, graph: graph.NewQueries(r)} }

// CachedQuery returns queries over a view that also use what the store keeps in memory: whom
// readers follow, the newest pins of outboxes, inboxes, and hidden items. The answers are the same
// as those of the queries that [Query] returns.
func CachedQuery(v *projections.View) *Queries {
	q := &Queries{state: v, graph: graph.NewCachedQueries(v)}
	if c, ok := v.QueryCache().(*inboxcache.Cache); ok {
		q.cache = c
		q.version = v.Version()
	}
	return q
}

// WithRemote sets the lookup for partitions that are not in the state, and returns q. A nil lookup
// means that the state has all partitions.
func (q *Queries) WithRemote(e RemoteLookup) *Queries {
	q.remoteLookup = e
	return q
}

// isRemote reports whether the rows of an owner are not in the state.
func (q *Queries) isRemote(owner string) bool {
	return q.remoteLookup != nil && !q.remoteLookup.Holds(owner)
}

// isIncomplete reports whether the query has lacked an answer of another node so far. If it has,
// the caller will discard the result of the query.
func (q *Queries) isIncomplete() bool {
	return q.remoteLookup != nil && q.remoteLookup.Unresolved()
}

// Feed returns a page of at most n pins, where n is at least 1. after is the [Page.Next] of the
// page before; nil means the first page. A page has at least one pin unless the feed has ended.
// Feed returns [ErrExpired] and [ErrPageCursor] for cursors that it cannot use.
//
// In the order Newest, Feed reads a row for each pin of the page. It also reads outboxes: only
// those that pull rows name, as long as the reader's inbox in memory has the other pins, and after
// that each outbox that the reader follows. In the order Trending, Feed reads the same for all pins
// that are ranked, and not only for those of the page.
func (q *Queries) Feed(ctx context.Context, f Feed, after PageCursor, n int) (Page, error) {
	if f.Order == Trending {
		return q.readTrending(ctx, &f, after, n)
	}
	return q.readNewest(ctx, &f, after, n)
}

// FirstMuteEnd returns the earliest time at which one of the reader's mutes will end. It returns 0
// if none of the mutes that hold at the position of the state has an end.
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

// Pin returns a pin and reports whether it lives. It reads one row.
func (q *Queries) Pin(owner, id string) (p Pin, lives bool, err error) {
	found, err := q.livingPin(owner, id)
	if err != nil || found == nil {
		return Pin{}, false, err
	}
	return *found, true, nil
}

// livingPin returns a pin, or nil if it does not live. It also returns nil for a pin of another
// node if the answer is unknown; the result of the query is then discarded ([RemoteLookup]).
func (q *Queries) livingPin(owner, id string) (*Pin, error) {
	if q.isRemote(owner) {
		p, known := q.remoteLookup.Pin(owner, id)
		if !known && q.remoteLookup.Full() {
			// Enough questions for one fetch are recorded, so end the query here.
			return nil, projections.ErrUnresolved
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
		Owner:      owner,
		ID:         id,
		Board:      s.Board,
		Item:       s.Creation.Item,
		Repin:      s.Creation.Repin,
		RepinOwner: s.Creation.RepinOwner,
		Attributes: s.Attributes(),
		Created:    s.Creation.Time,
		Edited:     s.Edited(),
	}
	// A creation may keep the id of the repeated pin after the owner of that pin was deleted, to
	// compare backfills (ForgetRepinOwner in package pinstore). It is not shown then.
	if pin.RepinOwner != "" {
		pin.RepinPin = s.Creation.RepinPin
	}
	return pin, nil
}

// Pins lists at most n living pins of a user or, if board is not nil, of one of the user's boards,
// newest first. n is at least 1. after is the cursor that the page before has returned as next; nil
// means the first page. next is nil on the last page.
func (q *Queries) Pins(
	ctx context.Context, owner string, board *string, after PageCursor, n int,
) (pins []Pin, next PageCursor, err error) {
	var from []byte
	if after != nil {
		last, err := parsePinsCursor(after)
		if err != nil {
			return nil, nil, err
		}
		// No key lies between last and last with a zero byte appended, so the page begins right
		// after the last entry of the page before.
		from = append(bytes.Clone(last), 0)
	}

	pins, more, err := q.Outbox(ctx, owner, board, from, n)
	if err != nil || more == nil {
		return pins, nil, err
	}

	// The cursor names the last entry of this page. If it named the first entry of the next page,
	// as more does, the next page would lack a pin that is backfilled between the two.
	last := &pins[len(pins)-1]
	next = appendNewestFirst(PageCursor{cursorPins}, last.Created)
	return pins, events.AppendID(next, last.ID), nil
}

// Outbox returns at most n pins of the outbox of an owner or, if board is not nil, of the outbox of
// one of the owner's boards, newest first. from is what follows the prefix of the outbox in the key
// to begin at, a time and a pin id; nil begins with the newest pin. next is the from of the pins
// that follow, or nil if there are none. The rows of the owner must be in the state.
func (q *Queries) Outbox(
	ctx context.Context, owner string, board *string, from []byte, n int,
) (pins []Pin, next []byte, err error) {
	prefix := q.outboxStream(new(arena), owner, board).prefix // the stream itself is not used
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

		// The fold writes the row of a pin and the rows of the pin in outboxes together. So an
		// outbox row whose pin does not live is corruption.
		if p == nil || p.Created != created {
			return nil, nil, errRow("outbox of a pin that does not live", it.Key())
		}
		pins = append(pins, *p)
	}
	return pins, nil, nil
}

// MaxHiddenItems is how many items a user may hide. The service checks this limit before it
// publishes events. The fold does not check the limit.
const MaxHiddenItems = hiddenitems.Max

// Hiding returns how many items a user hides, and whether the given item is one of them. It reads
// at most two rows.
func (q *Queries) Hiding(user, item string) (total int64, hides bool, err error) {
	if q.isRemote(user) {
		total, hides, known := q.remoteLookup.Hiding(user, item)
		if !known && q.remoteLookup.Full() {
			// Enough questions for one fetch are recorded, so end the query here.
			return 0, false, projections.ErrUnresolved
		}
		return total, hides, nil
	}

	if total, err = hiddenItems.CountOf(q.state, user); err != nil || total == 0 {
		return 0, false, err
	}
	hides, err = hiddenItems.Hides(q.state, &q.scratch, user, item)
	return total, hides, err
}

// PinCount returns how many living pins a user has or, if board is not nil, how many are on one of
// the user's boards.
func (q *Queries) PinCount(owner string, board *string) (int64, error) {
	if board != nil {
		return readCount(q.state, projections.AppendKey(nil, tagBoardPinCount, owner, *board))
	}
	return readCount(q.state, projections.AppendKey(nil, tagPinCount, owner))
}
