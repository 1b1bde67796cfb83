package inboxcache

import (
	"bytes"

	"github.com/zeebo/xxh3"
)

// NewestKeys are the newest sort keys of an outbox. Nobody may change them once LearnOutbox has
// stored them, because pages read them without a lock.
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

// CopyNewestKeys returns a copy of what the caller has read of an outbox from its beginning: the
// first sort keys, and the key of the row that follows them, or nil if there is none.
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

// bytes estimates how many bytes of memory the NewestKeys take.
func (k *NewestKeys) bytes() int64 {
	n := newestKeysOverhead + len(k.outbox) + len(k.Rest)
	for _, sortKey := range k.SortKeys {
		n += sortKeyOverhead + len(sortKey)
	}
	return int64(n + n/8) // the allocator rounds up
}

// isOfOutbox returns a function that reports whether an entry is of this outbox. All outboxes of an
// owner have the same hash.
func isOfOutbox(outbox []byte) func(*NewestKeys) bool {
	return func(k *NewestKeys) bool { return bytes.Equal(k.outbox, outbox) }
}

// ReadOutbox returns the newest sort keys of an outbox for a view of this version, or nil if the
// cache has none that are right for the view. In that case outdated reports whether the cache has
// sort keys of the outbox at all. owner is the key encoding of the owner's id. outbox is the prefix
// of the rows of the outbox.
func (c *Cache) ReadOutbox(owner, outbox []byte, version uint64) (keys *NewestKeys, outdated bool) {
	keys, answers := c.outboxes.Find(c.ownerHash(owner), version, isOfOutbox(outbox))
	if !answers {
		return nil, keys != nil
	}
	return keys, false
}

// CountOutboxMiss counts that a page did not find the newest sort keys of an outbox of this owner.
// It reports whether it has counted the owner before and still remembers that. If not, the caller
// should not cache the outbox: an outbox that only one page merges is not worth the memory.
func (c *Cache) CountOutboxMiss(owner []byte) bool {
	return c.outboxes.CountUnanswered(c.ownerHash(owner), 1) > 0
}

// LearnOutbox caches the newest sort keys of an outbox of an owner. version is the version of the
// view from which the caller has read them. LearnOutbox may cache nothing, for example if there is
// no room or if an outbox of the owner has changed since that view.
func (c *Cache) LearnOutbox(owner []byte, keys NewestKeys, version uint64) {
	c.outboxes.Make(c.ownerHash(owner), version, isOfOutbox(keys.outbox), func(k *NewestKeys) int64 {
		*k = keys
		return keys.bytes()
	})
}

// OutboxChanged tells the cache that an outbox of an owner changes. version is the lowest version
// of a view that will show the change. Only the fold may call OutboxChanged, and only before there
// is such a view. From then on no view uses what was cached of the owner's outboxes before.
func (c *Cache) OutboxChanged(owner []byte, version uint64) {
	c.outboxes.MarkChanged(c.ownerHash(owner), version)
}

// ownerHash returns the hash under which the set has all outboxes of an owner, also those of the
// owner's boards. So one call of OutboxChanged covers all of them.
func (c *Cache) ownerHash(owner []byte) uint64 { return xxh3.HashSeed(owner, c.outboxes.Seed) }
