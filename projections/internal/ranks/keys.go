package ranks

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// The rows, in physical order, in the range of tags that is free for tests. Every key begins with the shard of its first id and the
// tag. A is the follower, B the followed user, b a board of B; rank is that of a fact in 8 bytes (see [rank]).
//
//	tag   key         value       holds
//	0xe0  A           counts      the lengths of A's lists
//	0xe1  B b         board       whether b exists or did, and the lengths of its lists; of the default board the latter
//	0xe2  A B         pair        what A said of B last, the blocks between them, A's edges to boards of B
//	0xe3  B A         -           there is a pair A B
//	0xe4  A B b       rank        the latest fact of A about b, if it is later than the latest unfollow of B by A
//	0xe5  A B rank b  -           the same, where it is a follow, in the order of facts
//	0xe6  A B rank b  -           the same, where it is an unfollow
//	0xe7  B b A       -           the same, by board
//	0xe8  hash        -           A was deleted, in the shard of A: a keyed hash stands for the id
const (
	tagUserRelations projections.Tag = 0xe0 + iota
	tagBoardRelations
	tagPair
	tagFollower
	tagEdge
	tagFollowed
	tagUnfollowed
	tagBoardEdge
	tagTombstone
)

// drainChunk is the number of keys that are read before their rows are changed: nothing may be written while an iterator is open.
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

// cutLast reads the last id of a key.
func cutLast(rest []byte) (id string, err error) {
	id, after, err := events.CutID(rest)
	if err != nil || len(after) != 0 {
		return "", projections.RowError("key", rest)
	}
	return id, nil
}

// cutTwo reads the last two ids of a key.
func cutTwo(rest []byte) (first, second string, err error) {
	first, after, err := events.CutID(rest)
	if err != nil {
		return "", "", projections.RowError("key", rest)
	}
	second, err = cutLast(after)
	return first, second, err
}

// drain calls end for every key that begins with prefix, with the rest of the key after it. end must remove the row. drain works in
// steps: if it is interrupted and run again, it continues with the rows that are left.
func (c *Ranks) drain(prefix []byte, end func(rest []byte) error) error {
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
		lower = keyAfter(keys[len(keys)-1]) // rows before it are gone
		if err := c.b.Step(); err != nil {
			return err
		}
	}
}

// keyAfter returns the first key after another.
func keyAfter(key []byte) []byte { return append(slices.Clip(key), 0) }

// keys returns the first n keys from lower up to, not including, upper.
func (c *Ranks) keys(lower, upper []byte, n int) (keys [][]byte, err error) {
	it := c.b.Iter(lower, upper)
	for len(keys) < n && it.Next() {
		keys = append(keys, bytes.Clone(it.Key()))
	}
	return keys, it.Close()
}
