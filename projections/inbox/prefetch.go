package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// Prefetch is part of [projections.Prefetcher]: of follows what the graph asks for, of plays and likes the heat of the item.
func (f *Inbox) Prefetch(ev *events.Event, add func(key []byte)) {
	switch ev.Kind {
	case events.Liked, events.Unliked:
		f.key = projections.AppendKey(f.key[:0], tagLike, ev.User, ev.Item)
		add(f.key)
	case events.Played:
	default:
		f.graph.Prefetch(ev, add)
		return
	}
	f.key = projections.AppendKey(f.key[:0], tagHeat, ev.Item)
	add(f.key)
}
