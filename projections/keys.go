package projections

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// The keyspace. Every key begins with a shard (2 bytes, big endian) and a tag (1 byte); keys.go of
// the projection says what follows. The tag alone tells the kind of the row, because no two
// projections have the same tag. Most keys begin with the shard of the home of the row. The keys of
// a [MonthKeyed] projection may begin with a month, which takes the place of the shard. The runtime
// is the store itself, as opposed to the projection.
//
//	tags       owner          rows
//	0x00–0x0f  runtime        checkpoint, fingerprint, backfill offsets, rejects (in StoreShard)
//	0x10–0x3f  graph          follows, boards, blocks, mutes, counts; the store of inbox has these rows, too
//	0x40–0x5f  inbox          pins, outboxes, inboxes
//	0x60–0x6f  seen           plays by month, serves
//	0x70–0x8f  counters       pins, plays and reactions with their counts, lists by heat
//	0x90–0x9f  notifications  reactions to pins and re-pins by recipient, markers
const (
	// StoreShard is the shard of rows that belong to the store as a whole. It is higher than all
	// shards of users and items.
	StoreShard events.Shard = 0xffff

	FirstRuntimeTag Tag = 0x00
	LastRuntimeTag  Tag = 0x0f
	FirstGraphTag   Tag = 0x10
	LastGraphTag    Tag = 0x3f
	FirstInboxTag   Tag = 0x40
	LastInboxTag    Tag = 0x5f
	FirstSeenTag    Tag = 0x60
	LastSeenTag     Tag = 0x6f

	FirstCountersTag Tag = 0x70
	LastCountersTag  Tag = 0x8f

	FirstNotificationsTag Tag = 0x90
	LastNotificationsTag  Tag = 0x9f
)

// PrefixLen is the length in bytes of the shard and the tag that begin every key.
const PrefixLen = overlay.PrefixLen

// Tag is the third byte of every key. It stands for a kind of row.
type Tag byte

// IsRuntimeKey reports whether the key is of a row of the runtime, and not of the projection.
func IsRuntimeKey(key []byte) bool { return len(key) >= 3 && Tag(key[2]) <= LastRuntimeTag }

// AppendPrefix appends a shard and a tag to dst. They are the prefix of a key.
func AppendPrefix(dst []byte, shard events.Shard, tag Tag) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(shard)), byte(tag))
}

// AppendKey appends to dst the shard of the first id, the tag, and the ids. The result is a key, or
// the common prefix of keys that have more parts. It panics without an id.
func AppendKey(dst []byte, tag Tag, ids ...string) []byte {
	dst = AppendPrefix(dst, events.ShardOf(ids[0]), tag)
	for _, id := range ids {
		dst = events.AppendID(dst, id)
	}
	return dst
}

// NextShard returns the first shard s with from <= s < end that has rows, or end if there is none.
func NextShard(r Reader, from, end events.Shard) (events.Shard, error) {
	it := r.Iter(AppendPrefix(nil, from, 0), AppendPrefix(nil, end, 0))
	if it.Next() {
		end = events.Shard(binary.BigEndian.Uint16(it.Key()))
	}
	return end, it.Close()
}

// EachID calls do once for each first id in the keys with the shard and the tag, in key order. It
// seeks from one id to the next, so it does not read the other rows with the same first id. It
// skips malformed keys. It stops at the first error and returns it.
func EachID(r Reader, shard events.Shard, tag Tag, do func(id string) error) error {
	prefix := AppendPrefix(nil, shard, tag)
	it := r.Iter(prefix, PrefixEnd(prefix))
	var err error
	for more := it.Next(); more && err == nil; {
		key := it.Key()
		id, rest, malformed := events.CutID(key[PrefixLen:])
		if malformed != nil {
			more = it.Next()
			continue
		}

		keyOfNextID := PrefixEnd(key[:len(key)-len(rest)])
		if err = do(id); err == nil {
			more = keyOfNextID != nil && it.SeekGE(keyOfNextID)
		}
	}

	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return err
}

// EachPair calls do with the first two ids of each key with the shard and the tag, in key order. It
// skips malformed keys. It stops at the first error and returns it.
func EachPair(r Reader, shard events.Shard, tag Tag, do func(first, second string) error) error {
	prefix := AppendPrefix(nil, shard, tag)
	it := r.Iter(prefix, PrefixEnd(prefix))
	var err error
	for err == nil && it.Next() {
		first, rest, malformed := events.CutID(it.Key()[PrefixLen:])
		if malformed != nil {
			continue
		}
		if second, _, malformed := events.CutID(rest); malformed == nil {
			err = do(first, second)
		}
	}
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return err
}

// PrefixEnd returns the lowest key above all keys that begin with prefix, or nil if there is none.
func PrefixEnd(prefix []byte) []byte { return overlay.PrefixEnd(prefix) }

// RowError returns an error for a row that no fold can have written. The error wraps [ErrCorrupt].
// what describes the row, and row is its key or its value. If a fold returns this error, its store
// stops and must be rebuilt.
func RowError(what string, row []byte) error { return fmt.Errorf("%w: %s %x", ErrCorrupt, what, row) }
