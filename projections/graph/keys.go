package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows of the graph, in the order of their tags. A and B are users, b is a board of B.
//
// Every key begins with a shard and the tag. Ids are in the encoding of [events.AppendID]. ^since is the complement of a
// time in 8 bytes, so that newer rows come first; rows of equal time are ordered by id. part(A) is the partition of A in one
// byte.
//
// The home of a row is the first id of its key, with three exceptions. Rows of a region (0x12, 0x24) are in the shard of B,
// so that a walk finds them by B, but their home is A. Keys that begin with part(B) are in the first shard of that partition,
// and their home is B. Rows that begin with a hash are in the shard for rows of the store as a whole: every store has them.
//
//	tag   key              value          holds
//	0x10  A B              edge           out-end: all facts of A about B, and the blocks of A by B
//	0x11  A B b            board edge     out-end: the same for board b
//	0x12  B part(A) A      flags          region of B: one row for each of 0x10, with whether A follows B or only boards of B
//	0x13  A ^since B       settings       users whom A follows explicitly, if A has many edges (following_list.go)
//	0x14  A ^since B       settings       users whom A follows implicitly
//	0x15  A ^since B b     -              boards that A follows
//	0x16  A ^since B b     -              boards that A excludes
//	0x17  A ^since B       -              users whom A blocks
//	0x18  A ^since B       -              users whom A mutes without an end
//	0x19  A                user counts    the lengths of the lists of A, and whether 0x13 is stored
//	0x1a  B ^since A       -              users who follow B explicitly
//	0x1b  B ^since A       -              users who follow B implicitly
//	0x1c  B A              -              leads to rows of 0x25 that are in neither 0x1a nor 0x1b, for the deletion of B
//	0x1d  B b              board          creation, title
//	0x1e  B b              board counts   the lengths of the lists of b
//	0x1f  B ^created b     -              living boards of B
//	0x20  B b ^since A     -              users who follow b itself
//	0x21  B b ^since A     -              users who exclude b
//	0x22  hash(B)          -              B was deleted: no backfill may touch B (16 bytes, keyed)
//	0x23  hash(B) hash(Bb) deletion       b was deleted, and whether it was created again
//	0x24  B b part(A) A    flags          region of b: one row for each of 0x11, with whether A follows b
//	0x25  part(B) A B      edge           in-end: the facts of 0x10 without mutes and settings
//	0x26  part(B) A B b    board edge     in-end: the facts of 0x11
//	0x27  B b A            -              leads to rows of 0x26 that are in neither 0x20 nor 0x21, for the deletion of b
//	0x28  A ^until B       ^since         users whom A mutes until a time, which may have passed
//	0x29  A ^set B         -              users whom A follows with the setting favorite, and when A set the settings
//	0x2a  A ^set B         -              the same for the setting notify
const (
	tagEdge projections.Tag = projections.FirstGraphTag + iota
	tagBoardEdge
	tagRegion
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
	tagBoardDeletion
	tagBoardRegion
	tagInEdge
	tagInBoardEdge
	tagBoardReverse
	tagTimedMutes
	tagFavorites
	tagNotifying
)

// IteratedTags returns the tags of rows that are only walked over and never read by their keys. It is part of
// [projections.IteratedOnly].
func (*Graph) IteratedTags() []projections.Tag {
	return []projections.Tag{
		tagRegion, tagFollowing, tagFollowingImplicit, tagFollowedBoards, tagExcludedBoards, tagBlocked, tagMuted,
		tagFollowers, tagFollowersImplicit, tagReverse, tagBoards, tagBoardFollowers, tagBoardExcluders, tagBoardRegion,
		tagBoardReverse, tagTimedMutes, tagFavorites, tagNotifying,
	}
}

// Regions is part of [projections.Regional].
func (*Graph) Regions() []projections.Tag { return []projections.Tag{tagRegion, tagBoardRegion} }

// RegionHome is part of [projections.Regional].
func (*Graph) RegionHome(key []byte) (partition uint8, ok bool) { return RegionHome(key) }

// RegionHome is [Graph.RegionHome] for a projection that embeds the graph.
func RegionHome(key []byte) (partition uint8, ok bool) {
	// The partition comes after the ids by which the region is found.
	var ids int
	switch projections.Tag(key[2]) {
	case tagRegion:
		ids = 1
	case tagBoardRegion:
		ids = 2
	default:
		return 0, false
	}

	rest := key[3:]
	for range ids {
		var err error
		if _, rest, err = events.CutID(rest); err != nil {
			return 0, false
		}
	}
	if len(rest) == 0 {
		return 0, false
	}
	return rest[0], true
}

func userPartition(user string) uint8 { return events.ShardOf(user).Partition() }

// appendEdgeKey appends the key of an edge at this end. With the tag of board edges, it appends the prefix of the keys of
// all board edges between the two users.
func (e endKind) appendEdgeKey(dst []byte, tag projections.Tag, follower, followee string) []byte {
	if e == outEnd {
		return projections.AppendKey(dst, tag, follower, followee)
	}
	dst = projections.AppendPartition(dst, userPartition(followee), tag)
	dst = events.AppendID(dst, follower)
	return events.AppendID(dst, followee)
}

// appendBoardEdgePrefix appends the prefix of the keys of the board edges between two users at this end.
func (e endKind) appendBoardEdgePrefix(dst []byte, follower, followee string) []byte {
	tag := tagBoardEdge
	if e == inEnd {
		tag = tagInBoardEdge
	}
	return e.appendEdgeKey(dst, tag, follower, followee)
}

// appendRegionHome appends the part of a region's key that names the home of the row: its partition and its id.
func appendRegionHome(dst []byte, home string) []byte {
	return events.AppendID(append(dst, userPartition(home)), home)
}

func regionKey(dst []byte, owner, follower string) []byte {
	return appendRegionHome(projections.AppendKey(dst, tagRegion, owner), follower)
}

func boardRegionKey(dst []byte, owner, board, follower string) []byte {
	return appendRegionHome(projections.AppendKey(dst, tagBoardRegion, owner, board), follower)
}

// timeSize is the number of bytes of a time in a key.
const timeSize = 8

// appendNewestFirst appends a time so that later times sort first.
func appendNewestFirst(dst []byte, since events.Micros) []byte {
	return binary.BigEndian.AppendUint64(dst, ^uint64(since))
}

// listKey appends the key of the entry of user in a list that belongs to another user, owner.
func listKey(dst []byte, tag projections.Tag, owner string, since events.Micros, user string) []byte {
	dst = appendNewestFirst(projections.AppendKey(dst, tag, owner), since)
	return events.AppendID(dst, user)
}

// boardListKey appends the key of the entry of a board in a list that belongs to user.
func boardListKey(
	dst []byte, tag projections.Tag, user string, since events.Micros, owner, board string,
) []byte {
	return events.AppendID(listKey(dst, tag, user, since, owner), board)
}

// boardFollowerListKey appends the key of the entry of user in a list that belongs to a board.
func boardFollowerListKey(
	dst []byte, tag projections.Tag, owner, board string, since events.Micros, user string,
) []byte {
	dst = appendNewestFirst(projections.AppendKey(dst, tag, owner, board), since)
	return events.AppendID(dst, user)
}

// storeHashKey appends the key of a row of the store as a whole that begins with a hash.
func storeHashKey(dst []byte, tag projections.Tag, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, projections.StoreShard, tag), hash[:]...)
}

// The functions below read the part of a key that follows a known prefix.

// cutSince reads the time of a list entry, which comes first, and returns the remaining bytes.
func cutSince(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < timeSize {
		return 0, nil, rowError("list key", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[timeSize:], nil
}

// cutListUser reads the user of an entry in a list of users.
func cutListUser(rest []byte) (string, error) {
	_, rest, err := cutSince(rest)
	if err != nil {
		return "", err
	}
	return cutUser(rest)
}

// cutUser reads a user id at the end of a key.
func cutUser(rest []byte) (string, error) {
	id, _, err := events.CutID(rest)
	return id, err
}

// cutRegionUser reads the user whom a row of a region is about. This user is the home of the row.
func cutRegionUser(rest []byte) (string, error) {
	if len(rest) == 0 {
		return "", rowError("region key", rest)
	}
	return cutUser(rest[1:])
}
