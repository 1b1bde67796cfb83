package projections

import (
	"encoding/binary"
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/internal/overlay"
)

// The keyspace. Every key begins with a shard (2 bytes, big endian) and a tag (1 byte); what follows is named in
// keys.go of the projection. No two projections share a tag, so a key alone tells the
// kind of its row. Most keys begin with the shard of the user or item that the row is about. Rows of the store as a whole
// have StoreShard, which sorts after every other shard.
//
//	tags         owner        rows
//	0x00–0x0f    runtime      checkpoint, fingerprint, backfill offsets, rejects (in StoreShard)
//	0x10–0x3f    graph        follows, boards, blocks, mutes, counts; in the store of inbox, too, which embeds them
//	0x40–0x5f    inbox        pins, outboxes, inboxes
//	0x60–0x6f    seen         plays by month, serves
//	0x70–0x8f    counters     pins, plays, reactions, what counts them, lists by heat
//	0x90–0x9f    notifications  reactions to pins and re-pins by recipient, markers
const (
	// StoreShard is the shard of rows that belong to the store as a whole. No user or item has it.
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

// Tag is the third byte of every key: the kind of row.
type Tag byte

// IsRuntimeKey reports whether a row belongs to the store itself (the runtime) and not to the projection.
func IsRuntimeKey(key []byte) bool { return len(key) >= 3 && Tag(key[2]) <= LastRuntimeTag }

// AppendPrefix appends the shard and the tag that every key begins with.
func AppendPrefix(dst []byte, shard events.Shard, tag Tag) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(shard)), byte(tag))
}

// AppendKey appends the shard of the first id, the tag, and the ids. The result is a key, or the common prefix of all keys that
// continue with other parts. It needs at least one id.
func AppendKey(dst []byte, tag Tag, ids ...string) []byte {
	dst = AppendPrefix(dst, events.ShardOf(ids[0]), tag)
	for _, id := range ids {
		dst = events.AppendID(dst, id)
	}
	return dst
}

// NextShard returns the first shard in [from, end) that has rows, and end if there is none.
func NextShard(r Reader, from, end events.Shard) (events.Shard, error) {
	it := r.Iter(AppendPrefix(nil, from, 0), AppendPrefix(nil, end, 0))
	if it.Next() {
		end = events.Shard(binary.BigEndian.Uint16(it.Key()))
	}
	return end, it.Close()
}

// EachID calls do once for every distinct first id in the keys of a tag in a shard, in key order. It seeks from one id to the next
// instead of reading all rows between. It skips keys without an id, which no fold can have written. It stops at the first error.
func EachID(r Reader, shard events.Shard, tag Tag, do func(id string) error) error {
	prefix := AppendPrefix(nil, shard, tag)
	end := PrefixEnd(prefix)
	it := r.Iter(prefix, end)
	var err error
	for more := it.Next(); more && err == nil; {
		key := it.Key()
		id, rest, malformed := events.CutID(key[PrefixLen:])
		if malformed != nil {
			more = it.Next()
			continue
		}
		next := PrefixEnd(key[:len(key)-len(rest)])
		if err = do(id); err == nil {
			more = next != nil && it.SeekGE(next)
		}
	}
	if closeErr := it.Close(); err == nil {
		err = closeErr
	}
	return err
}

// EachPair calls do with the first two ids of every key of a tag in a shard, in key order. It skips keys without two ids, which no
// fold can have written. It stops at the first error.
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

// PrefixEnd returns the first key after all keys that begin with prefix. It returns nil if no key can follow them.
func PrefixEnd(prefix []byte) []byte { return overlay.PrefixEnd(prefix) }

// RowError returns an error for a row that no fold can have written. It wraps [ErrCorrupt]. what describes the row, and row is its
// key or its value. A fold that returns this error stops its store, which then counts as damaged and must be rebuilt.
func RowError(what string, row []byte) error { return fmt.Errorf("%w: %s %x", ErrCorrupt, what, row) }
