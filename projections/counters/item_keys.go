package counters

import (
	"encoding/binary"
	"math"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows of pins, items and lists, in physical order; those of relations are in 0x70–0x7f. Every key begins with the shard
// of its first id and the tag; where there is none, with that of the store. A is a user, B an owner of pins, b a board of B, p
// a pin of B, i an item; ^ is the complement of a number in 8 bytes, so that the highest comes first.
//
//	tag   key            value      holds
//	0x80  B p            pin facts  all that is still needed of what was said about the pin (package pinfacts)
//	0x81  B b p          -          p is on b, or would be if late history came (pinfacts.Row.Places)
//	0x82  A              two counts living pins of A, plays by A
//	0x83  B b            count      living pins on b
//	0x84  B b            time       the first live deletion of b
//	0x85  A i            like       A likes i, or did
//	0x86  i              item       plays, likes, re-pins; on how many boards it is, and on which if on few; heat
//	0x87  i ^from        version    the score of i from a position on
//	0x88  i B            count      living pins of B that show i
//	0x89  i B b          count      living pins on b that show i
//	0x8a  entry          to         everybody's list by heat
//	0x8b  B entry        to         the list of B
//	0x8c  B b entry      to         the list of b
//	0x8d  ended i from   -          a version that ended, and will be dropped
//	0x8e                 time       when the first of those ended
//
// What an entry is, and to, stands with listKey.
const (
	tagPin projections.Tag = projections.FirstCountersTag + 0x10 + iota
	tagPlace
	tagDoings
	tagBoardPins
	tagBoardGone
	tagLike
	tagItem
	tagVersion
	tagOwnerShows
	tagBoardShows
	tagTop
	tagOwnerTop
	tagBoardTop
	tagEnded
	tagFirstEnded
)

// Walked are the tags of lists.
func (*Counters) Walked() []projections.Tag {
	return []projections.Tag{
		tagFollower, tagFollowed, tagUnfollowed, tagBoardEdge, tagPlace, tagTop, tagOwnerTop, tagBoardTop, tagEnded,
	}
}

func storeKey(dst []byte, tag projections.Tag) []byte {
	return projections.AppendPrefix(dst, projections.StoreShard, tag)
}

// versionKey appends the key of the version of an item that begins at a position; of those from it on backwards it is the
// first.
func versionKey(dst []byte, item string, from uint64) []byte {
	return binary.BigEndian.AppendUint64(projections.AppendKey(dst, tagVersion, item), ^from)
}

// endedKey appends the key under which a version of an item waits to be dropped.
func endedKey(dst []byte, ended events.Micros, item string, from uint64) []byte {
	dst = binary.BigEndian.AppendUint64(storeKey(dst, tagEnded), uint64(ended))
	return binary.BigEndian.AppendUint64(events.AppendID(dst, item), from)
}

// cutEnded reads what follows the tag in such a key.
func cutEnded(rest []byte) (ended events.Micros, item string, from uint64, err error) {
	if len(rest) < 8 || binary.BigEndian.Uint64(rest) > math.MaxInt64 {
		return 0, "", 0, errRow("ended version", rest)
	}
	ended = events.Micros(binary.BigEndian.Uint64(rest))
	item, tail, err := events.CutID(rest[8:])
	if err != nil || len(tail) != 8 {
		return 0, "", 0, errRow("ended version", rest)
	}
	return ended, item, binary.BigEndian.Uint64(tail), nil
}

// A list is named by the prefix of its rows.

func topPrefix() []byte { return storeKey(nil, tagTop) }

func ownerTopPrefix(owner string) []byte { return projections.AppendKey(nil, tagOwnerTop, owner) }

func boardTopPrefix(owner, board string) []byte {
	return projections.AppendKey(nil, tagBoardTop, owner, board)
}

// An entry of a list begins with what it is. The widespread ones come first:
//
//	0x00 i              the widespread item i is in the list, by the score that its versions have
//	0x01 ^score i ^from version of i: it was in the list by this score from a position on; the value is the position from
//	                    which on it was not, as a varint, or nothing where it is
//
// A place is what stands between the first byte and the position: places compare as bytes.
const (
	entryWidespread = iota
	entryVersion
)

func widespreadKey(dst, list []byte, item string) []byte {
	return events.AppendID(append(append(dst, list...), entryWidespread), item)
}

func listKey(dst, list []byte, item string, score int64, from uint64) []byte {
	dst = appendPlace(append(append(dst, list...), entryVersion), item, score)
	return binary.BigEndian.AppendUint64(dst, ^from)
}

// appendPlace appends where an item of a score stands: the higher score first, then by id. Flipping the sign bit puts the
// negative scores below the others.
func appendPlace(dst []byte, item string, score int64) []byte {
	return events.AppendID(binary.BigEndian.AppendUint64(dst, ^(uint64(score)^1<<63)), item)
}

// cutPlace reads a place and returns what follows it.
func cutPlace(place []byte) (item string, score int64, rest []byte, err error) {
	if len(place) < 8 {
		return "", 0, nil, errRow("place in a list", place)
	}
	score = int64(^binary.BigEndian.Uint64(place) ^ 1<<63)
	if item, rest, err = events.CutID(place[8:]); err != nil {
		return "", 0, nil, errRow("place in a list", place)
	}
	return item, score, rest, nil
}

// cutVersionEntry reads what follows the first byte of an entry that is a version.
func cutVersionEntry(rest []byte) (item string, score int64, from uint64, err error) {
	item, score, tail, err := cutPlace(rest)
	if err == nil && len(tail) != 8 {
		err = errRow("entry of a list", rest)
	}
	if err != nil {
		return "", 0, 0, err
	}
	return item, score, ^binary.BigEndian.Uint64(tail), nil
}

// decodeTo reads the value of a version in a list: the position from which on it does not hold; the highest: it does.
func decodeTo(row []byte) (to uint64, err error) {
	if len(row) == 0 {
		return math.MaxUint64, nil
	}
	to, n := binary.Uvarint(row)
	if n != len(row) || row[n-1] == 0 && n > 1 {
		return 0, errRow("end of a version", row)
	}
	return to, nil
}
