package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows, in physical order. A key begins with the shard of its first id and the tag; where there is none, with that of the store.
// A is a user, B an owner of pins, b a board of B, p a pin of B, i an item; ^ is the complement of a number in 8 bytes, so that the
// highest comes first; part(i) is the partition of i in one byte. Behind "part of i" stands a row of the partition of i, under its
// first shard; the home of a row in "region of i" is i. All other rows have the first id as their home.
//
//	tag   key                      value      holds
//	0x70  B p                      pin facts  all that is still needed of what was said about the pin (package pinfacts)
//	0x71  B b p                    -          p is on b, or would be if late history came (pinfacts.Row.PossibleBoards)
//	0x72  A                        counts     living pins of A, plays by A
//	0x73  B b                      count      living pins on b
//	0x74  B i p                    board      the living pin p shows i, on this board
//	0x75  part of i: A i           like       what A said of i: likes it, or did
//	0x76  i                        item       plays, likes, re-pins; in how many lists it is by its score; heat
//	0x77  i ^from                  version    the score of i from a position on
//	0x78  i B                      -          the list of B has i by its score
//	0x79  region of i: B part(i) i p  named   p was once created to show i
//	0x7a  region of i: entry       to         everybody's list by heat, in the shard of the store
//	0x7b  region of i: B entry     to         the list of B
//	0x7c  part of i: ended i from  -          a version that ended, and will be dropped
//	0x7d  part of i:               time       when the first of those ended
//	0x7e  store: hash(B) hash(B,b) life       b was deleted once, and whether it was made again
//	0x7f  store: hash(A)           -          A was deleted: a keyed hash stands for the id
//	0x80  region of i: A ^t i      -          A likes i, since t
//
// What an entry is, and to, stands with listKey.
const (
	tagPin projections.Tag = projections.FirstCountersTag + iota
	tagPossibleBoard
	tagUserTallies
	tagBoardPins
	tagShownItem
	tagLike
	tagItem
	tagVersion
	tagItemLists
	tagNamedItem
	tagGlobalList
	tagOwnerList
	tagEndedVersion
	tagFirstEndedVersion
	tagBoardDeletion
	tagTombstone
	tagLikedItem
)

// Walked are the tags of lists.
func (*Counters) Walked() []projections.Tag {
	return []projections.Tag{
		tagPossibleBoard, tagShownItem, tagItemLists, tagNamedItem, tagGlobalList, tagOwnerList, tagEndedVersion, tagLikedItem,
	}
}

func storePrefix(dst []byte, tag projections.Tag) []byte {
	return projections.AppendPrefix(dst, projections.StoreShard, tag)
}

// partitionOf returns the partition of an item.
func itemPartition(item string) uint8 { return events.ShardOf(item).Partition() }

// versionKey appends the key of the version of an item that begins at a position; of those from it on backwards it is the
// first.
func versionKey(dst []byte, item string, from uint64) []byte {
	return binary.BigEndian.AppendUint64(projections.AppendKey(dst, tagVersion, item), ^from)
}

// likeKey appends the key of what a user said of an item.
func likeKey(dst []byte, user, item string) []byte {
	return events.AppendID(likesPrefix(dst, itemPartition(item), user), item)
}

// likesOf appends what the keys of the likes of a user in a partition begin with.
func likesPrefix(dst []byte, partition uint8, user string) []byte {
	return events.AppendID(projections.AppendPartition(dst, partition, tagLike), user)
}

// likedKey appends the key of a like in the list of its user. Later ones come first.
func likedItemKey(dst []byte, user string, since events.Micros, item string) []byte {
	return events.AppendID(binary.BigEndian.AppendUint64(projections.AppendKey(dst, tagLikedItem, user), ^uint64(since)), item)
}

// cutLiked reads what follows the user in such a key.
func cutLikedItem(rest []byte) (since events.Micros, item string, err error) {
	if len(rest) < 8 || ^binary.BigEndian.Uint64(rest) > math.MaxInt64 {
		return 0, "", projections.RowError("liked item", rest)
	}
	item, err = cutLastID(rest[8:])
	return events.Micros(^binary.BigEndian.Uint64(rest)), item, err
}

// namedKey appends the key of a pin that named an item.
func namedItemKey(dst []byte, owner, item, pin string) []byte {
	return events.AppendID(events.AppendID(namedItemsPrefix(dst, owner, itemPartition(item)), item), pin)
}

// namedIn appends what the keys of the pins of an owner begin with that named items of a partition.
func namedItemsPrefix(dst []byte, owner string, partition uint8) []byte {
	return append(projections.AppendKey(dst, tagNamedItem, owner), partition)
}

// cutNamed reads what follows the owner in such a key.
func cutNamedItem(rest []byte) (item, pin string, err error) {
	if len(rest) == 0 {
		return "", "", projections.RowError("pin that named an item", rest)
	}
	return cutLastTwoIDs(rest[1:])
}

// endedKey appends the key under which a version of an item waits to be dropped.
func endedVersionKey(dst []byte, ended events.Micros, item string, from uint64) []byte {
	dst = projections.AppendPartition(dst, itemPartition(item), tagEndedVersion)
	return binary.BigEndian.AppendUint64(events.AppendID(binary.BigEndian.AppendUint64(dst, uint64(ended)), item), from)
}

// cutEnded reads what follows the tag in such a key.
func cutEndedVersion(rest []byte) (ended events.Micros, item string, from uint64, err error) {
	if len(rest) < 8 || binary.BigEndian.Uint64(rest) > math.MaxInt64 {
		return 0, "", 0, projections.RowError("ended version", rest)
	}
	ended = events.Micros(binary.BigEndian.Uint64(rest))
	item, tail, err := events.CutID(rest[8:])
	if err != nil || len(tail) != 8 {
		return 0, "", 0, projections.RowError("ended version", rest)
	}
	return ended, item, binary.BigEndian.Uint64(tail), nil
}

// A list is named by the prefix of its rows.

func globalListPrefix() []byte { return storePrefix(nil, tagGlobalList) }

func ownerListPrefix(owner string) []byte { return projections.AppendKey(nil, tagOwnerList, owner) }

// An entry of a list begins with what it is. Those by name come first:
//
//	0x00 i              the item i is in the list, by the score that its versions have
//	0x01 ^score i ^from version of i: it was in the list by this score from a position on; the value is the position from
//	                    which on it was not, as a varint, or nothing where it is
//
// A sort key is what stands between the first byte and the position: sort keys compare as bytes.
const (
	entryByName = iota
	entryByScore
)

func nameEntryKey(dst, list []byte, item string) []byte {
	return events.AppendID(append(append(dst, list...), entryByName), item)
}

func scoreEntryKey(dst, list []byte, item string, score int64, from uint64) []byte {
	dst = appendSortKey(append(append(dst, list...), entryByScore), item, score)
	return binary.BigEndian.AppendUint64(dst, ^from)
}

// appendSortKey appends where an item of a score stands: the higher score first, then by id. Flipping the sign bit puts the
// negative scores below the others.
func appendSortKey(dst []byte, item string, score int64) []byte {
	return events.AppendID(binary.BigEndian.AppendUint64(dst, ^(uint64(score)^1<<63)), item)
}

// cutSortKey reads a sort key and returns what follows it.
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

// cutVersionEntry reads what follows the first byte of an entry that is a version.
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

// decodeTo reads the value of a version in a list: the position from which on it does not hold; the highest: it does.
func decodeVersionEnd(row []byte) (to uint64, err error) {
	if len(row) == 0 {
		return math.MaxUint64, nil
	}
	to, n := binary.Uvarint(row)
	if n != len(row) || row[n-1] == 0 && n > 1 {
		return 0, projections.RowError("end of a version", row)
	}
	return to, nil
}
