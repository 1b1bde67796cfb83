package counters

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows, in physical order. A is a user, B an owner of pins, b a board of B, p a pin of B, i an
// item. ^ is the complement of a number in 8 bytes, so that the highest number comes first. part(i)
// is the partition of i in one byte.
//
// A key begins with the shard of its first id and the tag, and the first id is the home of the row,
// with three exceptions. A row marked "part of i" is a row of the partition of i, in the first
// shard of that partition. A row marked "region of i" is in the shard of its first id, so that a
// walk finds it there, but its home is i. A row marked "store" has no home and is in the shard for
// rows of the store as a whole.
//
//	tag   key                              value      holds
//	0x70  B p                              pin facts  all facts about the pin that are still needed (package pinstore)
//	0x71  B b p                            -          p is on b, or would be if late history came (pinstore.Row.PossibleBoards)
//	0x72  A                                counts     living pins of A, plays by A
//	0x73  B b                              count      living pins on b
//	0x74  B i p                            board      the living pin p shows i, on this board
//	0x75  part of i: A i kind              reaction   whether A reacts to i with the kind, or did
//	0x76  i                                item       plays, likes, re-pins; number of other kinds; of owners' lists with its score; heat
//	0x78  i B                              -          the list of B has i by score
//	0x79  region of i: B part(i) i p       named      p was once created to show i
//	0x7a  region of i, in store's shard: entry  to    global list by heat
//	0x7b  region of i: B entry             to         list by heat of B
//	0x7c  part of i: number                ended      an earlier score of i, which will be dropped
//	0x7d  part of i:                       queue      which rows of 0x7c there are
//	0x7e  store: hash(B) hash(B,b)         deletion   b was deleted once, and whether it was created again
//	0x7f  store: hash(A)                   -          A was deleted (a keyed hash stands for the id)
//	0x80  region of i: A kind ^t i         -          A reacts to i with the kind, since t
//	0x81  i kind ^t A                      -          A reacts to i with the kind, which is not private, since t
//	0x82  i kind                           count      users who react to i with the kind, which is neither private nor a like
//
// entry and to are explained at entryByName, below. A kind is its bytes and 0x00, and nothing
// before the 0x00 for a like.
const (
	tagPin projections.Tag = projections.FirstCountersTag + iota
	tagPossibleBoard
	tagUserTallies
	tagBoardPins
	tagShownItem
	tagReaction
	tagItem
	_ // 0x77 had the versions of scores until version 8
	tagItemLists
	tagNamedItem
	tagGlobalList
	tagOwnerList
	tagEndedVersion
	tagVersionQueue
	tagBoardDeletion
	tagTombstone
	tagReactedItem
	tagReactor
	tagReactionCount
)

// IteratedTags returns the tags of rows that are only walked over and never read by their keys. It
// is part of [projections.IteratedOnly].
func (*Counters) IteratedTags() []projections.Tag {
	return []projections.Tag{
		tagPossibleBoard, tagShownItem, tagItemLists, tagNamedItem, tagGlobalList, tagOwnerList, tagReactedItem, tagReactor,
	}
}

// storePrefix appends the prefix of the rows of a tag that belong to the store as a whole.
func storePrefix(dst []byte, tag projections.Tag) []byte {
	return projections.AppendPrefix(dst, projections.StoreShard, tag)
}

// itemPartition returns the partition of an item.
func itemPartition(item string) uint8 { return events.ShardOf(item).Partition() }

// appendReactionKind appends the kind of a reaction. No kind contains a zero byte, so none is a
// prefix of another.
func appendReactionKind(dst []byte, kind string) []byte { return append(append(dst, kind...), 0) }

// cutReactionKind reads a kind and returns the bytes that follow it.
func cutReactionKind(b []byte) (kind string, rest []byte, err error) {
	name, rest, found := bytes.Cut(b, []byte{0})
	if !found {
		return "", nil, projections.RowError("kind of a reaction", b)
	}
	kind = string(name)
	if !events.IsReaction(kind) || events.ReactionOf(kind) != kind {
		return "", nil, projections.RowError("kind of a reaction", b)
	}
	return kind, rest, nil
}

// reactionKey appends the key of the row with the facts about a reaction.
func reactionKey(dst []byte, user, item, kind string) []byte {
	return appendReactionKind(ownReactionsPrefix(dst, user, item), kind)
}

// ownReactionsPrefix appends the prefix of the rows of tagReaction of a user and an item.
func ownReactionsPrefix(dst []byte, user, item string) []byte {
	return events.AppendID(reactionsPrefix(dst, itemPartition(item), user), item)
}

// reactionsPrefix appends the prefix of the rows of tagReaction of a user for the items of a
// partition.
func reactionsPrefix(dst []byte, partition uint8, user string) []byte {
	return events.AppendID(projections.AppendPartition(dst, partition, tagReaction), user)
}

// cutReaction reads the part of such a key that follows the user.
func cutReaction(rest []byte) (item, kind string, err error) {
	item, rest, err = events.CutID(rest)
	if err != nil {
		return "", "", projections.RowError("reaction", rest)
	}
	kind, rest, err = cutReactionKind(rest)
	if err == nil && len(rest) != 0 {
		err = projections.RowError("reaction", rest)
	}
	return item, kind, err
}

// reactedItemKey appends the key of an item in the list of a user's reactions of a kind. Later
// reactions come first.
func reactedItemKey(dst []byte, user, kind string, since events.Micros, item string) []byte {
	return appendSince(reactedItemsPrefix(dst, user, kind), since, item)
}

// reactedItemsPrefix appends the prefix of the list of a user's reactions of a kind.
func reactedItemsPrefix(dst []byte, user, kind string) []byte {
	return appendReactionKind(projections.AppendKey(dst, tagReactedItem, user), kind)
}

// reactorKey appends the key of a user in the list of those who react to an item with a kind. Later
// reactions come first.
func reactorKey(dst []byte, item, kind string, since events.Micros, user string) []byte {
	return appendSince(reactorsPrefix(dst, item, kind), since, user)
}

// reactorsPrefix appends the prefix of the list of users who react to an item with a kind.
func reactorsPrefix(dst []byte, item, kind string) []byte {
	return appendReactionKind(projections.AppendKey(dst, tagReactor, item), kind)
}

// reactionCountKey appends the key of the number of users who react to an item with a kind.
func reactionCountKey(dst []byte, item, kind string) []byte {
	return appendReactionKind(projections.AppendKey(dst, tagReactionCount, item), kind)
}

// appendSince appends the sort key of an entry of the two lists: later times come first, then ids.
func appendSince(dst []byte, since events.Micros, id string) []byte {
	return events.AppendID(binary.BigEndian.AppendUint64(dst, ^uint64(since)), id)
}

// cutSince reads a sort key that [appendSince] wrote.
func cutSince(sortKey []byte) (since events.Micros, id string, err error) {
	if len(sortKey) < 8 {
		return 0, "", projections.RowError("entry of a list of reactions", sortKey)
	}
	t := ^binary.BigEndian.Uint64(sortKey)
	if t > math.MaxInt64 {
		return 0, "", projections.RowError("entry of a list of reactions", sortKey)
	}
	id, err = cutLastID(sortKey[8:])
	return events.Micros(t), id, err
}

// namedItemKey appends the key of the row that says that a pin of an owner named an item.
func namedItemKey(dst []byte, owner, item, pin string) []byte {
	dst = namedItemsPrefix(dst, owner, itemPartition(item))
	return events.AppendID(events.AppendID(dst, item), pin)
}

// namedItemsPrefix appends the prefix of the rows about an owner's pins that named items of a
// partition.
func namedItemsPrefix(dst []byte, owner string, partition uint8) []byte {
	return append(projections.AppendKey(dst, tagNamedItem, owner), partition)
}

// cutNamedItem reads the part of such a key that follows the owner.
func cutNamedItem(rest []byte) (item, pin string, err error) {
	if len(rest) == 0 {
		return "", "", projections.RowError("pin that named an item", rest)
	}
	return cutLastTwoIDs(rest[1:])
}

// endedVersionKey appends the key of the ended version with a number.
func endedVersionKey(dst []byte, partition uint8, number uint64) []byte {
	return binary.BigEndian.AppendUint64(projections.AppendPartition(dst, partition, tagEndedVersion), number)
}

// A list by heat is identified by the prefix of its rows.

func globalListPrefix() []byte { return storePrefix(nil, tagGlobalList) }

func ownerListPrefix(owner string) []byte { return projections.AppendKey(nil, tagOwnerList, owner) }

// A list has two kinds of entries, and the first byte after the prefix says of which kind an entry
// is. Entries by name come first:
//
//	0x00 i              the list has item i; its score is looked up in the row of i
//	0x01 ^score i ^from a version of i: the list has i with this score from the position from on. The value is the position
//	                    from which on it no longer holds, as a varint, or nothing while it holds
//
// The sort key of an entry by score is what stands between the first byte and the position: score
// and item. Sort keys are compared as bytes.
const (
	entryByName = iota
	entryByScore
)

func nameEntryKey(dst, list []byte, item string) []byte {
	dst = append(append(dst, list...), entryByName)
	return events.AppendID(dst, item)
}

func scoreEntryKey(dst, list []byte, item string, score int64, from uint64) []byte {
	dst = append(append(dst, list...), entryByScore)
	dst = appendSortKey(dst, item, score)
	return binary.BigEndian.AppendUint64(dst, ^from)
}

// appendSortKey appends the sort key of an item with a score: higher scores come first, then items
// by id. The sign bit is flipped, so that negative scores come after all others.
func appendSortKey(dst []byte, item string, score int64) []byte {
	return events.AppendID(binary.BigEndian.AppendUint64(dst, ^(uint64(score)^1<<63)), item)
}

// cutSortKey reads a sort key and returns the bytes that follow it.
func cutSortKey(sortKey []byte) (item string, score int64, rest []byte, err error) {
	if len(sortKey) < 8 {
		return "", 0, nil, projections.RowError("sort key in a list", sortKey)
	}
	score = int64(^binary.BigEndian.Uint64(sortKey) ^ 1<<63)
	if item, rest, err = events.CutID(sortKey[8:]); err != nil {
		return "", 0, nil, projections.RowError("sort key in a list", sortKey)
	}
	return item, score, rest, nil
}

// cutScoreEntry reads the part of the key of an entry by score that follows its first byte.
func cutScoreEntry(rest []byte) (item string, score int64, from uint64, err error) {
	item, score, tail, err := cutSortKey(rest)
	if err == nil && len(tail) != 8 {
		err = projections.RowError("entry of a list", rest)
	}
	if err != nil {
		return "", 0, 0, err
	}
	return item, score, ^binary.BigEndian.Uint64(tail), nil
}

// decodeVersionEnd reads the value of an entry by score: the position from which on the version no
// longer holds, or math.MaxUint64 while it holds.
func decodeVersionEnd(row []byte) (to uint64, err error) {
	if len(row) == 0 {
		return math.MaxUint64, nil
	}
	to, n := projections.Uvarint(row)
	if n != len(row) {
		return 0, projections.RowError("end of a version", row)
	}
	return to, nil
}
