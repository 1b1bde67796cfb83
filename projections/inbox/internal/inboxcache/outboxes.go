package inboxcache

import (
	"bytes"

	"github.com/zeebo/xxh3"
)

// NewestKeys are the newest sort keys of an outbox. They never change, because pages read them without a lock.
type NewestKeys struct {
	// outbox is the prefix of the rows of the outbox.
	outbox []byte
	// SortKeys are as many as there are, [MostNewestKeys] at most, the newest first.
	SortKeys [][]byte
	// Rest is the key of the row behind them; nil means that there is none.
	Rest []byte
}

const (
	// MostNewestKeys is how many sort keys of an outbox are cached: most outboxes give a page fewer.
	MaxNewestKeys = 8
	// newestKeysBytes and sliceBytes are what NewestKeys take beside the bytes of the keys, and each sort key.
	newestKeysOverhead, sortKeyOverhead = 72, 24
)

// CopyNewestKeys returns a copy of what was read of an outbox from its beginning on.
func CopyNewestKeys(outbox []byte, sortKeys [][]byte, rest []byte) NewestKeys {
	n := len(outbox) + len(rest)
	for _, sortKey := range sortKeys {
		n += len(sortKey)
	}

	// All keys share one allocation.
	block := make([]byte, 0, n)
	clone := func(key []byte) []byte {
		start := len(block)
		block = append(block, key...)
		return block[start:len(block):len(block)]
	}

	k := NewestKeys{outbox: clone(outbox), SortKeys: make([][]byte, len(sortKeys))}
	for i, sortKey := range sortKeys {
		k.SortKeys[i] = clone(sortKey)
	}
	if rest != nil {
		k.Rest = clone(rest)
	}
	return k
}

// bytes returns what the keys take in memory.
func (k *NewestKeys) bytes() int64 {
	n := newestKeysOverhead + len(k.outbox) + len(k.Rest)
	for _, sortKey := range k.SortKeys {
		n += sortKeyOverhead + len(sortKey)
	}
	return int64(n + n/8) // the allocator rounds up
}

func isOfOutbox(outbox []byte) func(*NewestKeys) bool {
	return func(k *NewestKeys) bool { return bytes.Equal(k.outbox, outbox) }
}

// ReadOutbox returns the newest sort keys of an outbox of an owner, for a view of a version; nil means that they are not known. In that
// case outdated reports whether those of other views are. The owner is given by the key encoding of the id, the outbox by its prefix.
func (c *Cache) ReadOutbox(owner, outbox []byte, version uint64) (keys *NewestKeys, outdated bool) {
	keys, answers := c.outboxes.Find(c.ownerHash(owner), version, isOfOutbox(outbox))
	if !answers {
		return nil, keys != nil
	}
	return keys, false
}

// OutboxAskedBefore counts a page that wants the newest sort keys of an outbox and does not find them, and reports whether there was one
// before: what a single page merges is not worth learning.
func (c *Cache) CountOutboxMiss(owner []byte) bool {
	return c.outboxes.Asked(c.ownerHash(owner), 1) > 0
}

// LearnOutbox caches the newest sort keys of an outbox of an owner, which were read at a view of a version.
func (c *Cache) LearnOutbox(owner []byte, keys NewestKeys, version uint64) {
	c.outboxes.Make(c.ownerHash(owner), version, isOfOutbox(keys.outbox), func(k *NewestKeys) int64 {
		*k = keys
		return keys.bytes()
	})
}

// OutboxChanged says that an outbox of an owner changes with the views of a version. Only the fold calls it, before there is such a view.
// Older views continue to use what was learned.
func (c *Cache) OutboxChanged(owner []byte, version uint64) {
	c.outboxes.Changed(c.ownerHash(owner), version)
}

// ownerHash names the owner of outboxes to the set. All outboxes of an owner change together.
func (c *Cache) ownerHash(owner []byte) uint64 { return xxh3.HashSeed(owner, c.outboxes.Seed) }
