package inboxcache

import (
	"hash/maphash"
	"sync"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/querycache"
)

// Cache is the query cache of one open inbox store. It is safe for concurrent use. Its methods name
// readers and owners by the key encoding of their ids.
type Cache struct {
	// MaxEntries is how many entries an inbox may have. An inbox that gets more is trimmed to
	// trimTo entries.
	MaxEntries int
	trimTo     int

	// shared has the limit of the memory of all caches of the process, in bytes.
	shared *querycache.Cache

	relations projections.QueryCache
	outboxes  *querycache.Set[NewestKeys]
	// hiddenSeed is the seed of the fingerprints of hidden items.
	hiddenSeed maphash.Seed

	// mu guards the fields below. young and old have the inboxes: those that pages have read since
	// the last rotation are in young, and those that the next rotation drops are in old.
	mu         sync.Mutex
	young, old *generation
	// latestEventVersion is the lowest version of a view that shows every event of which the fold
	// has told this cache so far, whether or not the cache had an inbox for the event. It never
	// falls. A new inbox must not learn from older views, because the fold did not deliver to it
	// the pins that those views lack.
	latestEventVersion uint64
	closed             bool
}

// New returns an empty cache for a store that has just been opened. relations is the cache of the
// graph that the store embeds. keep is the number of entries to which an inbox is trimmed.
func New(shared *querycache.Cache, relations projections.QueryCache, keep int) *Cache {
	return &Cache{
		// Each trimming copies the entries that are left. So an inbox may grow by a quarter before
		// it is trimmed again.
		MaxEntries: keep + max(1, keep/4),
		trimTo:     keep,
		shared:     shared,
		relations:  relations,
		outboxes:   querycache.NewSet[NewestKeys](shared),
		hiddenSeed: maphash.MakeSeed(),
		young:      newGeneration(),
		old:        newGeneration(),
	}
}

var _ graph.RelationsHolder = (*Cache)(nil)

// Relations returns the cache of the embedded graph. It is part of [graph.RelationsHolder].
func (c *Cache) Relations() projections.QueryCache { return c.relations }

// Repaired forgets everything, because a repair has changed rows without an event. The cache then
// learns only from views of this version or later. Repaired is part of [projections.QueryCache].
func (c *Cache) Repaired(version uint64) {
	c.relations.Repaired(version)
	c.outboxes.Repaired(version)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.latestEventVersion = max(c.latestEventVersion, version)
	c.clearInboxes()
}

// Close frees what the cache holds and stops it from learning. It is part of
// [projections.QueryCache].
func (c *Cache) Close() {
	c.relations.Close()
	c.outboxes.Close()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.clearInboxes()
}
