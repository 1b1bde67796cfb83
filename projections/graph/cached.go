package graph

import (
	"errors"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// CachedQuery returns the queries over a view, which are answered from memory where the store keeps what they need: the same
// answers as those of [Query].
func CachedQuery(v *projections.View) *Queries {
	q := Query(v)
	if s := relationsCacheOf(v.QueryCache()); s != nil {
		q.cache, q.version = s, v.Version()
	}
	return q
}

// Keeper is implemented by what a store that embeds the graph keeps in memory, if that is more than relations.
type Keeper interface {
	projections.QueryCache
	// Relations returns what [Graph.NewQueryCache] has made.
	Relations() projections.QueryCache
}

// cacheOf returns what is kept of relations; nil means nothing.
func relationsCacheOf(h projections.QueryCache) *cacheSet {
	if k, ok := h.(Keeper); ok {
		h = k.Relations()
	}
	s, _ := h.(*cacheSet)
	return s
}

// cacheSet are the entries of users.
type cacheSet = querycache.Set[cacheEntry]

const (
	// maxCachedEdges is how many edges a user may have who is kept.
	maxCachedEdges = 1 << 14
	// rowsAMiss is how many rows may be read to make an entry for every question that it would have answered: as long as
	// there were fewer, to continue reading single rows costs less.
	rowsPerMiss = 16
)

// cachedEdges returns what the edges of a user say; nil means it must be read. As many questions are asked about the user.
func (q *Queries) cachedEdges(user string, questions int) *cacheEntry {
	s := q.cache
	if s == nil {
		return nil
	}
	id, ok := cacheIDOf(user, s.Seed)
	if !ok {
		return nil
	}
	is := func(e *cacheEntry) bool { return e.belongsTo(&id) }
	e, answers := s.Find(id.hash, q.version, is)
	hit := answers && !e.tooLarge
	s.Count(id.hash, questions, hit)
	switch {
	case hit:
		return e
	case answers || !q.isWorthCaching(&id, user, e, questions):
		return nil
	}
	e = s.Make(id.hash, q.version, is, func(e *cacheEntry) int64 { return q.fillCacheEntry(e, &id, user) })
	if e == nil || e.tooLarge {
		return nil
	}
	return e
}

// cachedEdge returns what one edge says.
func (q *Queries) cachedEdge(a, b string) (v cacheValue, ok bool) {
	e := q.cachedEdges(a, 1)
	if e == nil {
		return 0, false
	}
	id, ok := cacheIDOf(b, q.cache.Seed)
	if !ok {
		return 0, false
	}
	return e.find(&id), true
}

// worthIt reports whether to make an entry for a user who has none, or one that no longer answers. It reports false
// before the second call, and until single rows have cost about as much to read as the entry would: a walk over many users
// keeps nothing, and a large user who changes all the time costs not much more than without.
func (q *Queries) isWorthCaching(id *cacheID, user string, last *cacheEntry, questions int) bool {
	if last != nil {
		return int(last.unanswered.Add(uint32(questions)))*rowsPerMiss >= last.edgeEstimate()
	}
	before := q.cache.Asked(id.hash, questions)
	if before == 0 {
		return false
	}
	c, err := q.UserCounts(user)
	missed := before + questions
	return err == nil && (missed >= querycache.MaxAsked || int64(missed*rowsPerMiss) >= c.Following+c.FollowingImplicit)
}

// readEntry reads the edges of a user into an entry, and returns its bytes. It has none of them if they are too many, or if one of them
// cannot be read: then the caller that asks about that one gets the error.
func (q *Queries) fillCacheEntry(e *cacheEntry, id *cacheID, user string) int64 {
	if edges, err := q.readCacheEdges(user); err == nil {
		e.fill(id, edges)
	} else {
		e.fill(id, nil)
		e.tooLarge = true
	}
	return e.sizeBytes()
}

// readEdges reads the edges of a user.
func (q *Queries) readCacheEdges(user string) (edges []cacheEdge, err error) {
	prefix := projections.AppendKey(nil, tagEdge, user)
	it := q.reader.Iter(prefix, projections.PrefixEnd(prefix))
	defer func() { err = errors.Join(err, it.Close()) }()
	for rows := 0; it.Next(); rows++ {
		if rows == maxCachedEdges {
			return nil, errNotCached
		}
		text, _, err := events.CutID(it.Key()[len(prefix):])
		if err != nil {
			return nil, err
		}
		var e edge
		if err := e.decodeRow(it.Value()); err != nil {
			return nil, err
		}
		id, named := cacheIDOf(text, q.cache.Seed)
		value, fits := cacheValueOf(&e)
		if !named || !fits {
			return nil, errNotCached
		}
		if value != 0 {
			edges = append(edges, cacheEdge{id, value})
		}
	}
	return edges, nil
}

var errNotCached = errors.New("graph: the edges of a user do not fit into an entry")
