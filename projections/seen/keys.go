package seen

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/internal/hiddenitems"
)

// These are the rows, in physical order. In the rows of months, the month (2 bytes) comes before
// the tag, and the shard of the user after it. So rows that expire together are neighbors. Where
// other rows have the shard, these have the month, which is never as large as StoreShard.
//
//	tag   key               value     holds
//	0x60  month | shard A   fingerprints    plays of A in the month: all of an open month, late ones of a closed month
//	0x61  month | shard A   filter    plays of A in a closed month
//	0x62  shard | A         serves    the last 100 items served to A
//	0x63  shard | hash      closing   no backfill about a user counts any more; a keyed hash replaces the id. After a seen_cleared,
//	                                  backfills about hidden items still count
//	0x64  partition |       plan      the months that have rows in the partition; stored in its first shard
//	0x65  store |           tick      the last visit of the maintenance
//	0x66  shard | A i       fact      whether A hides the item i: see package hiddenitems, also for the next two
//	0x67  shard | A ^since i  -       A hides i
//	0x68  shard | A         count     how many items A hides
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

// hiddenItems are the rows of the items that users hide.
//
//nolint:gochecknoglobals // a table that never changes
var hiddenItems = hiddenitems.Tags{Fact: tagItemHiding, List: tagHiddenItem, Count: tagHiddenCount}

var datedTags = []projections.Tag{tagPlays, tagSealed}

// appendMonthPrefix appends the first possible key of the rows of a month with a tag, from a shard
// on.
func appendMonthPrefix(dst []byte, m month, tag projections.Tag, from uint32) []byte {
	dst = append(binary.BigEndian.AppendUint16(dst, uint16(m)), byte(tag))
	return binary.BigEndian.AppendUint16(dst, uint16(from))
}

func monthKey(dst []byte, m month, tag projections.Tag, user string) []byte {
	return events.AppendID(appendMonthPrefix(dst, m, tag, uint32(events.ShardOf(user))), user)
}

func servedKey(dst []byte, user string) []byte {
	return projections.AppendKey(dst, tagServed, user)
}

func closedUserKey(dst []byte, user string, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, events.ShardOf(user), tagClosedUser), hash[:]...)
}

func planKey(dst []byte, partition uint8) []byte {
	return projections.AppendPrefix(dst, projections.FirstShard(partition), tagPlan)
}

var tickKey = projections.AppendPrefix(nil, projections.StoreShard, tagTick)
