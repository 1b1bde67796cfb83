package graph

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The values of the rows of edges, board edges and boards begin alike: a varint of flags, in which
// bit i says that the i-th order of orderFields is present, and then these orders as varints.
// Further flags are above the bits for the orders. An order is written without liveBit, which would
// make every varint ten bytes long. Most fields have only live or only backfilled facts, so liveBit
// need not be stored. Where a field may have both, a bit of its own says which.
//
// Equal facts are always encoded as equal bytes, because stores are compared byte by byte (I13).
// The decoders refuse all bytes that the encoders do not write.

const (
	// The flags of an edge are above the bits for its 14 orders.

	edgeFlagMayHaveBoardEdges = 1 << 14
	// edgeFlagSettings says that the settings of the follow come after the orders: a byte with the
	// settings and settingsAreLive, and their order as a varint.
	edgeFlagSettings = 1 << 15
	// edgeFlagMuteUntil says that muteFacts.liveUntil and backfillUntil come last, as varints.
	edgeFlagMuteUntil = 1 << 16
	// edgeFlagBits is the number of bits of the flags of an edge: one for each order, and the three
	// above.
	edgeFlagBits = 17

	// settingsAreLive is set in the byte of the settings if they come from a live event. It is the
	// bit above all settings.
	settingsAreLive = byte(events.AllFollowSettings) + 1
)

// orderFields returns the orders of the edge in the sequence in which they are written.
func (e *edge) orderFields() [14]*factOrder {
	return [...]*factOrder{
		&e.followLive, &e.unfollowLive, &e.followBackfill, &e.unfollowBackfill, &e.implicitSince,
		&e.block.liveBegin, &e.block.liveEnd, &e.block.backfillBegin,
		&e.mute.toggle.liveBegin, &e.mute.toggle.liveEnd, &e.mute.toggle.backfillBegin,
		&e.blockedBy.liveBegin, &e.blockedBy.liveEnd, &e.blockedBy.backfillBegin,
	}
}

// edgeLiveFields has bit i if the i-th order of [edge.orderFields] is always that of a live fact.
const edgeLiveFields = 1<<0 | 1<<1 | // followLive, unfollowLive
	1<<5 | 1<<6 | // block.liveBegin, block.liveEnd
	1<<8 | 1<<9 | // mute.toggle.liveBegin, mute.toggle.liveEnd
	1<<11 | 1<<12 // blockedBy.liveBegin, blockedBy.liveEnd

// appendRow appends the edge as the value of its row.
func (e *edge) appendRow(dst []byte) []byte {
	var flags uint64
	if e.mayHaveBoardEdges {
		flags |= edgeFlagMayHaveBoardEdges
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
		settings := byte(e.settings.settings)
		if e.settings.order >= liveBit {
			settings |= settingsAreLive
		}
		dst = append(dst, settings)
		dst = binary.AppendUvarint(dst, uint64(e.settings.order&^liveBit))
	}
	if hasMuteUntil {
		dst = binary.AppendUvarint(dst, uint64(e.mute.liveUntil))
		dst = binary.AppendUvarint(dst, uint64(e.mute.backfillUntil))
	}
	return dst
}

// decodeRow sets the edge to the value of its row.
func (e *edge) decodeRow(row []byte) error {
	fields := e.orderFields()
	flags, rest, ok := cutOrders(row, edgeFlagBits, edgeLiveFields, fields[:])

	e.settings = settingsFact{}
	if ok && flags&edgeFlagSettings != 0 {
		e.settings, rest, ok = cutSettingsFact(rest)
	}

	e.mute.liveUntil, e.mute.backfillUntil = 0, 0
	if ok && flags&edgeFlagMuteUntil != 0 {
		if rest, ok = cutMuteUntil(rest, &e.mute.liveUntil); ok {
			rest, ok = cutMuteUntil(rest, &e.mute.backfillUntil)
		}
		// appendRow does not set the flag if both times are 0.
		ok = ok && (e.mute.liveUntil != 0 || e.mute.backfillUntil != 0)
	}

	if !ok || len(rest) != 0 {
		return projections.RowError("edge", row)
	}
	e.mayHaveBoardEdges = flags&edgeFlagMayHaveBoardEdges != 0
	return nil
}

// cutSettingsFact decodes the settings at the start of the remaining bytes of a row, and returns
// the bytes after them. If ok is false, appendRow cannot have written the bytes.
func cutSettingsFact(row []byte) (fact settingsFact, rest []byte, ok bool) {
	if len(row) == 0 || row[0] >= 2*settingsAreLive {
		return settingsFact{}, nil, false
	}
	order, rest, ok := cutUvarint(row[1:])
	if !ok || order == 0 || order >= uint64(liveBit) {
		return settingsFact{}, nil, false
	}

	fact.settings = events.FollowSettings(row[0] &^ settingsAreLive)
	fact.order = factOrder(order)
	if row[0]&settingsAreLive != 0 {
		fact.order |= liveBit
	}
	return fact, rest, true
}

// cutMuteUntil decodes the end of a mute at the start of the remaining bytes of a row, and returns
// the bytes after it.
func cutMuteUntil(row []byte, until *events.Micros) (rest []byte, ok bool) {
	v, rest, ok := cutUvarint(row)
	if !ok || v > math.MaxInt64 {
		return nil, false
	}
	*until = events.Micros(v)
	return rest, true
}

const (
	// boardEdgeFlagBits is the number of bits of the flags of a board edge: one for each of its
	// four orders.
	boardEdgeFlagBits = 4
	// boardEdgeLiveFields is [edgeLiveFields] for a board edge.
	boardEdgeLiveFields = 1<<0 | 1<<1 // followLive, unfollowLive
)

// orderFields returns the orders of the board edge in the sequence in which they are written.
func (b *boardEdge) orderFields() [4]*factOrder {
	return [...]*factOrder{&b.followLive, &b.unfollowLive, &b.followBackfill, &b.unfollowBackfill}
}

// appendRow appends the board edge as the value of its row.
func (b *boardEdge) appendRow(dst []byte) []byte {
	fields := b.orderFields()
	return appendOrders(dst, 0, fields[:])
}

// decodeRow sets the board edge to the value of its row.
func (b *boardEdge) decodeRow(row []byte) error {
	fields := b.orderFields()
	_, rest, ok := cutOrders(row, boardEdgeFlagBits, boardEdgeLiveFields, fields[:])
	if !ok || len(rest) != 0 {
		return projections.RowError("board edge", row)
	}
	return nil
}

const (
	// boardFlagTitleLive says that titleOrder is that of a live event. It is above the bits for the
	// three orders of a board.
	boardFlagTitleLive = 1 << 3
	// boardFlagBits is the number of bits of the flags of a board: one for each order, and
	// boardFlagTitleLive.
	boardFlagBits = 4
	// boardLiveFields is [edgeLiveFields] for a board.
	boardLiveFields = 1 << 0 // createdLive
)

// orderFields returns the orders of the board in the sequence in which they are written.
func (b *boardRow) orderFields() [3]*factOrder {
	return [...]*factOrder{&b.createdLive, &b.createdBackfill, &b.titleOrder}
}

// appendRow appends the board as the value of its row: the orders, and then, if titleOrder is not
// 0, the length of the title, the title, and titleEventBytes.
func (b *boardRow) appendRow(dst []byte) []byte {
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

// decodeRow sets the board to the value of its row. The board must be zero before, because
// decodeRow does not clear a title.
func (b *boardRow) decodeRow(row []byte) error {
	fields := b.orderFields()
	flags, rest, ok := cutOrders(row, boardFlagBits, boardLiveFields, fields[:])
	if !ok {
		return projections.RowError("board", row)
	}

	if flags&boardFlagTitleLive != 0 {
		if b.titleOrder == 0 {
			return projections.RowError("board", row)
		}
		b.titleOrder |= liveBit
	}

	if b.titleOrder == 0 {
		if len(rest) != 0 {
			return projections.RowError("board", row)
		}
		return nil
	}

	length, rest, ok := cutUvarint(rest)
	if !ok || length > uint64(len(rest)) {
		return projections.RowError("board", row)
	}
	b.title = string(rest[:length])
	b.titleEventBytes = string(rest[length:])
	return nil
}

// appendOrders appends the flags, to which it adds bit i if the i-th order is not 0, and then the
// orders that are not 0, without liveBit.
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

// cutOrders decodes what appendOrders wrote. It sets the fields, and returns the flags and the
// remaining bytes. flagBits is the number of bits that the flags may have. In the fields whose bits
// are set in liveFields, cutOrders sets liveBit. If ok is false, appendOrders cannot have written
// the bytes, and some fields may be set.
func cutOrders(
	row []byte, flagBits int, liveFields uint64, fields []*factOrder,
) (flags uint64, rest []byte, ok bool) {
	flags, rest, ok = cutUvarint(row)
	if !ok || flags >= 1<<flagBits {
		return 0, nil, false
	}

	for i, order := range fields {
		if flags>>i&1 == 0 {
			*order = 0
			continue
		}

		var v uint64
		if v, rest, ok = cutUvarint(rest); !ok || v == 0 || v >= uint64(liveBit) {
			return 0, nil, false
		}
		*order = factOrder(v)
		if liveFields>>i&1 == 1 {
			*order |= liveBit
		}
	}
	return flags, rest, true
}

// cutUvarint decodes the varint at the start of a row, and returns the bytes after it. ok is false
// if there is none, or if it is not in its shortest form.
func cutUvarint(row []byte) (v uint64, rest []byte, ok bool) {
	v, size := projections.Uvarint(row)
	if size <= 0 {
		return 0, nil, false
	}
	return v, row[size:], true
}
