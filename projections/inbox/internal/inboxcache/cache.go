package inboxcache

import (
	"sync"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/querycache"
)

// Cache is the query cache of one open inbox store. It is safe for concurrent use. Readers and owners are given by the key encoding of
// their ids.
type Cache struct {
	// MostEntries is how many entries an inbox may have; with more it is trimmed to keep.
	MaxEntries int

	trimTo int
	// shared has the bound of all caches of the process.
	shared *querycache.Cache

	relations projections.QueryCache
	outboxes  *querycache.Set[NewestKeys]

	mu         sync.Mutex
	young, old *generation
	// shown is the version of the first views that show all that was delivered so far.
	deliveredVersion uint64
	closed           bool
}

// New returns an empty cache for a store that has just been opened, with that of its relations. Inboxes are trimmed to keep entries.
func New(shared *querycache.Cache, relations projections.QueryCache, keep int) *Cache {
	return &Cache{
		MaxEntries: keep + max(1, keep/4), trimTo: keep, shared: shared,
		relations: relations, outboxes: querycache.NewSet[NewestKeys](shared),
		young: newGeneration(), old: newGeneration(),
	}
}

var _ graph.Keeper = (*Cache)(nil)

// Relations is part of [graph.Keeper].
func (c *Cache) Relations() projections.QueryCache { return c.relations }

// Repaired is part of [projections.QueryCache].
func (c *Cache) Repaired(version uint64) {
	c.relations.Repaired(version)
	c.outboxes.Repaired(version)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, version)
	c.clearInboxes()
}

// Close is part of [projections.QueryCache].
func (c *Cache) Close() {
	c.relations.Close()
	c.outboxes.Close()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.clearInboxes()
}
