package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// NewCachedQueries returns the queries over a view. They answer from memory if the query cache of
// the store has the edges that they need, and give the same answers as those of [NewQueries].
func NewCachedQueries(v *projections.View) *Queries {
	q := NewQueries(v)
	if cache := relationsCacheOf(v.QueryCache()); cache != nil {
		q.cache = cache
		q.version = v.Version()
	}
	return q
}

// RelationsHolder is the query cache of a store whose projection embeds a [Graph] and caches other
// things, too.
type RelationsHolder interface {
	projections.QueryCache
	// Relations returns the cache that [Graph.NewQueryCache] made.
	Relations() projections.QueryCache
}

// relationsCacheOf returns the cache of relations in the query cache of a store, or nil if there is
// none.
func relationsCacheOf(c projections.QueryCache) *cacheSet {
	if holder, ok := c.(RelationsHolder); ok {
		c = holder.Relations()
	}
	set, _ := c.(*cacheSet)
	return set
}

// cacheSet is the cache of one store. It has one entry for each cached user.
type cacheSet = querycache.Set[cacheEntry]

const (
	// maxCachedEdges is the largest number of edges of a user who is cached. It bounds the time to
	// make an entry, and the space that one user takes.
	maxCachedEdges = 1 << 14
	// rowsPerMiss is the number of neighboring rows that are read in about the time of one point
	// read. An entry is worth making once this many times the unanswered questions is the number of
	// rows that it reads.
	rowsPerMiss = 16
)

// cachedEdges returns the cache entry of a user, and makes one if that is worth it. nil means that
// the caller must read the rows. questions is the number of edges that the caller asks about.
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
	// Find may return an entry that does not answer, because the user's edges have changed since.
	entry, answers := cache.Find(id.hash, q.version, isOfUser)
	hit := answers && !entry.notCacheable
	cache.Count(id.hash, questions, hit)
	if hit {
		return entry
	}

	// If the entry answers and is no hit, it says that the user is not cacheable.
	if answers || !q.isWorthCaching(&id, user, entry, questions) {
		return nil
	}

	entry = cache.Make(id.hash, q.version, isOfUser, func(e *cacheEntry) int64 {
		return q.fillCacheEntry(e, &id, user)
	})
	if entry == nil || entry.notCacheable {
		return nil
	}
	return entry
}

// cachedEdge returns the relations of one edge from the cache. ok is false if the caller must read
// the row.
func (q *Queries) cachedEdge(follower, followee string) (value cacheValue, ok bool) {
	entry := q.cachedEdges(follower, 1)
	if entry == nil {
		return 0, false
	}
	id, ok := cacheIDOf(followee, q.cache.Seed)
	if !ok {
		return 0, false
	}
	return entry.find(&id), true
}

// isWorthCaching reports whether to make an entry for a user who has none, or whose outdated entry
// no longer answers. The answer is yes once the point reads for unanswered questions have cost
// about as much as reading all edges. So the cost with the cache is at most about twice that
// without it, even for a user with many edges that change all the time. A user without an entry is
// never worth it at the first call, so that a walk over many users caches none of them.
func (q *Queries) isWorthCaching(id *cacheID, user string, outdated *cacheEntry, questions int) bool {
	if outdated != nil {
		unanswered := outdated.unanswered.Add(uint32(questions))
		return int(unanswered)*rowsPerMiss >= outdated.edgeEstimate()
	}

	unansweredBefore := q.cache.CountUnanswered(id.hash, questions)
	if unansweredBefore == 0 {
		return false
	}
	counts, err := q.UserCounts(user)
	if err != nil {
		return false // the caller reads the row, and gets the error if it persists
	}
	unanswered := unansweredBefore + questions
	// CountUnanswered counts only up to MaxUnanswered. With this number, a user is worth it however
	// many edges there are, because no greater number can be waited for.
	return unanswered >= querycache.MaxUnanswered ||
		int64(unanswered*rowsPerMiss) >= counts.Following+counts.FollowingImplicit
}

// fillCacheEntry reads the edges of a user into an empty entry, and returns the entry's size in
// bytes. If the edges do not fit into an entry, or one of them cannot be read, the entry has none
// of them and is marked as not cacheable. The caller that asks about the unreadable edge then reads
// its row and gets the error.
func (q *Queries) fillCacheEntry(e *cacheEntry, id *cacheID, user string) int64 {
	edges, err := q.readCacheEdges(user)
	if err != nil {
		e.fill(id, nil)
		e.notCacheable = true
	} else {
		e.fill(id, edges)
	}
	return e.sizeBytes()
}

// readCacheEdges reads the edges of a user, and leaves out those without any relation. It returns
// errNotCacheable if the edges do not fit into an entry.
func (q *Queries) readCacheEdges(user string) (edges []cacheEdge, err error) {
	prefix := projections.AppendKey(nil, tagOutEdge, user)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()

	for rows := 0; it.Next(); rows++ {
		if rows == maxCachedEdges {
			return nil, errNotCacheable
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
			return nil, errNotCacheable
		}
		if value != 0 {
			edges = append(edges, cacheEdge{id, value})
		}
	}
	return edges, nil
}

// errNotCacheable says that a user has too many edges, or one that does not fit into a cacheValue.
var errNotCacheable = errors.New("graph: the edges of a user do not fit into an entry")
