package build

import (
	"github.com/zeebo/xxh3"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

// audiences narrows events that a projection delivers to every partition because they do not name whom they concern
// ([projections.Narrowed]). A pin whose owner has ten followers is folded in at most eleven partitions, not in 256, which would be most of
// what a build of inboxes does.
//
// It keeps a set of partitions for each hash of a user, so users with the same hash share a set: a set may be too large, which costs
// time, and is never too small.
type audiences struct {
	narrowed func(*events.Event) bool
	sets     []events.Partitions
}

// newAudiences takes about so many bytes.
func newAudiences(p projections.Projection, bytes int) *audiences {
	n, ok := p.(projections.Narrowed)
	if !ok {
		return nil
	}
	return &audiences{n.Narrowed, make([]events.Partitions, max(1, bytes/(events.NumPartitions/8)))}
}

func (a *audiences) of(user string) *events.Partitions {
	return &a.sets[xxh3.HashString(user)%uint64(len(a.sets))]
}

// narrow removes from the partitions of an event those in which nothing leads to its user, and notes whom it concerns where. toAll says
// that the event is delivered to all partitions, also to those that are not built.
func (a *audiences) narrow(ev *events.Event, to *events.Partitions, toAll bool) {
	switch {
	case a == nil:
	case a.narrowed(ev):
		audience := *a.of(ev.User)
		audience.AddHome(ev.User)
		to.Intersect(&audience)
	case toAll: // it is about its user alone, to whom it leads nobody
	default:
		a.of(ev.User).AddSet(to)
		if ev.Peer != "" {
			a.of(ev.Peer).AddSet(to)
		}
	}
}
