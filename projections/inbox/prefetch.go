package inbox

import "github.com/skein-feed/skein/events"

// Prefetch is part of [projections.Prefetcher]: of follows what the graph asks for.
func (f *Inbox) Prefetch(ev *events.Event, add func(key []byte)) { f.graph.Prefetch(ev, add) }
