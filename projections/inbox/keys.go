package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// errRow is [projections.RowError].
func errRow(what string, row []byte) error { return projections.RowError(what, row) }

// The rows of the inbox beside those of the graph that it embeds (see graph/keys.go), in physical order. Every key
// begins with the shard of its first id and the tag. A is a reader, B an owner of pins, b a board of B, p a pin of B, i an
// item; ^t is the complement of a time in 8 bytes, so that newer rows come first and equal times are ordered by id.
//
//	tag   key         value       holds
//	0x40  B p         pin facts   all that is still needed of what was said about the pin
//	0x41  B ^t p      b           outbox of B: the living pins of all boards
//	0x42  B b ^t p    -           outbox of b
//	0x43  B b p       -           p is not on b, but would be if late history came: see pinfacts.Row.PossibleBoards
//	0x44  B           count       living pins of B
//	0x45  B b         count       living pins on b
//	0x46  B b         time        the first live deletion of b
//	0x47  A           time        the read marker: A has read the feed up to then
//	0x48  A B         -           A looks into the outbox of B
//	      A B b       -           the same for b, where A does not follow B explicitly
//	0x49  B part      -           B is pulled by all in a partition who are concerned: a region, its home is the partition
const (
	tagPin projections.Tag = projections.FirstInboxTag + iota
	tagOutbox
	tagBoardOutbox
	tagPossibleBoard
	tagPinCount
	tagBoardPinCount
	tagBoardDeleted
	tagReadMarker
	tagPull
	tagPulledOwner
)

// Walked are the tags of lists, those of the graph among them.
func (f *Inbox) Walked() []projections.Tag {
	return append(f.graph.Walked(), tagOutbox, tagBoardOutbox, tagPossibleBoard, tagPull)
}

// appendNewestFirst appends a time so that later ones sort first.
func appendNewestFirst(dst []byte, at events.Micros) []byte {
	return binary.BigEndian.AppendUint64(dst, ^uint64(at))
}

func outboxKey(dst []byte, owner string, created events.Micros, pin string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tagOutbox, owner), created), pin)
}

func boardOutboxKey(dst []byte, owner, board string, created events.Micros, pin string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tagBoardOutbox, owner, board), created), pin)
}

// A sort key is where a pin stands in every feed, newest first: ^time, owner, pin. Sort keys compare as bytes.

func sortKeyOf(created events.Micros, owner, pin string) []byte {
	return events.AppendID(events.AppendID(appendNewestFirst(nil, created), owner), pin)
}

// cutTime reads a time that sorts newest first.
func cutTime(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < 8 {
		return 0, nil, errRow("key", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[8:], nil
}

// cutSortKey reads a sort key.
func cutSortKey(sortKey []byte) (created events.Micros, owner, pin string, err error) {
	created, rest, err := cutTime(sortKey)
	if err != nil {
		return 0, "", "", err
	}
	if owner, rest, err = events.CutID(rest); err != nil {
		return 0, "", "", err
	}
	if pin, rest, err = events.CutID(rest); err == nil && len(rest) != 0 {
		err = errRow("sort key", sortKey)
	}
	return created, owner, pin, err
}

// cutOutbox reads what follows the prefix of an outbox.
func cutOutboxKey(rest []byte) (created events.Micros, pin string, err error) {
	created, rest, err = cutTime(rest)
	if err != nil {
		return 0, "", err
	}
	if pin, rest, err = events.CutID(rest); err == nil && len(rest) != 0 {
		err = errRow("outbox key", rest)
	}
	return created, pin, err
}
