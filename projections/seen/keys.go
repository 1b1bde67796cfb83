package seen

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
)

// These are the kinds of rows of the store, in the order of their tags. The key of a row consists
// of 2 bytes, the tag (1 byte), and further parts. In the table, the tag is where the | is. A is a
// user and i an item, both in the encoding of [events.AppendID].
//
// Most keys begin with the shard of their user. The keys of plays (0x60 and 0x61) begin with a
// month instead, and the shard of the user (2 bytes) follows the tag. So the rows of one month and
// one tag in one partition are neighbors, and the maintenance deletes them by one range when the
// month has expired. The number of a month may equal the number of a shard. The tag tells the two
// kinds of keys apart. The number of a month never equals projections.StoreShard (see lastMonth),
// which begins the keys of rows of the store as a whole.
//
//	tag   key                value         meaning
//	0x60  month | shard A    fingerprints  the plays of A in the month that are not in the filter:
//	                                       all of them until the maintenance makes the filter,
//	                                       and from then on those that are folded later
//	0x61  month | shard A    filter        the plays of A in the month, as they were known when
//	                                       the maintenance sealed the month for A, some time
//	                                       after its end: a Bloom filter
//	0x62  shard | A          serves        the last 100 items that were served to A, each once
//	0x63  shard | hash       closing       which backfills about A are ignored from now on: plays
//	                                       and serves after a seen_cleared, all of them after a
//	                                       user_deleted. The key has a keyed hash of A, because
//	                                       it must not name a user who was erased. The fold
//	                                       writes no such row once all backfills are closed
//	0x64  shard |            plan          the months that may have rows in a partition, and when
//	                                       plays were last written to each after its end. The
//	                                       shard is the first one of the partition
//	0x65  StoreShard |       tick          the tick of the last visit of the maintenance
//	0x66  shard | A i        fact          all facts about whether A hides i. This and the next
//	                                       two are the rows of package hiddenitems
//	0x67  shard | A ^since i -             A hides i since this time. ^ is the complement of the
//	                                       time, so that later times come first
//	0x68  shard | A          count         how many items A hides
const (
	tagPlays projections.Tag = projections.FirstSeenTag + iota
	tagSealed
	tagServed
	tagClosedUser
	tagPlan
	tagTick
	tagItemHiding
	tagHiddenItem
	tagHiddenCount
)

// hiddenItems has the tags of the rows of the items that users hide. Package hiddenitems reads and
// writes these rows.
//
//nolint:gochecknoglobals // a table that never changes
var hiddenItems = hiddenitems.Tags{Fact: tagItemHiding, List: tagHiddenItem, Count: tagHiddenCount}

// datedTags are the tags of the rows whose keys begin with a month.
var datedTags = []projections.Tag{tagPlays, tagSealed}

// appendMonthPrefix appends the month, the tag and the shard that begin the keys of the rows of a
// month. The result is also a bound of ranges of such rows: it sorts before the rows of the shard
// from and after the rows of all lower shards. As the upper bound of a range, from may be the
// number behind the last shard, which is [events.NumShards].
func appendMonthPrefix(dst []byte, m month, tag projections.Tag, from uint32) []byte {
	dst = append(binary.BigEndian.AppendUint16(dst, uint16(m)), byte(tag))
	return binary.BigEndian.AppendUint16(dst, uint16(from))
}

// monthKey appends the key of the row of a user and a month. tag is tagPlays or tagSealed. The two
// keys of a user and a month differ in the tag only, so some callers replace the byte of the tag,
// which is dst[2] if dst was empty.
func monthKey(dst []byte, m month, tag projections.Tag, user string) []byte {
	return events.AppendID(appendMonthPrefix(dst, m, tag, uint32(events.ShardOf(user))), user)
}

// servedKey appends the key of the row with the last serves of a user.
func servedKey(dst []byte, user string) []byte {
	return projections.AppendKey(dst, tagServed, user)
}

// closedUserKey appends the key of the row that keeps out backfills about a user. hash is the keyed
// hash of the user ([projections.Batch.KeyedHash]). The id of the user decides only the shard.
func closedUserKey(dst []byte, user string, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, events.ShardOf(user), tagClosedUser), hash[:]...)
}

// planKey appends the key of the plan of a partition. The shard of the key is the first shard of
// the partition, so that the row belongs to the partition.
func planKey(dst []byte, partition uint8) []byte {
	return projections.AppendPrefix(dst, projections.FirstShard(partition), tagPlan)
}

// tickKey is the key of the only row with tagTick. It is shared, so nobody may append to it or
// change it.
var tickKey = projections.AppendPrefix(nil, projections.StoreShard, tagTick)
