package counters

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Prefetch is part of [projections.Prefetcher]: of plays, likes and follows, of which there are most.
func (c *Counters) Prefetch(ev *events.Event, add func(key []byte)) {
	switch ev.Kind {
	case events.Played:
		c.key = projections.AppendKey(c.key[:0], tagDoings, ev.User)
		add(c.key)
	case events.Liked, events.Unliked:
		c.key = projections.AppendKey(c.key[:0], tagLike, ev.User, ev.Item)
		add(c.key)
	case events.UserFollowed, events.UserUnfollowed:
		c.key = projections.AppendKey(c.key[:0], tagPair, ev.User, ev.Peer)
		add(c.key)
		for _, user := range []string{ev.User, ev.Peer} {
			c.key = projections.AppendKey(c.key[:0], tagUserRelations, user)
			add(c.key)
		}
		return
	default:
		return
	}
	c.key = projections.AppendKey(c.key[:0], tagItem, ev.Item)
	add(c.key)
}
