package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows of the graph, in the order of their tags. Every key begins with a shard and the tag; ids stand in the encoding
// of [events.AppendID]; ^since is the complement of a time in 8 bytes, so that newer rows come first and equal times are
// ordered by id; part(A) is the partition of A in one byte. A and B are users, b is a board of B.
//
// The home of a row is the first id of its key, with three exceptions. Rows of a region (0x12, 0x24) stand in the shard of
// B, by which they are found, and their home is A. Keys that begin with part(B) stand in the first shard of that partition,
// and their home is B. Rows that begin with a hash stand in the shard of the store, and every store has them.
//
//	tag   key              value          holds
//	0x10  A B              edge           every fact about the edge that A still needs: follows, blocks both ways, mutes, hidden re-pins
//	0x11  A B b            board edge     the same for follows of board b by A
//	0x12  B part(A) A      flags          one row for each of 0x10: whether A follows B explicitly, or boards of B alone
//	0x13  A ^since B       -              whom A follows explicitly, if A has many edges (short.go)
//	0x14  A ^since B       -              whom A follows implicitly
//	0x15  A ^since B b     -              boards that A follows
//	0x16  A ^since B b     -              boards that A excludes
//	0x17  A ^since B       -              whom A blocks
//	0x18  A ^since B       -              whom A mutes
//	0x19  A                user counts    the lengths of A's lists, and whether 0x13 is kept
//	0x1a  B ^since A       -              who follows B explicitly
//	0x1b  B ^since A       -              who follows B implicitly
//	0x1c  B A              -              rows of 0x25 that neither 0x1a nor 0x1b shows, so that the end of B finds them
//	0x1d  B b              board          creation, title
//	0x1e  B b              board counts   the lengths of the lists of b
//	0x1f  B ^created b     -              living boards of B
//	0x20  B b ^since A     -              who follows b itself
//	0x21  B b ^since A     -              who excludes b
//	0x22  hash(B)          -              B was deleted: no backfill may touch B (16 bytes, keyed)
//	0x23  hash(B) hash(Bb) life           b was deleted, and whether it lives again
//	0x24  B b part(A) A    flags          one row for each of 0x11: whether A follows b
//	0x25  part(B) A B      edge           the facts of 0x10 at the other end, without mutes and hidden re-pins
//	0x26  part(B) A B b    board edge     the facts of 0x11 at the other end
//	0x27  B b A            -              rows of 0x26 that neither 0x20 nor 0x21 shows, so that the end of b finds them
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
)

// Walked are the tags of lists and of what else is only walked over.
func (*Graph) Walked() []projections.Tag {
	return []projections.Tag{
		tagRegion, tagFollowing, tagFollowingImplicit, tagFollowedBoards, tagExcludedBoards, tagBlocked, tagMuted, tagFollowers,
		tagFollowersImplicit, tagReverse, tagBoards, tagBoardFollowers, tagBoardExcluders, tagBoardRegion, tagBoardReverse,
	}
}

// Regions is part of [projections.Regional].
func (*Graph) Regions() []projections.Tag { return []projections.Tag{tagRegion, tagBoardRegion} }

// RegionHome is part of [projections.Regional].
func (*Graph) RegionHome(key []byte) (partition uint8, ok bool) { return RegionHome(key) }

// RegionHome is [Graph.RegionHome] for a projection that embeds the graph.
func RegionHome(key []byte) (partition uint8, ok bool) {
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

// edgeKey appends the key of an edge at one of its ends, or the prefix of the keys of its board edges there.
func (e endKind) appendEdgeKey(dst []byte, tag projections.Tag, a, b string) []byte {
	if e == outEnd {
		return projections.AppendKey(dst, tag, a, b)
	}
	dst = events.AppendID(projections.AppendPartition(dst, userPartition(b), tag), a)
	return events.AppendID(dst, b)
}

// appendRemote appends the home of a row of a region.
func appendRegionHome(dst []byte, home string) []byte {
	return events.AppendID(append(dst, userPartition(home)), home)
}

func regionKey(dst []byte, owner, follower string) []byte {
	return appendRegionHome(projections.AppendKey(dst, tagRegion, owner), follower)
}

func boardRegionKey(dst []byte, owner, board, follower string) []byte {
	return appendRegionHome(projections.AppendKey(dst, tagBoardRegion, owner, board), follower)
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
func boardFollowerListKey(dst []byte, tag projections.Tag, owner, board string, since events.Micros, user string) []byte {
	return events.AppendID(appendNewestFirst(projections.AppendKey(dst, tag, owner, board), since), user)
}

// hashedKey appends the key of a row of the store as a whole.
func storeHashKey(dst []byte, tag projections.Tag, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, projections.StoreShard, tag), hash[:]...)
}

// cutSince reads the time at the start of what follows the prefix of a newest-first list.
func cutSince(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < 8 {
		return 0, nil, rowError("list key", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[8:], nil
}

// cutListUser reads the user of a row of a newest-first list of users.
func cutListUser(rest []byte) (string, error) {
	_, rest, err := cutSince(rest)
	if err != nil {
		return "", err
	}
	return cutUser(rest)
}

// cutUser reads the user with whom a key ends.
func cutUser(rest []byte) (string, error) {
	id, _, err := events.CutID(rest)
	return id, err
}

// cutRemote reads the home of a row of a region.
func cutRegionUser(rest []byte) (string, error) {
	if len(rest) == 0 {
		return "", rowError("region key", rest)
	}
	return cutUser(rest[1:])
}
