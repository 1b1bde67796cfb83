package counters

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// ErrCorrupt is returned for a row that no fold can have written.
var ErrCorrupt = errors.New("counters: impossible row")

func errRow(what string, row []byte) error { return fmt.Errorf("%w: %s %x", ErrCorrupt, what, row) }

// The rows about relations, in physical order. Every key begins with the shard of its first id and the tag. A is who
// follows, B who is followed, b a board of B; rank is that of a fact in 8 bytes (see [rank]).
//
//	tag   key         value       holds
//	0x70  A           counts      the lengths of A's lists
//	0x71  B b         board       whether b exists or did, and the lengths of its lists; of the default board the latter
//	0x72  A B         pair        what A said of B last, the blocks between them, A's edges to boards of B
//	0x73  B A         -           there is a pair A B
//	0x74  A B b       rank        the latest fact of A about b, if it is later than the latest unfollow of B by A
//	0x75  A B rank b  -           the same, where it is a follow, in the order of facts
//	0x76  A B rank b  -           the same, where it is an unfollow
//	0x77  B b A       -           the same, by board
//	0x78  hash        -           tombstone, in the shard of the user, with a keyed hash of the id
const (
	tagUserRelations projections.Tag = projections.FirstCountersTag + iota
	tagBoardRelations
	tagPair
	tagFollower
	tagEdge
	tagFollowed
	tagUnfollowed
	tagBoardEdge
	tagTombstone
)

// drainChunk is how many rows are read before some are written.
const drainChunk = 256

// rankKey appends the key of an edge in the order of facts.
func rankKey(dst []byte, from, to string, at rank, board string) []byte {
	tag := tagFollowed
	if at.removes() {
		tag = tagUnfollowed
	}
	dst = projections.AppendKey(dst, tag, from, to)
	return events.AppendID(binary.BigEndian.AppendUint64(dst, uint64(at)), board)
}

func tombstoneKey(dst []byte, user string, hash [16]byte) []byte {
	return append(projections.AppendPrefix(dst, events.ShardOf(user), tagTombstone), hash[:]...)
}

// cutLast reads the last id of a key.
func cutLast(rest []byte) (id string, err error) {
	id, after, err := events.CutID(rest)
	if err != nil || len(after) != 0 {
		return "", errRow("key", rest)
	}
	return id, nil
}

// cutTwo reads the last two ids of a key.
func cutTwo(rest []byte) (first, second string, err error) {
	first, after, err := events.CutID(rest)
	if err != nil {
		return "", "", errRow("key", rest)
	}
	second, err = cutLast(after)
	return first, second, err
}

// drain calls end with what follows prefix in every key that begins with it. end removes the row. In steps: what an
// earlier run has ended is not met again.
func (c *Counters) drain(prefix []byte, end func(rest []byte) error) error {
	lower, upper := prefix, projections.PrefixEnd(prefix)
	for {
		keys, err := c.keys(lower, upper, drainChunk)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := end(key[len(prefix):]); err != nil {
				return err
			}
		}
		if len(keys) < drainChunk {
			return nil
		}
		lower = keyAfter(keys[len(keys)-1]) // what was before is gone
		if err := c.b.Step(); err != nil {
			return err
		}
	}
}

// keyAfter returns the first key after another.
func keyAfter(key []byte) []byte { return append(slices.Clip(key), 0) }

// keys returns the first n keys from lower up to, not including, upper.
func (c *Counters) keys(lower, upper []byte, n int) (keys [][]byte, err error) {
	it := c.b.Iter(lower, upper)
	for len(keys) < n && it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	return keys, it.Close()
}
