package seen

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows, in physical order. A month comes before the tag in 2 bytes and the shard of the user after it, so that what
// expires together stands together; a month is never as large as StoreShard.
//
//	tag   key               value     holds
//	0x60  month | shard A   fingerprints    plays of A in the month: all of an open one, of a closed one what came late
//	0x61  month | shard A   filter    plays of A in a closed month
//	0x62  shard | A         serves    the last 100 items served to A
//	0x63  shard | hash      -         no backfill about a user counts: a keyed hash stands for the id
//	0x64  partition |       plan      the months that have rows, in the first shard of the partition
//	0x65  store |           tick      how far the maintenance got
const (
	tagOpen projections.Tag = projections.FirstSeenTag + iota
	tagSealed
	tagServed
	tagClosed
	tagPlan
	tagTick
)

var datedTags = []projections.Tag{tagOpen, tagSealed}

// appendMonthPrefix appends what the rows of a month begin with from a shard on.
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

func closedKey(dst []byte, user string, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, events.ShardOf(user), tagClosed), hash[:]...)
}

func planKey(dst []byte, partition uint8) []byte {
	return projections.AppendPrefix(dst, events.Shard(partition)*shardsPerPartition, tagPlan)
}

var tickKey = projections.AppendPrefix(nil, projections.StoreShard, tagTick)
