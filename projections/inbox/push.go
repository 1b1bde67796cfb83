package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// inboxes returns the cache of the store if it has inboxes; nil means that there are none for what the event brings or ends, as in a
// build.
func (f *Inbox) cacheWithInboxes() *inboxcache.Cache {
	if c, ok := f.batch.QueryCache().(*inboxcache.Cache); ok && !c.HasNoInboxes(f.batch.Version()) {
		return c
	}
	return nil
}

// outboxChanged says that the cache no longer knows the outboxes of an owner, for the views that will show the present write.
func (f *Inbox) invalidateOutboxes(owner string) {
	if c, ok := f.batch.QueryCache().(*inboxcache.Cache); ok {
		f.key = events.AppendID(f.key[:0], owner)
		c.OutboxChanged(f.key, f.batch.Version())
	}
}

// pushCreated brings the pin of an event to the inboxes of those who follow its owner or its board. The event alone decides, since
// facts about the pin stand with its owner: of a pin that lives already, inboxes get a candidate that no read shows. All explicit
// followers get it, also those who exclude the board: a board that is no longer excluded costs nothing here.
//
// History drops the inboxes of all followers, also of boards: with it the pin may stand elsewhere, on any board, at the time of a live
// creation that counted for nothing before.
//
// It may be cut between chunks of followers. To deliver twice is to deliver once.
func (f *Inbox) pushCreatedPin() error {
	ev, inboxes := f.ev, f.cacheWithInboxes()
	if inboxes == nil {
		return nil
	}
	c := inboxcache.NewCandidate(sortKeyOf(ev.Time, ev.User, ev.Pin), f.batch.Version())
	w := regionScan{inbox: f, owner: ev.User}
	err := w.eachConcerned(graph.RegionPrefix(nil, ev.User), func(r graph.Related) {
		switch {
		case ev.Backfill:
			inboxes.DropInbox(r.Key, f.batch.Version())
		case r.Follows:
			inboxes.DeliverToInbox(&c, r.Key)
		}
	})
	if err != nil || !w.foundBoardRelation || ev.Backfill {
		return err
	}
	return w.eachConcerned(graph.BoardRegionPrefix(nil, ev.User, ev.Board), func(r graph.Related) { inboxes.DeliverToInbox(&c, r.Key) })
}

// pushMoved drops the inboxes of those who follow a board to which a pin is moved: the event does not say when the pin was created, and so
// not where it belongs.
func (f *Inbox) dropInboxesForMovedPin() error {
	ev, inboxes := f.ev, f.cacheWithInboxes()
	if inboxes == nil {
		return nil
	}
	w := regionScan{inbox: f, owner: ev.User}
	return w.eachConcerned(graph.BoardRegionPrefix(nil, ev.User, ev.Board), func(r graph.Related) { inboxes.DropInbox(r.Key, f.batch.Version()) })
}

// dropInbox drops the inbox of a reader, given by the encoding of keys: the next page begins another.
func (f *Inbox) dropInbox(reader []byte) {
	if inboxes := f.cacheWithInboxes(); inboxes != nil {
		inboxes.DropInbox(reader, f.batch.Version())
	}
}
