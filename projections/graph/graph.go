package graph

import (
	"fmt"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/querycache"
)

// Graph is the projection of follows, blocks, mutes and boards: it folds events into rows. It
// reuses buffers, so only one goroutine at a time may fold events with it.
type Graph struct {
	fold eventFold
	// cache is the query cache that all stores share; nil means that queries are not cached.
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

// NewWith returns the projection with a cache for [NewCachedQueries]; a nil cache means that
// queries are not cached. The rows do not depend on the cache.
func NewWith(cache *querycache.Cache) *Graph {
	return (&Graph{cache: cache}).WithShortList(DefaultShortList)
}

// CacheStats returns the statistics of the cache. They are 0 if the cache is nil.
func (g *Graph) CacheStats() querycache.Stats { return g.cache.Stats() }

// NewQueryCache returns the part of the cache for a store that is being opened, or nil if the cache
// is nil. It is part of [projections.QueryCacher].
func (g *Graph) NewQueryCache() projections.QueryCache {
	if g.cache == nil {
		return nil
	}
	return querycache.NewSet[cacheEntry](g.cache)
}

// Name returns "graph".
func (*Graph) Name() string { return "graph" }

// Version returns the version of the fold and its rows. What each version changed:
//
//	2  the list of a user's follows is stored only while it is long (following_list.go)
//	3  an edge is stored twice: at the home of the follower, and at the home of the followee
//	4  an unblock ends follows, if a backfill says that there was a block
//	5  a follow has settings, and a mute may have an end
func (*Graph) Version() uint32 { return 5 }

// Settings returns the one setting on which the rows depend, the value of [Graph.WithShortList]. It
// is part of the fingerprint of a store, so a store that was built with another value is rebuilt.
func (g *Graph) Settings() map[string]string {
	return map[string]string{"short": fmt.Sprint(g.fold.maxShortList)}
}

// Kinds returns the kinds of events that the graph folds: about follows, blocks, mutes, boards, and
// the deletion of users. From an event about a pin, the graph takes only that the board of the pin
// exists.
func (*Graph) Kinds() []events.Kind {
	return []events.Kind{
		events.UserFollowed, events.UserUnfollowed, events.BoardFollowed, events.BoardUnfollowed,
		events.BoardCreated, events.BoardDeleted, events.PinCreated, events.PinMoved, events.UserBlocked,
		events.UserUnblocked, events.UserMuted, events.UserUnmuted, events.UserDeleted, events.FollowSettingsSet,
	}
}

// Apply folds one event. It ignores a backfill about a deleted user, and returns an error for a
// kind that Kinds does not return.
func (g *Graph) Apply(ev events.Event, b *projections.Batch) error {
	f := g.startEvent(ev, b)

	// A deleted user may use the service again, but history from before the deletion must not come
	// back.
	if ev.Backfill {
		deleted, err := f.isAnyUserDeleted(ev.User, ev.Peer)
		if err != nil || deleted {
			return err
		}
	}

	switch ev.Kind {
	case events.UserFollowed:
		return f.applyBothEnds(ev.User, ev.Peer, (*eventFold).followUser)
	case events.UserUnfollowed:
		return f.applyBothEnds(ev.User, ev.Peer, (*eventFold).unfollowUser)
	case events.BoardFollowed, events.BoardUnfollowed:
		return f.followOrUnfollowBoard()
	case events.BoardCreated:
		return f.createBoard()
	case events.BoardDeleted:
		return f.deleteBoard()
	case events.PinCreated, events.PinMoved:
		_, err := f.createBoardOfPin() // only [Graph.ApplyPin] needs to know whether the board exists
		return err
	case events.UserBlocked, events.UserUnblocked:
		// A block ends the follows of both users, and each of the two edges has the facts about the
		// block. So the edges in both directions change.
		if err := f.applyBothEnds(ev.User, ev.Peer, (*eventFold).beginOrEndBlock); err != nil {
			return err
		}
		return f.applyBothEnds(ev.Peer, ev.User, (*eventFold).beginOrEndBlock)
	case events.UserMuted, events.UserUnmuted:
		return f.applyOneEnd(outEnd, ev.User, ev.Peer, (*eventFold).muteOrUnmute)
	case events.FollowSettingsSet:
		return f.applyOneEnd(outEnd, ev.User, ev.Peer, (*eventFold).setFollowSettings)
	case events.UserDeleted:
		return f.eraseUser()
	}
	return fmt.Errorf("graph: unexpected event of kind %s", ev.Kind)
}

// startEvent makes g.fold ready to fold another event into a batch, and returns it.
func (g *Graph) startEvent(ev events.Event, b *projections.Batch) *eventFold {
	t := &g.fold
	t.batch = b
	t.eventCopy = ev
	t.ev = &t.eventCopy
	t.order = factOrderOf(t.ev)
	return t
}

// isAnyUserDeleted reports whether any of the users was deleted before all backfills were closed.
// It ignores the empty id, which an event without a peer has. Such a user has a tombstone in every
// store: a row with a keyed hash, which does not reveal the id.
func (f *eventFold) isAnyUserDeleted(users ...string) (bool, error) {
	for _, user := range users {
		if user == "" {
			continue
		}

		f.key = appendStoreWideKey(f.key[:0], tagTombstone, f.batch.KeyedHash(user))
		_, deleted, err := f.batch.Get(f.key)
		if err != nil || deleted {
			return deleted, err
		}
	}
	return false, nil
}
