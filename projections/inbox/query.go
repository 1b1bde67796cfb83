package inbox

import (
	"bytes"
	"context"
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// ErrExpired is returned for a page cursor of a session by heat that is older than [SessionLife].
var ErrExpired = errors.New("inbox: the session has expired")

// ErrPageCursor is returned for bytes that are no page cursor of the list.
var ErrPageCursor = errors.New("inbox: not a cursor of this list")

// SessionLife is how long, in log time, a session by heat continues.
const SessionLife events.Micros = 3600 * 1_000_000

// Order is an order of a feed.
type Order uint8

// The orders.
const (
	// Newest first; equal times by owner, then by pin.
	Newest Order = iota
	// Trending: the newest pins by heat of the item, those without any last; equal heat as Newest.
	Trending
)

// Pin is a living pin.
type Pin struct {
	Owner, ID string
	// Board is the owner's board that shows it.
	Board string
	Item  string
	// Repin: it repeats another pin.
	Repin bool
	// Attributes were given when it was created.
	Attributes []byte
	Created    events.Micros
	// Score is the heat of the item, in the order Trending.
	Score int64
}

// PageCursor is where a list continues after a page: the last entry shown, and what the session needs. It is opaque, and writes do
// not invalidate it (I9).
type PageCursor []byte

// Feed names a feed.
type Feed struct {
	Reader string
	Order  Order
	// Own shows the reader's own pins, too.
	Own bool
	// OnePerItem shows each item by the first of its pins only. A page then costs what all the pages before it of the
	// session cost together.
	OnePerItem bool
	// Above leaves out everything from this page cursor on, which a page gave as its Newest; nil means nothing. Newest order only.
	Above PageCursor
	// Unread leaves out everything up to the read marker of the reader. Newest order only, without Above.
	Unread bool
	// Heat has the scores of the order Trending, and Ranked is how many of the newest pins are ranked.
	Heat   Heat
	Ranked int
	// Hide reports which of some items are to be left out; nil means none.
	Hide func(items []string) (hide []bool, err error)
}

// Page is a page of a feed.
type Page struct {
	Pins []Pin
	// Next is where the next page begins; nil at the end, and only there.
	Next PageCursor
	// Newest is the top of the feed: what comes later is above. In the order Newest only.
	Newest PageCursor
	// Read is the read marker of the reader; 0 means that there is none.
	Read events.Micros
	// Outboxes is how many outboxes were opened: none for a page that the inbox held.
	Outboxes int
}

// State is the rows of an inbox store at one position, as a [projections.View] is.
type State interface {
	projections.Reader
	Cursor() events.Cursor
}

// Queries answers from a state. It is cheap to make and not safe for concurrent use.
type Queries struct {
	state State
	graph *graph.Queries
	// scratch holds keys between reads.
	scratch []byte
	// cache is what the store keeps in memory; nil means nothing. version is that of the view.
	cache   *inboxcache.Cache
	version uint64
	// elsewhere knows what rows of other partitions say; nil means that all are here.
	remoteLookup Elsewhere
}

// Elsewhere is what queries ask of homes that are not in their state.
type Elsewhere interface {
	projections.Elsewhere
	// Pin returns a pin; nil means that it does not live. known is false for what must be fetched first.
	Pin(owner, id string) (p *Pin, known bool)
	// Outbox is that of [Queries].
	Outbox(owner string, board *string, from []byte, n int) (pins []Pin, next []byte, known bool)
}

// Query returns the queries over a state of an inbox store.
func Query(r State) *Queries { return &Queries{state: r, graph: graph.Query(r)} }

// CachedQuery returns the queries over a view, which know from memory whom readers follow, what is new in outboxes, and what was pushed to
// inboxes, where the store keeps that: the same answers as those of [Query].
func CachedQuery(v *projections.View) *Queries {
	q := &Queries{state: v, graph: graph.CachedQuery(v)}
	if c, ok := v.QueryCache().(*inboxcache.Cache); ok {
		q.cache, q.version = c, v.Version()
	}
	return q
}

// With has the queries ask elsewhere what is not in their state.
func (q *Queries) With(e Elsewhere) *Queries {
	q.remoteLookup = e
	return q
}

// remote reports whether the rows of an owner are not in the state.
func (q *Queries) isRemote(owner string) bool {
	return q.remoteLookup != nil && !q.remoteLookup.Holds(owner)
}

// Feed returns at most n pins of a feed after a page cursor (nil: from the top), and at least one unless the feed ends. It fails
// with [ErrExpired] and [ErrPageCursor].
//
// The order Newest costs the rows of the page, and below the floor of the inbox a look into each outbox. The order Trending
// costs that for all pins that are ranked.
func (q *Queries) Feed(ctx context.Context, f Feed, after PageCursor, n int) (Page, error) {
	if f.Order == Trending {
		return q.readTrending(ctx, &f, after, n)
	}
	return q.readNewest(ctx, &f, after, n)
}

// EachOwner calls do with the owners whose pins may be in the feed of a reader, but for the reader, until it returns an error. An owner
// may come more than once.
func (q *Queries) EachOwner(reader string, do func(owner string) error) error {
	relations := graph.Query(q.state)
	if err := relations.EachFollowee(reader, do); err != nil {
		return err
	}
	return relations.EachFollowedBoard(reader, func(owner, _ string) error { return do(owner) })
}

// Pin returns a pin, with one point read. It reports false if the pin does not live.
func (q *Queries) Pin(owner, id string) (p Pin, lives bool, err error) {
	found, err := q.livingPin(owner, id)
	if err != nil || found == nil {
		return Pin{}, false, err
	}
	return *found, true, nil
}

// living returns a pin if it lives.
func (q *Queries) livingPin(owner, id string) (*Pin, error) {
	if q.isRemote(owner) {
		p, known := q.remoteLookup.Pin(owner, id)
		if !known && q.remoteLookup.Full() {
			return nil, projections.ErrElsewhere
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
	if s.Made == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	return &Pin{
		Owner: owner, ID: id, Board: s.Board, Item: s.Made.Item, Repin: s.Made.Repin, Attributes: s.Made.Attributes,
		Created: s.Made.Time,
	}, nil
}

// Pins lists the living pins of a user, or (board not nil) of one of the user's boards, newest first.
func (q *Queries) Pins(ctx context.Context, owner string, board *string, after PageCursor, n int) (pins []Pin, next PageCursor, err error) {
	var from []byte
	if after != nil {
		if from, err = parsePinsCursor(after); err != nil {
			return nil, nil, err
		}
		from = append(bytes.Clone(from), 0)
	}
	pins, more, err := q.Outbox(ctx, owner, board, from, n)
	if err != nil || more == nil {
		return pins, nil, err
	}
	last := &pins[len(pins)-1]
	return pins, events.AppendID(appendNewestFirst(PageCursor{cursorPins}, last.Created), last.ID), nil
}

// Outbox returns at most n pins of an outbox, that of an owner or (board not nil) that of a board, newest first, from a place on (nil: the
// newest). A place is a time and an id as in a row. next is that of the pin behind them; nil means that there is none.
func (q *Queries) Outbox(ctx context.Context, owner string, board *string, from []byte, n int) (pins []Pin, next []byte, err error) {
	prefix := q.outboxStream(new(arena), owner, board).prefix
	it := q.state.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() {
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}()
	for more := it.SeekGE(append(bytes.Clone(prefix), from...)); more; more = it.Next() {
		if len(pins)%1024 == 1023 && ctx.Err() != nil {
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
		if p == nil || p.Created != created {
			return nil, nil, errRow("outbox of a pin that does not live", it.Key())
		}
		pins = append(pins, *p)
	}
	return pins, nil, nil
}

// PinCount returns the length of the same list.
func (q *Queries) PinCount(owner string, board *string) (int64, error) {
	if board != nil {
		return readCount(q.state, projections.AppendKey(nil, tagBoardPinCount, owner, *board))
	}
	return readCount(q.state, projections.AppendKey(nil, tagPinCount, owner))
}
