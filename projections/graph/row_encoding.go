package graph

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// rowError is [projections.RowError].
func rowError(what string, row []byte) error { return projections.RowError(what, row) }

// A row of facts is a varint of flags, with a bit for each order that is present, and then these
// orders as varints. Further flags come above those bits. liveBit is not written where the field
// implies it, because it would make every varint ten bytes long.

const (
	edgeFlagHasBoards = 1 << 14
	// edgeFlagSettings says that the settings follow the orders: a byte with the settings and
	// settingsAreLive, and their order.
	edgeFlagSettings = 1 << 15
	// edgeFlagMuteUntil says that the ends of the live and of the backfilled mute come last.
	edgeFlagMuteUntil = 1 << 16
	edgeFlagBits      = 17

	// settingsAreLive is the liveBit of the settings, which may be live or backfilled. It is above
	// all settings.
	settingsAreLive = byte(events.AllFollowSettings) + 1
)

// orderFields returns the fields in the order in which their bits and values are written.
func (e *edge) orderFields() [14]*factOrder {
	return [...]*factOrder{
		&e.followLive, &e.unfollowLive, &e.followBackfill, &e.unfollowBackfill, &e.implicitSince,
		&e.block.liveBegin, &e.block.liveEnd, &e.block.backfillBegin,
		&e.mute.facts.liveBegin, &e.mute.facts.liveEnd, &e.mute.facts.backfillBegin,
		&e.blockedBy.liveBegin, &e.blockedBy.liveEnd, &e.blockedBy.backfillBegin,
	}
}

// edgeLiveFields has a bit for each field of [edge.orderFields] that holds only live facts.
const edgeLiveFields = 1<<0 | 1<<1 | 1<<5 | 1<<6 | 1<<8 | 1<<9 | 1<<11 | 1<<12

func (e *edge) appendRow(dst []byte) []byte {
	var flags uint64
	if e.hasBoards {
		flags |= edgeFlagHasBoards
	}
	hasSettings := e.settings.order != 0
	if hasSettings {
		flags |= edgeFlagSettings
	}
	hasMuteUntil := e.mute.liveUntil != 0 || e.mute.backfillUntil != 0
	if hasMuteUntil {
		flags |= edgeFlagMuteUntil
	}

	fields := e.orderFields()
	dst = appendOrders(dst, flags, fields[:])

	if hasSettings {
		head := byte(e.settings.settings)
		if e.settings.order >= liveBit {
			head |= settingsAreLive
		}
		dst = append(dst, head)
		dst = binary.AppendUvarint(dst, uint64(e.settings.order&^liveBit))
	}
	if hasMuteUntil {
		dst = binary.AppendUvarint(dst, uint64(e.mute.liveUntil))
		dst = binary.AppendUvarint(dst, uint64(e.mute.backfillUntil))
	}
	return dst
}

func (e *edge) decodeRow(row []byte) error {
	fields := e.orderFields()
	flags, rest, ok := cutOrders(row, edgeFlagBits, edgeLiveFields, fields[:])

	e.settings = settingsFact{}
	if ok && flags&edgeFlagSettings != 0 {
		rest, ok = e.settings.cut(rest)
	}

	e.mute.liveUntil, e.mute.backfillUntil = 0, 0
	if ok && flags&edgeFlagMuteUntil != 0 {
		if rest, ok = cutUntil(rest, &e.mute.liveUntil); ok {
			rest, ok = cutUntil(rest, &e.mute.backfillUntil)
		}
		// Equal facts must be equal bytes (I13), so the flag is not set without a time.
		ok = ok && (e.mute.liveUntil != 0 || e.mute.backfillUntil != 0)
	}

	if !ok || len(rest) != 0 {
		return rowError("edge", row)
	}
	e.hasBoards = flags&edgeFlagHasBoards != 0
	return nil
}

// cut reads the settings from the beginning of the remaining bytes of a row. ok is false for bytes
// that appendRow cannot have written.
func (s *settingsFact) cut(row []byte) (rest []byte, ok bool) {
	if len(row) == 0 || row[0] >= 2*settingsAreLive {
		return nil, false
	}
	order, n := binary.Uvarint(row[1:])
	if n <= 0 || order == 0 || order >= uint64(liveBit) {
		return nil, false
	}

	s.settings = events.FollowSettings(row[0] &^ settingsAreLive)
	s.order = factOrder(order)
	if row[0]&settingsAreLive != 0 {
		s.order |= liveBit
	}
	return row[1+n:], true
}

// cutUntil reads the end of a mute from the beginning of the remaining bytes of a row.
func cutUntil(row []byte, until *events.Micros) (rest []byte, ok bool) {
	v, n := binary.Uvarint(row)
	if n <= 0 || v > math.MaxInt64 {
		return nil, false
	}
	*until = events.Micros(v)
	return row[n:], true
}

const (
	boardEdgeFlagBits = 4
	// boardEdgeLiveFields is like [edgeLiveFields], for a board edge.
	boardEdgeLiveFields = 1<<0 | 1<<1
)

// orderFields returns the fields in the order in which their bits and values are written.
func (b *boardEdge) orderFields() [4]*factOrder {
	return [...]*factOrder{&b.followLive, &b.unfollowLive, &b.followBackfill, &b.unfollowBackfill}
}

func (b *boardEdge) appendRow(dst []byte) []byte {
	fields := b.orderFields()
	return appendOrders(dst, 0, fields[:])
}

func (b *boardEdge) decodeRow(row []byte) error {
	fields := b.orderFields()
	_, rest, ok := cutOrders(row, boardEdgeFlagBits, boardEdgeLiveFields, fields[:])
	if !ok || len(rest) != 0 {
		return rowError("board edge", row)
	}
	return nil
}

const (
	// boardFlagTitleLive is the liveBit of titleOrder, which may be live or backfilled.
	boardFlagTitleLive = 1 << 3
	boardFlagBits      = 4
	// boardLiveFields is like [edgeLiveFields], for a board.
	boardLiveFields = 1 << 0
)

// orderFields returns the fields in the order in which their bits and values are written.
func (b *board) orderFields() [3]*factOrder {
	return [...]*factOrder{&b.createdLive, &b.createdBackfill, &b.titleOrder}
}

// appendRow appends the orders, and then, if the board has a title, the length of the title, the
// title, and the bytes of the event.
func (b *board) appendRow(dst []byte) []byte {
	var flags uint64
	if b.titleOrder&liveBit != 0 {
		flags |= boardFlagTitleLive
	}
	fields := b.orderFields()
	dst = appendOrders(dst, flags, fields[:])

	if b.titleOrder != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(b.title)))
		dst = append(dst, b.title...)
		dst = append(dst, b.titleEventBytes...)
	}
	return dst
}

func (b *board) decodeRow(row []byte) error {
	fields := b.orderFields()
	flags, rest, ok := cutOrders(row, boardFlagBits, boardLiveFields, fields[:])
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

	length, n := binary.Uvarint(rest)
	if n <= 0 || length > uint64(len(rest)-n) {
		return rowError("board", row)
	}
	rest = rest[n:]
	b.title = string(rest[:length])
	b.titleEventBytes = string(rest[length:])
	return nil
}

// appendOrders appends the flags, with a bit added for each order that is not 0, and these orders
// without liveBit.
func appendOrders(dst []byte, flags uint64, fields []*factOrder) []byte {
	for i, order := range fields {
		if *order != 0 {
			flags |= 1 << i
		}
	}
	dst = binary.AppendUvarint(dst, flags)

	for _, order := range fields {
		if *order != 0 {
			dst = binary.AppendUvarint(dst, uint64(*order&^liveBit))
		}
	}
	return dst
}

// cutOrders reads what appendOrders wrote into the fields, and returns the flags and the remaining
// bytes. flagBits is the number of bits that the flags may have. liveFields has a bit for each
// field in which liveBit is implied. ok is false for bytes that appendOrders cannot have written.
func cutOrders(
	row []byte, flagBits int, liveFields uint64, fields []*factOrder,
) (flags uint64, rest []byte, ok bool) {
	flags, n := binary.Uvarint(row)
	if n <= 0 || flags >= 1<<flagBits {
		return 0, nil, false
	}
	row = row[n:]

	for i, order := range fields {
		if flags>>i&1 == 0 {
			*order = 0
			continue
		}

		v, n := binary.Uvarint(row)
		if n <= 0 || v == 0 || v >= uint64(liveBit) {
			return 0, nil, false
		}
		row = row[n:]

		*order = factOrder(v)
		if liveFields>>i&1 == 1 {
			*order |= liveBit
		}
	}
	return flags, row, true
}
