package graph

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Prefetch is part of [projections.Prefetcher]: of follows, of which there are most, the edge and the counts of both users.
func (g *Graph) Prefetch(ev *events.Event, add func(key []byte)) {
	if ev.Kind != events.UserFollowed && ev.Kind != events.UserUnfollowed {
		return
	}
	t := &g.t
	t.key = projections.AppendKey(t.key[:0], tagEdge, ev.User, ev.Peer)
	add(t.key)
	for _, user := range []string{ev.User, ev.Peer} {
		t.key = projections.AppendKey(t.key[:0], tagUserCounts, user)
		add(t.key)
	}
}
