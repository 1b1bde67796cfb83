package inboxcache

import (
	"sync"

	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/querycache"
)

// Cache is the query cache of one open inbox store. It is safe for concurrent use. Its methods name readers and owners by the key encoding of
// their ids.
type Cache struct {
	// MaxEntries is how many entries an inbox may have. An inbox that gets more is trimmed to trimTo entries.
	MaxEntries int
	trimTo     int

	// shared has the bound in bytes of all caches of the process.
	shared *querycache.Cache

	relations projections.QueryCache
	outboxes  *querycache.Set[NewestKeys]

	// mu guards the fields below.
	mu         sync.Mutex
	young, old *generation
	// deliveredVersion is the version of the first views that show everything that the fold has delivered or dropped so far. An inbox that is
	// begun now may learn only from views of this version or later: it has missed what was delivered before.
	deliveredVersion uint64
	closed           bool
}

// New returns an empty cache for a store that has just been opened. relations is the cache of the graph that the store embeds. Inboxes are
// trimmed to keep entries.
func New(shared *querycache.Cache, relations projections.QueryCache, keep int) *Cache {
	return &Cache{
		// Trimming copies what is left, so an inbox may grow by a quarter before it is trimmed again.
		MaxEntries: keep + max(1, keep/4),
		trimTo:     keep,
		shared:     shared,
		relations:  relations,
		outboxes:   querycache.NewSet[NewestKeys](shared),
		young:      newGeneration(),
		old:        newGeneration(),
	}
}

var _ graph.RelationsHolder = (*Cache)(nil)

// Relations returns the cache of the embedded graph. It is part of [graph.Keeper].
func (c *Cache) Relations() projections.QueryCache { return c.relations }

// Repaired forgets everything, because a repair has changed rows without an event. Only views of a version or later may teach the cache again. It
// is part of [projections.QueryCache].
func (c *Cache) Repaired(version uint64) {
	c.relations.Repaired(version)
	c.outboxes.Repaired(version)

	c.mu.Lock()
	defer c.mu.Unlock()
	c.deliveredVersion = max(c.deliveredVersion, version)
	c.clearInboxes()
}

// Close frees what the cache holds and stops it from learning. It is part of [projections.QueryCache].
func (c *Cache) Close() {
	c.relations.Close()
	c.outboxes.Close()

	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.clearInboxes()
}
