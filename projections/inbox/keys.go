package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
)

// errRow returns the error for a row that the inbox cannot have written, see
// [projections.RowError].
func errRow(what string, row []byte) error { return projections.RowError(what, row) }

// These are the rows of the inbox, in physical order. The store also has the rows of the graph that
// it embeds (see graph/keys.go). Every key begins with the shard of its first id and the tag. A is
// a reader, B an owner of pins, b a board of B, p a pin of B. ^t is the complement of a time in 8
// bytes, so that newer rows come first; rows of equal times are ordered by id.
//
//	tag   key         value       meaning
//	0x40  B p         pin facts   all facts about the pin that are still needed (package pinstore)
//	0x41  B ^t p      b           outbox of B: the living pins on all boards
//	0x42  B b ^t p    -           outbox of b: the living pins on b
//	0x43  B b p       -           p is not on b, but would be if late history said so: see pinstore.Row.PossibleBoards
//	0x44  B           count       the number of living pins of B
//	0x45  B b         count       the number of living pins on b
//	0x46  B b         time        the first live deletion of b
//	0x47  A           time        the read marker: A has read the feed up to this time
//	0x48  A B         -           the pages of A merge the outbox of B
//	      A B b       -           the same for b, where A does not follow B explicitly
//	0x49  B part      -           B is pulled by all users of a partition who follow B or boards of B. This is a region: the home of the
//	                              row is the partition
//	0x4a  C part(B) B p  -        p, which may live, repeats a pin of C. This is a region of C: the home of the row is B, whose partition is
//	                              part(B)
//	0x4b  A i         fact        whether A hides the item i: see package hiddenitems, also for the next two
//	0x4c  A ^since i  -           A hides i
//	0x4d  A           count       how many items A hides
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
	tagRepinOf
	tagItemHiding
	tagHiddenItem
	tagHiddenCount
)

// hiddenItems are the rows of the items that readers hide.
//
//nolint:gochecknoglobals // a table that never changes
var hiddenItems = hiddenitems.Tags{Fact: tagItemHiding, List: tagHiddenItem, Count: tagHiddenCount}

// IteratedTags returns the tags of rows that are read in sequence, those of the graph included. It
// is part of [projections.IteratedOnly].
func (f *Inbox) IteratedTags() []projections.Tag {
	return append(f.graph.IteratedTags(), tagOutbox, tagBoardOutbox, tagPossibleBoard, tagPull, tagRepinOf, tagHiddenItem)
}

// appendNewestFirst appends a time so that later times sort first.
func appendNewestFirst(dst []byte, at events.Micros) []byte {
	return binary.BigEndian.AppendUint64(dst, ^uint64(at))
}

func outboxKey(dst []byte, owner string, created events.Micros, pin string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tagOutbox, owner), created), pin)
}

func boardOutboxKey(dst []byte, owner, board string, created events.Micros, pin string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tagBoardOutbox, owner, board), created), pin)
}

// repinOfKey appends the key of the row by which the deletion of a user finds a pin that repeats a
// pin of that user.
func repinOfKey(dst []byte, repinOwner, owner, pin string) []byte {
	dst = append(projections.AppendKey(dst, tagRepinOf, repinOwner), events.ShardOf(owner).Partition())
	return events.AppendID(events.AppendID(dst, owner), pin)
}

// cutRepinOfKey decodes what follows the user in the key of a row that repinOfKey has written.
func cutRepinOfKey(rest []byte) (owner, pin string, err error) {
	if len(rest) == 0 {
		return "", "", errRow("re-pin key", rest)
	}
	if owner, rest, err = events.CutID(rest[1:]); err != nil {
		return "", "", err
	}
	if pin, rest, err = events.CutID(rest); err == nil && len(rest) != 0 {
		err = errRow("re-pin key", rest)
	}
	return owner, pin, err
}

// sortKeyOf returns the sort key of a pin: its place in the order Newest, the same in every feed. A
// sort key consists of ^time, owner and pin. Sort keys are compared as bytes, and the smaller one
// is shown first.
func sortKeyOf(created events.Micros, owner, pin string) []byte {
	return events.AppendID(events.AppendID(appendNewestFirst(nil, created), owner), pin)
}

// cutTime reads a time that appendNewestFirst has written, and returns what follows it.
func cutTime(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < 8 {
		return 0, nil, errRow("key", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[8:], nil
}

// cutSortKey decodes a sort key.
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

// cutOutboxKey decodes what follows the prefix of an outbox in the key of a row.
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
