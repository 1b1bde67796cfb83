package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// errRow is [projections.RowError].
func rowError(what string, row []byte) error { return projections.RowError(what, row) }

// factOrder is the position of a fact in the order of the facts of an edge (I5). 0 means that there is no such fact. Then come the
// backfills by their time, then the live facts by theirs. The order of a live fact is unique. Two backfills may have the same order: then
// a removal counts as the later one.
type factOrder uint64

const liveBit factOrder = 1 << 63

// factOrderOf returns the order of an event. One is added to the time, because an order of 0 means no fact and a time may be 0.
func factOrderOf(ev *events.Event) factOrder {
	s := factOrder(ev.Time) + 1
	if !ev.Backfill {
		s |= liveBit
	}
	return s
}

// time returns the time of the fact, or -1 for the order 0.
func (s factOrder) time() events.Micros { return events.Micros(s&^liveBit) - 1 }

// orElse returns the first of two orders that is set: a live fact before the backfilled one of its kind.
func (s factOrder) orElse(other factOrder) factOrder {
	if s != 0 {
		return s
	}
	return other
}

// standing holds the facts of something that is switched on and off: a block, a mute or hidden re-pins. There are three, because a
// backfilled beginning may arrive after live facts and must not be mixed with them.
type toggle struct {
	// on is the first live fact that began what holds; 0 once a live fact ended it.
	liveBegin factOrder
	// off is the first live end after the latest live beginning, or the first of all. Once all backfills are closed, an end without a
	// beginning is not recorded.
	liveEnd factOrder
	// backfill is the latest backfilled beginning; there are no backfilled ends.
	backfillBegin factOrder
}

func (s *toggle) begin(at factOrder) {
	switch {
	case at < liveBit:
		s.backfillBegin = max(s.backfillBegin, at)
	case s.liveBegin == 0: // a repeat of what holds is not newer
		s.liveBegin = at
	}
}

// end records a live end. Without a beginning that it ends, it is kept for a backfilled one that may still arrive.
func (s *toggle) end(at factOrder, backfillsClosed bool) {
	ends := s.liveBegin != 0 || s.liveEnd == 0 && s.backfillBegin != 0
	repeats := s.liveBegin == 0 && s.liveEnd != 0
	if repeats || !ends && backfillsClosed {
		return
	}
	s.liveBegin, s.liveEnd = 0, at
}

// holds reports whether the latest fact is a beginning.
func (s *toggle) holds() bool { return s.liveBegin != 0 || (s.liveEnd == 0 && s.backfillBegin != 0) }

// since is the time of the fact that holds: of the backfill, where no live fact ended it.
func (s *toggle) since() events.Micros {
	if s.liveEnd == 0 && s.backfillBegin != 0 {
		return s.backfillBegin.time()
	}
	return s.liveBegin.time()
}

// edge holds the facts of user A about user B. In the terms of docs/semantics.md, F is followLive, or else
// followBackfill; U is the later of unfollowLive and unfollowBackfill.
type edge struct {
	// followLive is the first live follow after renewedAfter when it came; 0 once unfollowLive is later. It may be older than an unblock.
	followLive factOrder
	// unfollowLive is the latest live unfollow, or block in either direction.
	unfollowLive factOrder
	// followBackfill and unfollowBackfill are the latest of their kind; a block counts as an unfollow.
	followBackfill, unfollowBackfill factOrder
	// block and mute are A's of B, blockedBy is B's block of A, and repins says that A hides the re-pins of B. The end of the edge at B
	// has neither mute nor repins.
	block, mute, blockedBy, hideRepins toggle
	// implicit is the earliest time (in the form of a fact order) of the board follows that hold, when A does not follow
	// B explicitly; 0 means A does not follow B implicitly.
	implicitSince factOrder
	// boards is set once the pair has had a board edge. While it is not, a change of the edge need not look for any.
	hasBoards bool
}

// blocked reports whether a block in either direction holds, so that no follow does.
func (e *edge) isBlocked() bool { return e.blockedBy.holds() || e.block.holds() }

// blockedLive reports whether a live block holds in either direction, so that live follows are ignored. A backfilled block does not
// make a live follow void: it would depend on whether the block or the follow arrived first.
func (e *edge) isBlockedLive() bool { return e.blockedBy.liveBegin != 0 || e.block.liveBegin != 0 }

// follow is F and unfollow is U of docs/semantics.md: the latest follow, and the latest fact that ended one.
func (e *edge) latestFollow() factOrder   { return e.followLive.orElse(e.followBackfill) }
func (e *edge) latestUnfollow() factOrder { return max(e.latestLiveEnd(), e.unfollowBackfill) }

// endedLive is the latest live fact that ended a follow: an unfollow, a block, or the end of a backfilled block. A live block has ended
// all follows already when it ends, and while it stood, live follows were ignored.
func (e *edge) latestLiveEnd() factOrder {
	ended := e.unfollowLive
	for _, block := range []*toggle{&e.block, &e.blockedBy} {
		if block.backfillBegin != 0 {
			ended = max(ended, block.liveEnd)
		}
	}
	return ended
}

// renewedAfter is the latest live fact after which a live follow is no repeat. It is later than endedLive if an unblock ended
// nothing, because a backfilled block may still arrive that it ended.
func (e *edge) latestPossibleLiveEnd() factOrder {
	return max(e.unfollowLive, e.block.liveEnd, e.blockedBy.liveEnd)
}

// explicit reports whether and since when A follows B explicitly.
func (e *edge) explicitSince() (since events.Micros, ok bool) {
	f := e.latestFollow()
	if f <= e.latestUnfollow() || e.isBlocked() { // equal backfills: the removal is later
		return 0, false
	}
	if e.latestLiveEnd() == 0 && e.followBackfill > e.unfollowBackfill {
		return e.followBackfill.time(), true
	}
	return f.time(), true
}

// state is what holds, and since when: a follow, block or mute. The zero state is none.
type state struct {
	holds bool
	since events.Micros
}

func (s *toggle) state() state {
	if !s.holds() {
		return state{}
	}
	return state{true, s.since()}
}

// explicitly is [edge.explicit].
func (e *edge) explicitState() state {
	since, holds := e.explicitSince()
	return state{holds, since}
}

func (e *edge) implicitState() state {
	if e.implicitSince == 0 {
		return state{}
	}
	return state{true, e.implicitSince.time()}
}

// followedOnBoard lowers implicit to the time of a board follow, if that one is earlier.
func (e *edge) lowerImplicit(r relation) {
	if since := factOrder(r.since) + 1; r.kind == relationFollow && (e.implicitSince == 0 || since < e.implicitSince) {
		e.implicitSince = since
	}
}

// shown reports whether A follows B in some way, so that lists of follows show the edge.
func (e *edge) isFollow() bool {
	_, explicit := e.explicitSince()
	return explicit || e.implicitSince != 0
}

// unlisted reports whether the edge has facts but is in no list of follows. An in-end then needs a row of its own that leads to it.
func (e *edge) isUnlisted() bool { return *e != edge{} && !e.isFollow() }

// says reports whether anything holds by the edge: a follow, a block, a mute or hidden re-pins.
func (e *edge) hasEffect() bool {
	return e.isFollow() || e.isBlocked() || e.mute.holds() || e.hideRepins.holds()
}

// follows reports how and since when A follows B.
func (e *edge) currentFollow() Follow {
	if since, ok := e.explicitSince(); ok {
		return Follow{Explicit, since}
	}
	if e.implicitSince != 0 {
		return Follow{Implicit, e.implicitSince.time()}
	}
	return Follow{}
}

// boardEdge holds the facts of a user about one board of another. In the terms of docs/semantics.md, f is followLive, or
// else followBackfill; u likewise.
type boardEdge struct {
	// followLive is the first live follow after the last live fact that had ended one when it came, or may have (edge.renewedAfter);
	// it may be older than what ended it since.
	followLive factOrder
	// unfollowLive likewise, of the exclusion.
	unfollowLive factOrder
	// followBackfill and unfollowBackfill are the latest of their kind.
	followBackfill, unfollowBackfill factOrder
}

type relationKind byte

const (
	relationNone    relationKind = 0
	relationFollow  relationKind = 1
	relationExclude relationKind = 2
)

// relation is what holds between a user and a board beside the follow of its owner.
type relation struct {
	kind  relationKind
	since events.Micros
}

// relation derives what holds between a user and a board, from the facts about the board and about its owner. The deletion of a board
// removes its facts, so none of them is older than the latest deletion.
func (b *boardEdge) relation(owner *edge) relation {
	if owner.isBlocked() {
		return relation{}
	}
	f, u := b.followLive.orElse(b.followBackfill), b.unfollowLive.orElse(b.unfollowBackfill)
	U := owner.latestUnfollow()
	if f > u && f > U {
		if b.unfollowLive == 0 && owner.latestLiveEnd() == 0 &&
			b.followBackfill > b.unfollowBackfill && b.followBackfill > owner.unfollowBackfill {
			return relation{relationFollow, b.followBackfill.time()}
		}
		return relation{relationFollow, f.time()}
	}
	if u == 0 || u < f || u <= U || u < owner.latestFollow() { // of equal backfills the removal is later
		return relation{}
	}
	if _, ok := owner.explicitSince(); !ok {
		return relation{}
	}
	return relation{relationExclude, u.time()}
}

// board is a board's own row, while it exists. The default board has none: it always exists.
type board struct {
	// createdLive is the live fact that began the present life, where no backfill had when it came.
	createdLive factOrder
	// createdBackfill is the earliest backfilled mention, on a board that was never deleted.
	createdBackfill factOrder
	// titled is the latest creation with its title; titleEncoded orders backfills with equal times.
	titleOrder      factOrder
	title           string
	titleEventBytes string
}

func (b *board) exists() bool { return b.createdLive != 0 || b.createdBackfill != 0 }

func (b *board) created() events.Micros { return b.createdBackfill.orElse(b.createdLive).time() }

// A row of facts is a varint with a bit for each order that is present, and then these orders as varints, in the order of the bits. The
// live bit of an order is not written where the field implies it: it would make every varint ten bytes long.

const (
	edgeFlagHasBoards = 1 << 14
	// flagRepins: the facts about re-pins come last, in the same form.
	edgeFlagHideRepins = 1 << 15
	edgeFlagBits       = 16
)

func (e *edge) orderFields() [14]*factOrder {
	return [...]*factOrder{
		&e.followLive, &e.unfollowLive, &e.followBackfill, &e.unfollowBackfill, &e.implicitSince,
		&e.block.liveBegin, &e.block.liveEnd, &e.block.backfillBegin, &e.mute.liveBegin, &e.mute.liveEnd, &e.mute.backfillBegin,
		&e.blockedBy.liveBegin, &e.blockedBy.liveEnd, &e.blockedBy.backfillBegin,
	}
}

// liveOrders has a bit for each field of [edge.orders] that holds live facts only.
const edgeLiveFields = 1<<0 | 1<<1 | 1<<5 | 1<<6 | 1<<8 | 1<<9 | 1<<11 | 1<<12

func (s *toggle) orderFields() [3]*factOrder {
	return [...]*factOrder{&s.liveBegin, &s.liveEnd, &s.backfillBegin}
}

func (e *edge) appendRow(dst []byte) []byte {
	var flags uint64
	if e.hasBoards {
		flags |= edgeFlagHasBoards
	}
	hides := e.hideRepins != toggle{}
	if hides {
		flags |= edgeFlagHideRepins
	}
	orders := e.orderFields()
	dst = appendOrders(dst, flags, orders[:])
	if hides {
		orders := e.hideRepins.orderFields()
		dst = appendOrders(dst, 0, orders[:])
	}
	return dst
}

func (e *edge) decodeRow(row []byte) error {
	orders := e.orderFields()
	flags, rest, ok := cutOrders(row, edgeFlagBits, edgeLiveFields, orders[:])
	if e.hideRepins = (toggle{}); ok && flags&edgeFlagHideRepins != 0 {
		orders := e.hideRepins.orderFields()
		_, rest, ok = cutOrders(rest, len(orders), 1<<0|1<<1, orders[:])
		ok = ok && e.hideRepins != toggle{}
	}
	if !ok || len(rest) != 0 {
		return rowError("edge", row)
	}
	e.hasBoards = flags&edgeFlagHasBoards != 0
	return nil
}

func (b *boardEdge) orderFields() [4]*factOrder {
	return [...]*factOrder{&b.followLive, &b.unfollowLive, &b.followBackfill, &b.unfollowBackfill}
}

func (b *boardEdge) appendRow(dst []byte) []byte {
	orders := b.orderFields()
	return appendOrders(dst, 0, orders[:])
}

func (b *boardEdge) decodeRow(row []byte) error {
	orders := b.orderFields()
	if _, rest, ok := cutOrders(row, 4, 1<<0|1<<1, orders[:]); !ok || len(rest) != 0 {
		return rowError("board edge", row)
	}
	return nil
}

const (
	boardFlagTitleLive = 1 << 3
	boardFlagBits      = 4
)

func (b *board) orderFields() [3]*factOrder {
	return [...]*factOrder{&b.createdLive, &b.createdBackfill, &b.titleOrder}
}

func (b *board) appendRow(dst []byte) []byte {
	var flags uint64
	if b.titleOrder&liveBit != 0 {
		flags |= boardFlagTitleLive
	}
	orders := b.orderFields()
	dst = appendOrders(dst, flags, orders[:])
	if b.titleOrder != 0 {
		dst = append(binary.AppendUvarint(dst, uint64(len(b.title))), b.title...)
		dst = append(dst, b.titleEventBytes...)
	}
	return dst
}

func (b *board) decodeRow(row []byte) error {
	orders := b.orderFields()
	flags, rest, ok := cutOrders(row, boardFlagBits, 1<<0, orders[:])
	if !ok {
		return rowError("board", row)
	}
	if flags&boardFlagTitleLive != 0 {
		if b.titleOrder == 0 {
			return rowError("board", row)
		}
		b.titleOrder |= liveBit
	}
	if b.titleOrder == 0 {
		if len(rest) != 0 {
			return rowError("board", row)
		}
		return nil
	}
	n, k := binary.Uvarint(rest)
	if k <= 0 || n > uint64(len(rest)-k) {
		return rowError("board", row)
	}
	b.title, b.titleEventBytes = string(rest[k:k+int(n)]), string(rest[k+int(n):])
	return nil
}

func appendOrders(dst []byte, flags uint64, orders []*factOrder) []byte {
	for i, s := range orders {
		if *s != 0 {
			flags |= 1 << i
		}
	}
	dst = binary.AppendUvarint(dst, flags)
	for _, s := range orders {
		if *s != 0 {
			dst = binary.AppendUvarint(dst, uint64(*s&^liveBit))
		}
	}
	return dst
}

func cutOrders(row []byte, bits int, live uint64, orders []*factOrder) (flags uint64, rest []byte, ok bool) {
	flags, n := binary.Uvarint(row)
	if n <= 0 || flags >= 1<<bits {
		return 0, nil, false
	}
	row = row[n:]
	for i, s := range orders {
		if flags>>i&1 == 0 {
			*s = 0
			continue
		}
		v, n := binary.Uvarint(row)
		if n <= 0 || v == 0 || v >= uint64(liveBit) {
			return 0, nil, false
		}
		*s = factOrder(v)
		if live>>i&1 == 1 {
			*s |= liveBit
		}
		row = row[n:]
	}
	return flags, row, true
}
