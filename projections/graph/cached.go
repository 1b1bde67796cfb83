package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// NewCachedQueries returns the queries over a view. They answer from memory where the store has
// cached the edges that they need, and give the same answers as those of [NewQueries].
func NewCachedQueries(v *projections.View) *Queries {
	q := NewQueries(v)
	if cache := relationsCacheOf(v.QueryCache()); cache != nil {
		q.cache = cache
		q.version = v.Version()
	}
	return q
}

// RelationsHolder is implemented by the query cache of a store that embeds the graph, if that cache
// has more than relations.
type RelationsHolder interface {
	projections.QueryCache
	// Relations returns the cache that [Graph.NewQueryCache] made.
	Relations() projections.QueryCache
}

// relationsCacheOf returns the cache of relations in the query cache of a store. nil means that
// there is none.
func relationsCacheOf(c projections.QueryCache) *cacheSet {
	if keeper, ok := c.(RelationsHolder); ok {
		c = keeper.Relations()
	}
	set, _ := c.(*cacheSet)
	return set
}

// cacheSet has one entry for each cached user.
type cacheSet = querycache.Set[cacheEntry]

const (
	// maxCachedEdges is the largest number of edges of a user who is cached.
	maxCachedEdges = 1 << 14
	// rowsPerMiss is how many rows an entry may read when it is made, for each question that it
	// would have answered. With fewer questions than that, reading single rows costs less.
	rowsPerMiss = 16
)

// cachedEdges returns the cached edges of a user, if there are some or if it is worth reading them.
// nil means that the caller must read the rows. questions is the number of edges that the caller
// asks about.
func (q *Queries) cachedEdges(user string, questions int) *cacheEntry {
	cache := q.cache
	if cache == nil {
		return nil
	}
	id, ok := cacheIDOf(user, cache.Seed)
	if !ok {
		return nil
	}

	isOfUser := func(e *cacheEntry) bool { return e.belongsTo(&id) }
	e, answers := cache.Find(id.hash, q.version, isOfUser)
	hit := answers && !e.tooLarge
	cache.Count(id.hash, questions, hit)
	if hit {
		return e
	}
	// An entry that answers and is too large says that the user cannot be cached.
	if answers || !q.isWorthCaching(&id, user, e, questions) {
		return nil
	}

	e = cache.Make(id.hash, q.version, isOfUser, func(e *cacheEntry) int64 {
		return q.fillCacheEntry(e, &id, user)
	})
	if e == nil || e.tooLarge {
		return nil
	}
	return e
}

// cachedEdge returns one edge of a follower from the cache. ok is false if the caller must read the
// row.
func (q *Queries) cachedEdge(follower, followee string) (v cacheValue, ok bool) {
	e := q.cachedEdges(follower, 1)
	if e == nil {
		return 0, false
	}
	id, ok := cacheIDOf(followee, q.cache.Seed)
	if !ok {
		return 0, false
	}
	return e.find(&id), true
}

// isWorthCaching reports whether to make an entry for a user who has none, or whose last entry no
// longer answers. It is not worth it before the second call, so a walk over many users caches
// nothing. After that, it is worth it once reading single rows has cost about as much as reading
// all edges, so caching a large user whose edges change all the time costs not much more than no
// cache.
func (q *Queries) isWorthCaching(id *cacheID, user string, last *cacheEntry, questions int) bool {
	if last != nil {
		return int(last.unanswered.Add(uint32(questions)))*rowsPerMiss >= last.edgeEstimate()
	}

	before := q.cache.CountUnanswered(id.hash, questions)
	if before == 0 {
		return false
	}
	c, err := q.UserCounts(user)
	if err != nil {
		return false
	}
	missed := before + questions
	return missed >= querycache.MaxUnanswered || int64(missed*rowsPerMiss) >= c.Following+c.FollowingImplicit
}

// fillCacheEntry reads the edges of a user into an empty entry, and returns the entry's size in
// bytes. If the edges are too many, or one of them cannot be read, the entry has none of them and
// is marked as too large. The caller that asks about the unreadable edge then reads its row and
// gets the error.
func (q *Queries) fillCacheEntry(e *cacheEntry, id *cacheID, user string) int64 {
	edges, err := q.readCacheEdges(user)
	if err != nil {
		e.fill(id, nil)
		e.tooLarge = true
	} else {
		e.fill(id, edges)
	}
	return e.sizeBytes()
}

// readCacheEdges reads the edges of a user. It leaves out edges by which nothing holds, and fails
// with errNotCached if the edges do not fit into an entry.
func (q *Queries) readCacheEdges(user string) (edges []cacheEdge, err error) {
	prefix := projections.AppendKey(nil, tagOutEdge, user)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	for rows := 0; it.Next(); rows++ {
		if rows == maxCachedEdges {
			return nil, errNotCached
		}

		followee, _, err := events.CutID(it.Key()[len(prefix):])
		if err != nil {
			return nil, err
		}
		var e edge
		if err := e.decodeRow(it.Value()); err != nil {
			return nil, err
		}

		id, validID := cacheIDOf(followee, q.cache.Seed)
		value, fits := cacheValueOf(&e)
		if !validID || !fits {
			return nil, errNotCached
		}
		if value != 0 {
			edges = append(edges, cacheEdge{id, value})
		}
	}
	return edges, nil
}

var errNotCached = errors.New("graph: the edges of a user do not fit into an entry")
