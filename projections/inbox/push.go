package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// cacheWithInboxes returns the cache of the store if it has any inbox. It returns nil if the event
// need not be delivered: the cache is empty, or there is none, as in a build.
func (f *Inbox) cacheWithInboxes() *inboxcache.Cache {
	if c, ok := f.batch.QueryCache().(*inboxcache.Cache); ok && !c.SkipDelivery(f.batch.Version()) {
		return c
	}
	return nil
}

// invalidateOutboxes tells the cache that the outboxes of an owner change with the views that will
// show this batch.
func (f *Inbox) invalidateOutboxes(owner string) {
	if c, ok := f.batch.QueryCache().(*inboxcache.Cache); ok {
		f.key = events.AppendID(f.key[:0], owner)
		c.OutboxChanged(f.key, f.batch.Version())
	}
}

// pushCreatedPin delivers the pin of an event to the inboxes of those who follow the owner or the
// board. It decides by the event alone, because the facts about the pin are at the home of the
// owner, perhaps in another store. So inboxes also get an entry for a pin that lives already, which
// no page shows. All explicit followers get it, even those who have excluded the board, so that
// nothing need be delivered if they include the board again.
//
// An event of history drops the inboxes instead, those of all who follow the owner or any board of
// the owner. History can put the pin on any board, and at the time of a live creation that counted
// for nothing before.
//
// The event may be cut between chunks of followers, and is then delivered again from its start.
// Delivering twice has no further effect.
func (f *Inbox) pushCreatedPin() error {
	ev := f.ev
	inboxes := f.cacheWithInboxes()
	if inboxes == nil {
		return nil
	}

	scan := regionScan{inbox: f, owner: ev.User}
	pin := inboxcache.NewPushedPin(sortKeyOf(ev.Time, ev.User, ev.Pin), f.batch.Version())
	err := scan.eachConcerned(graph.RegionPrefix(nil, ev.User), func(r graph.RegionRow) {
		switch {
		case ev.Backfill:
			inboxes.DropInbox(r.Key, f.batch.Version())
		case r.Follows:
			inboxes.DeliverToInbox(&pin, r.Key)
		}
	})

	// Readers of single boards are in the region of the board. If the region of the owner has none
	// of them, that one is empty.
	if err != nil || !scan.foundBoardRelation || ev.Backfill {
		return err
	}
	return scan.eachConcerned(graph.BoardRegionPrefix(nil, ev.User, ev.Board), func(r graph.RegionRow) {
		inboxes.DeliverToInbox(&pin, r.Key)
	})
}

// dropInboxesForMovedPin drops the inboxes of those who follow the board to which a pin is moved.
// They cannot be given the pin: the event does not say when the pin was created, and so not where
// in an inbox it belongs.
func (f *Inbox) dropInboxesForMovedPin() error {
	ev := f.ev
	inboxes := f.cacheWithInboxes()
	if inboxes == nil {
		return nil
	}
	scan := regionScan{inbox: f, owner: ev.User}
	return scan.eachConcerned(graph.BoardRegionPrefix(nil, ev.User, ev.Board), func(r graph.RegionRow) {
		inboxes.DropInbox(r.Key, f.batch.Version())
	})
}

// dropInbox drops the inbox of a reader, who is given by the key encoding of the id. The next page
// of the reader begins another one.
func (f *Inbox) dropInbox(reader []byte) {
	if inboxes := f.cacheWithInboxes(); inboxes != nil {
		inboxes.DropInbox(reader, f.batch.Version())
	}
}
