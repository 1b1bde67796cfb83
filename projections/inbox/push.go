package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/pushed"
)

// pushCreated brings the pin of an event to the inboxes of those who follow its owner or its board. The event alone decides, since
// facts about the pin stand with its owner: of a pin that lives already, inboxes get a candidate that no read shows. All explicit
// followers get it, also those who exclude the board: a board that is no longer excluded costs nothing here. History goes to the followers
// of every board of the owner: the pin may have been moved to any of them, even before the time that history gives it.
//
// It may be cut between chunks of followers. To deliver twice is to deliver once.
func (f *Inbox) pushCreated() error {
	ev := f.ev
	if ev.Time <= f.horizon {
		return nil
	}
	c := pushed.NewCandidate(sortKeyOf(ev.Time, ev.User, ev.Pin), f.b.Version())
	k, ok := f.b.QueryCache().(*kept)
	deliver := func(r graph.Related) {
		if ok {
			k.inboxes.Deliver(&c, r.Key)
		}
	}
	w := regionWalk{f: f, owner: ev.User}
	err := w.each(graph.RegionPrefix(nil, ev.User), true, func(r graph.Related) error {
		if r.Follows || ev.Backfill && r.Boards {
			deliver(r)
		}
		return nil
	})
	if err != nil || !w.boards {
		return err
	}
	return w.each(graph.BoardRegionPrefix(nil, ev.User, ev.Board), false, func(r graph.Related) error {
		deliver(r)
		return nil
	})
}

// pushMoved has those who follow a board, and not its owner, look into its outbox for what was moved there: down from now, since
// the event does not say when the pin was created.
func (f *Inbox) pushMoved() error {
	ev := f.ev
	w := regionWalk{f: f, owner: ev.User}
	return w.each(graph.BoardRegionPrefix(nil, ev.User, ev.Board), false, func(r graph.Related) error {
		reader, _, err := events.CutID(r.Key)
		if err != nil {
			return err
		}
		s, err := f.queries.Visibility(reader, ev.User)
		if err != nil || s.Explicit {
			return err
		}
		return f.pull(reader, ev.User, &ev.Board)
	})
}

// forget removes the pins of an owner from the inbox of a reader (I12).
func (f *Inbox) forget(name, owner string) {
	if k, ok := f.b.QueryCache().(*kept); ok {
		k.inboxes.Forget(events.AppendID(nil, name), func(sortKey string) bool {
			_, of, _, err := cutSortKey([]byte(sortKey))
			return err == nil && of == owner
		})
	}
}
