package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows of the graph, in physical order. Every key begins with the shard of its first id and the tag; ids stand
// in the encoding of [events.AppendID]; ^since is the complement of a time in 8 bytes, so that newer rows come
// first and equal times are ordered by id. A and B are users, b is a board of B.
//
//	tag   key              value          holds
//	0x10  A B              edge           every fact that A and B still need: follows, blocks, mutes of B by A
//	0x11  A B b            board edge     the same for follows of board b by A
//	0x12  A B rel since b  -              board relations that hold now, oldest first (rel 1 follow, 2 exclusion)
//	0x13  A ^since B       -              whom A follows explicitly, of an A with many edges (short.go)
//	0x14  A ^since B       -              whom A follows implicitly
//	0x15  A ^since B b     -              boards that A follows
//	0x16  A ^since B b     -              boards that A excludes
//	0x17  A ^since B       -              whom A blocks
//	0x18  A ^since B       -              whom A mutes
//	0x19  A                user counts    the lengths of A's lists, and whether 0x13 is kept
//	0x1a  B ^since A       -              who follows B explicitly
//	0x1b  B ^since A       -              who follows B implicitly
//	0x1c  B A              -              edges (A, B) that neither 0x1a nor 0x1b shows, so that erasing B finds them
//	0x1d  B b              board          creation, deletion, title
//	0x1e  B b              board counts   the lengths of the lists of b
//	0x1f  B ^created b     -              living boards of B
//	0x20  B b ^since A     -              who follows b itself
//	0x21  B b ^since A     -              who excludes b
//	0x22  hash(B)          -              B was deleted: no backfill may touch B (16 bytes, keyed)
const (
	tagEdge projections.Tag = projections.FirstGraphTag + iota
	tagBoardEdge
	tagHeld
	tagFollowing
	tagFollowingImplicit
	tagFollowedBoards
	tagExcludedBoards
	tagBlocked
	tagMuted
	tagUserCounts
	tagFollowers
	tagFollowersImplicit
	tagReverse
	tagBoard
	tagBoardCounts
	tagBoards
	tagBoardFollowers
	tagBoardExcluders
	tagTombstone
)

// Walked are the tags of lists and of what else is only walked over.
func (*Graph) Walked() []projections.Tag {
	return []projections.Tag{
		tagHeld, tagFollowing, tagFollowingImplicit, tagFollowedBoards, tagExcludedBoards, tagBlocked, tagMuted, tagFollowers,
		tagFollowersImplicit, tagReverse, tagBoards, tagBoardFollowers, tagBoardExcluders,
	}
}

func boardEdgeKey(dst []byte, follower, owner, board string) []byte {
	return events.AppendID(projections.AppendKey(dst, tagBoardEdge, follower, owner), board)
}

// heldPrefix appends the prefix of the board relations of one kind that hold between two users.
func heldPrefix(dst []byte, follower, owner string, kind relationKind) []byte {
	return append(projections.AppendKey(dst, tagHeld, follower, owner), byte(kind))
}

func heldKey(dst []byte, follower, owner, board string, r relation) []byte {
	dst = heldPrefix(dst, follower, owner, r.kind)
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.since))
	return events.AppendID(dst, board)
}

// appendNewestFirst appends a time so that later ones sort first.
func appendNewestFirst(dst []byte, since events.Micros) []byte {
	return binary.BigEndian.AppendUint64(dst, ^uint64(since))
}

// listKey appends the key of a user in a list of another user.
func listKey(dst []byte, tag projections.Tag, of string, since events.Micros, user string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tag, of), since), user)
}

// boardListKey appends the key of a board in a list of a user.
func boardListKey(dst []byte, tag projections.Tag, of string, since events.Micros, owner, board string) []byte {
	return events.AppendID(listKey(dst, tag, of, since, owner), board)
}

// ofBoardKey appends the key of a user in a list of a board.
func ofBoardKey(dst []byte, tag projections.Tag, owner, board string, since events.Micros, user string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tag, owner, board), since), user)
}

func tombstoneKey(dst []byte, user string, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, events.ShardOf(user), tagTombstone), hash[:]...)
}

// cutSince reads the time at the start of what follows the prefix of a newest-first list.
func cutSince(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < 8 {
		return 0, nil, errRow("list key", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[8:], nil
}
