package graph

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// Graph is the projection. It reuses buffers from event to event, so one Graph folds into one store, from one goroutine.
type Graph struct {
	txn   txn
	cache *querycache.Cache
}

var (
	_ projections.Projection       = (*Graph)(nil)
	_ projections.SettingsProvider = (*Graph)(nil)
	_ projections.QueryCacher      = (*Graph)(nil)
	_ projections.IteratedOnly     = (*Graph)(nil)
	_ projections.Regional         = (*Graph)(nil)
)

// New returns the projection without a query cache.
func New() *Graph { return NewWith(nil) }

// NewWith returns the projection with a cache for [NewCachedQueries]. The cache changes no row; nil means no cache.
func NewWith(cache *querycache.Cache) *Graph {
	return (&Graph{cache: cache}).WithShortList(DefaultShortList)
}

// CacheStats returns the statistics of the cache. They are all 0 without a cache.
func (g *Graph) CacheStats() querycache.Stats { return g.cache.Stats() }

// NewQueryCache is part of [projections.QueryCacher].
func (g *Graph) NewQueryCache() projections.QueryCache {
	if g.cache == nil {
		return nil
	}
	return querycache.NewSet[cacheEntry](g.cache)
}

// Name returns "graph".
func (*Graph) Name() string { return "graph" }

// Version returns the version of the fold and its rows:
//
//	2  the list of a user's follows is not stored while it is short
//	3  an edge is stored at two ends
//	4  the end of a backfilled block ends follows
//	5  a follow has settings, and a mute may end by itself
func (*Graph) Version() uint32 { return 5 }

// Settings returns the setting that decides which rows exist. It is part of the fingerprint.
func (g *Graph) Settings() map[string]string {
	return map[string]string{"short": fmt.Sprint(g.txn.maxShortList)}
}

// Kinds returns the kinds of events that make, end or mention users and boards. Events about pins only mention boards here.
func (*Graph) Kinds() []events.Kind {
	return []events.Kind{
		events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved, events.UserBlocked,
		events.UserUnblocked, events.UserMuted, events.UserUnmuted, events.UserDeleted, events.FollowSettingsSet,
	}
}

// Apply folds one event.
func (g *Graph) Apply(ev events.Event, b *projections.Batch) error {
	t := g.startEvent(ev, b)

	if ev.Backfill {
		erased, err := t.isAnyUserErased(ev.User, ev.Peer)
		if err != nil || erased {
			return err
		}
	}

	switch ev.Kind {
	case events.UserFollowed:
		return t.applyBothEnds(ev.User, ev.Peer, (*txn).followUser)
	case events.UserUnfollowed:
		return t.applyBothEnds(ev.User, ev.Peer, (*txn).unfollowUser)
	case events.BoardFollowed, events.BoardUnfollowed:
		return t.changeBoardFollow()
	case events.BoardCreated:
		return t.createBoard()
	case events.BoardDeleted:
		return t.deleteBoard()
	case events.PinCreated, events.PinMoved:
		_, err := t.mentionBoardOfPin()
		return err
	case events.UserBlocked, events.UserUnblocked:
		// A block ends the follows of each by the other, so it changes the edges in both directions.
		if err := t.applyBothEnds(ev.User, ev.Peer, (*txn).changeBlock); err != nil {
			return err
		}
		return t.applyBothEnds(ev.Peer, ev.User, (*txn).changeBlock)
	case events.UserMuted, events.UserUnmuted:
		return t.applyOneEnd(outEnd, ev.User, ev.Peer, (*txn).changeMute)
	case events.FollowSettingsSet:
		return t.applyOneEnd(outEnd, ev.User, ev.Peer, (*txn).changeSettings)
	case events.UserDeleted:
		return t.eraseUser()
	}
	return fmt.Errorf("graph: event of kind %s, which it does not read", ev.Kind)
}

// startEvent prepares the txn of the Graph for one event.
func (g *Graph) startEvent(ev events.Event, b *projections.Batch) *txn {
	t := &g.txn
	t.batch = b
	t.eventCopy = ev
	t.ev = &t.eventCopy
	t.order = factOrderOf(&ev)
	return t
}

// isAnyUserErased reports whether one of the users was deleted. No backfill may bring back anything about such a user.
func (t *txn) isAnyUserErased(users ...string) (bool, error) {
	for _, user := range users {
		if user == "" {
			continue
		}

		t.key = storeHashKey(t.key[:0], tagTombstone, t.batch.KeyedHash(user))
		_, ok, err := t.batch.Get(t.key)
		if err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}
