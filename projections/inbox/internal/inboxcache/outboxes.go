package inboxcache

import (
	"bytes"

	"github.com/zeebo/xxh3"
)

// NewestKeys are the newest sort keys of an outbox. They never change, because pages read them
// without a lock.
type NewestKeys struct {
	// outbox is the prefix of the rows of the outbox.
	outbox []byte
	// SortKeys are the newest sort keys, the newest first: [MaxNewestKeys], or all if there are
	// fewer.
	SortKeys [][]byte
	// Rest is the key of the row that follows them; nil means that there is none.
	Rest []byte
}

const (
	// MaxNewestKeys is how many sort keys of an outbox are cached. Most outboxes give a page fewer.
	MaxNewestKeys = 8
	// newestKeysOverhead is the size of a NewestKeys in bytes, without those of the keys.
	newestKeysOverhead = 72
	// sortKeyOverhead is the size of a slice header in bytes.
	sortKeyOverhead = 24
)

// CopyNewestKeys returns a copy of what was read of an outbox from its beginning: the first sort
// keys, and the key of the row that follows.
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

// bytes returns what the keys take in memory, in bytes.
func (k *NewestKeys) bytes() int64 {
	n := newestKeysOverhead + len(k.outbox) + len(k.Rest)
	for _, sortKey := range k.SortKeys {
		n += sortKeyOverhead + len(sortKey)
	}
	return int64(n + n/8) // the allocator rounds up
}

// isOfOutbox returns a function that tells the entry of an outbox from those of other outboxes with
// the same hash.
func isOfOutbox(outbox []byte) func(*NewestKeys) bool {
	return func(k *NewestKeys) bool { return bytes.Equal(k.outbox, outbox) }
}

// ReadOutbox returns the newest sort keys of an outbox, for a view of a version, or nil if they are
// not cached for that view. In that case outdated reports whether they are cached for other views.
// The owner is given by the key encoding of the id, the outbox by the prefix of its rows.
func (c *Cache) ReadOutbox(owner, outbox []byte, version uint64) (keys *NewestKeys, outdated bool) {
	keys, answers := c.outboxes.Find(c.ownerHash(owner), version, isOfOutbox(outbox))
	if !answers {
		return nil, keys != nil
	}
	return keys, false
}

// CountOutboxMiss counts a page that did not find the newest sort keys of an outbox of an owner. It
// reports whether it has counted another page recently: an outbox that a single page merges is not
// worth caching.
func (c *Cache) CountOutboxMiss(owner []byte) bool {
	return c.outboxes.CountUnanswered(c.ownerHash(owner), 1) > 0
}

// LearnOutbox caches the newest sort keys of an outbox of an owner, which were read at a view of a
// version.
func (c *Cache) LearnOutbox(owner []byte, keys NewestKeys, version uint64) {
	c.outboxes.Make(c.ownerHash(owner), version, isOfOutbox(keys.outbox), func(k *NewestKeys) int64 {
		*k = keys
		return keys.bytes()
	})
}

// OutboxChanged tells the cache that an outbox of an owner changes. version is the version of the
// first views that show the change. Only the fold calls it, before there is such a view. Older
// views go on using what was cached.
func (c *Cache) OutboxChanged(owner []byte, version uint64) {
	c.outboxes.MarkChanged(c.ownerHash(owner), version)
}

// ownerHash returns the hash that names the owner of outboxes to the set. It does not depend on the
// board: one call of OutboxChanged covers all outboxes of the owner.
func (c *Cache) ownerHash(owner []byte) uint64 { return xxh3.HashSeed(owner, c.outboxes.Seed) }
