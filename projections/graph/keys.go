package graph

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows of the graph, in the order of their tags. A and B are users, b is a board of B. The
// package doc explains edges, out-ends and in-ends, and explicit and implicit follows.
//
// A key is a shard, the tag, and the parts that the table names. Except in regions, the partition
// of the shard says which stores hold the row:
//
//	A's     the shard of user A, and B's likewise
//	first   the first shard of the partition of B
//	all     the shard for rows that every store has
//
// Every row outside of the shard "all" belongs to the home of a user, and is exported, imported and
// rebuilt with the partition of this user. For most rows, that is the user of the shard. The rows
// of a region (0x12, 0x24) are the exception: they belong to the home of A, and are in the shard of
// B, so that one scan of the region finds the rows of all homes. The rows in the shard "all" belong
// to no home.
//
// In-ends (0x25, 0x26) are in the first shard of their partition, and their keys begin with A, so
// that the deletion of A finds them by one seek in each partition.
//
// Users and boards are encoded by [events.AppendID]. part(A) is the partition of A in one byte. ^t
// is the complement of a time t in 8 bytes, so that later times sort first. Rows of the same time
// are ordered by id.
//
//	tag   shard  key            value         meaning
//	0x10  A's    A B            edge          out-end: the facts of A about B, and whether B blocks A
//	0x11  A's    A B b          board edge    out-end: the facts of A about board b
//	0x12  B's    B part(A) A    flags         region of B: each A with a row 0x10, and whether A follows B, only boards of B, or neither
//	0x13  A's    A ^since B     settings      users whom A follows explicitly; stored only if A has many edges (following_list.go)
//	0x14  A's    A ^since B     settings      users whom A follows implicitly
//	0x15  A's    A ^since B b   -             boards that A follows
//	0x16  A's    A ^since B b   -             boards that A excludes
//	0x17  A's    A ^since B     -             users whom A blocks
//	0x18  A's    A ^since B     -             users whom A mutes for an unlimited time
//	0x19  A's    A              user counts   the lengths of the lists of A, and whether 0x13 is stored
//	0x1a  B's    B ^since A     -             users who follow B explicitly
//	0x1b  B's    B ^since A     -             users who follow B implicitly
//	0x1c  B's    B A            -             users A who have a row 0x25 but follow B neither explicitly nor implicitly, such as blockers
//	0x1d  B's    B b            board         creation and title
//	0x1e  B's    B b            board counts  the lengths of the lists of b
//	0x1f  B's    B ^created b   -             boards of B that exist
//	0x20  B's    B b ^since A   -             users who follow b, and not only B
//	0x21  B's    B b ^since A   -             users who exclude b
//	0x22  all    hash(B)        -             tombstone: B was deleted, and backfills about B are ignored
//	0x23  all    hash(B) hash   deletion      a board of B was deleted; whether it was created again. The second hash is that of B and b
//	0x24  B's    B b part(A) A  flags         region of b: each A with a row 0x11, and whether A follows b
//	0x25  first  A B            edge          in-end: as 0x10, without mutes and settings
//	0x26  first  A B b          board edge    in-end: as 0x11
//	0x27  B's    B b A          -             users A who have a row 0x26 but neither follow nor exclude b now
//	0x28  A's    A ^until B     ^since        users whom A mutes until a time, even if that time has passed
//	0x29  A's    A ^set B       -             users whom A follows with the setting favorite; set is when A last set any settings of the follow
//	0x2a  A's    A ^set B       -             users whom A follows with the setting notify; set as in 0x29
//
// The deletion of B finds the in-ends of edges to B by 0x1a, 0x1b and 0x1c. The deletion of b finds
// the in-ends of board edges to b by 0x20, 0x21 and 0x27. Hashes are keyed and have 16 bytes, so
// that they do not reveal ids.
const (
	tagOutEdge              projections.Tag = projections.FirstGraphTag + iota // 0x10
	tagOutBoardEdge                                                            // 0x11
	tagRegion                                                                  // 0x12
	tagFollowingExplicit                                                       // 0x13
	tagFollowingImplicit                                                       // 0x14
	tagFollowedBoards                                                          // 0x15
	tagExcludedBoards                                                          // 0x16
	tagBlocked                                                                 // 0x17
	tagMuted                                                                   // 0x18
	tagUserCounts                                                              // 0x19
	tagFollowersExplicit                                                       // 0x1a
	tagFollowersImplicit                                                       // 0x1b
	tagUnlistedInEdges                                                         // 0x1c
	tagBoard                                                                   // 0x1d
	tagBoardCounts                                                             // 0x1e
	tagBoards                                                                  // 0x1f
	tagBoardFollowers                                                          // 0x20
	tagBoardExcluders                                                          // 0x21
	tagTombstone                                                               // 0x22
	tagBoardDeletion                                                           // 0x23
	tagBoardRegion                                                             // 0x24
	tagInEdge                                                                  // 0x25
	tagInBoardEdge                                                             // 0x26
	tagUnlistedInBoardEdges                                                    // 0x27
	tagTimedMutes                                                              // 0x28
	tagFavorites                                                               // 0x29
	tagNotifying                                                               // 0x2a
)

// IteratedTags returns the tags of rows that are read by iterators. Only deletions read them by
// Get, to check that a row is gone ([eventFold.eraseRows]). It is part of
// [projections.IteratedOnly].
func (*Graph) IteratedTags() []projections.Tag {
	return []projections.Tag{
		tagRegion, tagFollowingExplicit, tagFollowingImplicit, tagFollowedBoards, tagExcludedBoards,
		tagBlocked, tagMuted, tagFollowersExplicit, tagFollowersImplicit, tagUnlistedInEdges, tagBoards,
		tagBoardFollowers, tagBoardExcluders, tagBoardRegion, tagUnlistedInBoardEdges, tagTimedMutes,
		tagFavorites, tagNotifying,
	}
}

// Regions returns the tags of rows that belong to regions. It is part of [projections.Regional].
func (*Graph) Regions() []projections.Tag { return []projections.Tag{tagRegion, tagBoardRegion} }

// RegionHome calls the function RegionHome. It is part of [projections.Regional].
func (*Graph) RegionHome(key []byte) (partition uint8, ok bool) { return RegionHome(key) }

// RegionHome returns the partition of the home of a row that belongs to a region. ok is false for
// the key of any other row, and for a key that cannot be decoded. The key must have at least
// [projections.PrefixLen] bytes.
func RegionHome(key []byte) (partition uint8, ok bool) {
	// Before the partition, the key has the owner of the region, and in the region of a board also
	// the board.
	var ids int
	switch projections.Tag(key[projections.PrefixLen-1]) {
	case tagRegion:
		ids = 1
	case tagBoardRegion:
		ids = 2
	default:
		return 0, false
	}

	rest := key[projections.PrefixLen:]
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

// userPartition returns the partition of a user.
func userPartition(user string) uint8 { return events.ShardOf(user).Partition() }

// appendEdgeKey appends the key of an edge at this end.
func (e endKind) appendEdgeKey(dst []byte, follower, followee string) []byte {
	return e.appendTagAndUsers(dst, tagOutEdge, tagInEdge, follower, followee)
}

// appendBoardEdgePrefix appends the prefix of the keys of the follower's board edges to boards of
// the followee, at this end. The id of a board completes the key of its board edge.
func (e endKind) appendBoardEdgePrefix(dst []byte, follower, followee string) []byte {
	return e.appendTagAndUsers(dst, tagOutBoardEdge, tagInBoardEdge, follower, followee)
}

// appendTagAndUsers appends the shard for this end, one of the two tags, and the two users.
func (e endKind) appendTagAndUsers(
	dst []byte, outTag, inTag projections.Tag, follower, followee string,
) []byte {
	if e == outEnd {
		return projections.AppendKey(dst, outTag, follower, followee)
	}

	dst = projections.AppendPartition(dst, userPartition(followee), inTag)
	dst = events.AppendID(dst, follower)
	return events.AppendID(dst, followee)
}

// appendRegionKey appends the key of the follower's row in the region of the followee.
func appendRegionKey(dst []byte, followee, follower string) []byte {
	return appendRegionHome(projections.AppendKey(dst, tagRegion, followee), follower)
}

// appendBoardRegionKey appends the key of the follower's row in the region of a board of the
// followee.
func appendBoardRegionKey(dst []byte, followee, board, follower string) []byte {
	return appendRegionHome(projections.AppendKey(dst, tagBoardRegion, followee, board), follower)
}

// appendRegionHome appends the user who is the home of a row of a region: the partition of the user
// in one byte, and the id.
func appendRegionHome(dst []byte, user string) []byte {
	return events.AppendID(append(dst, userPartition(user)), user)
}

// timeSize is the number of bytes of a time in a key.
const timeSize = 8

// appendDescendingTime appends the complement of a time, so that later times sort first.
func appendDescendingTime(dst []byte, at events.Micros) []byte {
	return binary.BigEndian.AppendUint64(dst, ^uint64(at))
}

// appendListKey appends the key of a row in a list that belongs to a user, listOwner. member is the
// user whom the row shows. In tagBoards it is a board of listOwner.
func appendListKey(
	dst []byte, tag projections.Tag, listOwner string, since events.Micros, member string,
) []byte {
	dst = appendDescendingTime(projections.AppendKey(dst, tag, listOwner), since)
	return events.AppendID(dst, member)
}

// appendBoardEntryKey appends the key of a row in a list that belongs to a user, listOwner, and
// that shows boards of other users. boardOwner is the owner of the board that the row shows.
func appendBoardEntryKey(
	dst []byte, tag projections.Tag, listOwner string, since events.Micros, boardOwner, board string,
) []byte {
	return events.AppendID(appendListKey(dst, tag, listOwner, since, boardOwner), board)
}

// appendListOfBoardKey appends the key of a row in a list that belongs to a board of boardOwner.
// member is the user whom the row shows.
func appendListOfBoardKey(
	dst []byte, tag projections.Tag, boardOwner, board string, since events.Micros, member string,
) []byte {
	dst = appendDescendingTime(projections.AppendKey(dst, tag, boardOwner, board), since)
	return events.AppendID(dst, member)
}

// appendStoreWideKey appends the key of a row that every store has: the tag and a hash. The key of
// tagBoardDeletion continues with another hash.
func appendStoreWideKey(dst []byte, tag projections.Tag, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, projections.StoreShard, tag), hash[:]...)
}

// The functions below decode rest, the part of a key that follows a prefix which the caller knows.

// cutDescendingTime decodes the time that appendDescendingTime wrote at the start of rest, and
// returns the bytes after it.
func cutDescendingTime(rest []byte) (events.Micros, []byte, error) {
	if len(rest) < timeSize {
		return 0, nil, projections.RowError("list key", rest)
	}
	return events.Micros(^binary.BigEndian.Uint64(rest)), rest[timeSize:], nil
}

// decodeListUser decodes the user of a list row: rest is the time and the user.
func decodeListUser(rest []byte) (string, error) {
	_, rest, err := cutDescendingTime(rest)
	if err != nil {
		return "", err
	}
	return decodeID(rest)
}

// decodeID decodes the id at the start of rest and ignores the bytes after it.
func decodeID(rest []byte) (string, error) {
	id, _, err := events.CutID(rest)
	return id, err
}

// decodeRegionUser decodes the user who is the home of a row of a region: rest is the partition and
// the user.
func decodeRegionUser(rest []byte) (string, error) {
	if len(rest) == 0 {
		return "", projections.RowError("region key", rest)
	}
	return decodeID(rest[1:])
}
