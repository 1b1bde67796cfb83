package inbox

import (
	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/graph"
	"github.com/skein-feed/skein/projections/inbox/internal/inboxcache"
)

// cacheWithInboxes returns the cache of the store if the cache has any inbox. It returns nil if the
// event need not be delivered, because the cache has no inboxes or because there is no cache, as
// during a build. If the cache has no inboxes, it notes the event, so that later inboxes do not
// learn from views that lack the event. So cacheWithInboxes must be called for every event that
// concerns inboxes.
func (f *Inbox) cacheWithInboxes() *inboxcache.Cache {
	c, ok := f.batch.QueryCache().(*inboxcache.Cache)
	if !ok || c.SkipDelivery(f.batch.Version()) {
		return nil
	}
	return c
}

// invalidateOutboxes tells the cache that the outboxes of an owner change. Views that show this
// batch then do not use what the cache has learned of them before. It overwrites f.key.
func (f *Inbox) invalidateOutboxes(owner string) {
	if c, ok := f.batch.QueryCache().(*inboxcache.Cache); ok {
		f.key = events.AppendID(f.key[:0], owner)
		c.OutboxChanged(f.key, f.batch.Version())
	}
}

// pushCreatedPin delivers the pin of a live pin_created to the inboxes of readers who follow the
// owner or the board. It skips partitions where the owner is pulled.
//
// pushCreatedPin decides by the event alone, because the facts of the pin are at the home of the
// owner, perhaps in another store. So an event that creates a pin which lives already is delivered,
// too: inboxes then have a sort key that is not that of the pin, and pages skip it. All explicit
// followers get the pin, even those who have excluded the board, so that nothing need be delivered
// if they include the board again.
//
// A backfill, by contrast, drops the inboxes of all readers who follow the owner or any board of
// the owner. It can change more than the event says: live facts may move the pin to another board,
// and a live creation that was ignored may count after the backfill, which puts the pin at the time
// of that creation.
//
// The fold may be committed in steps between followers. If it is then interrupted, the event is
// folded again from its start. A second delivery of the same pin has no effect.
func (f *Inbox) pushCreatedPin() error {
	ev := f.ev
	inboxes := f.cacheWithInboxes()
	if inboxes == nil {
		return nil
	}

	// The region of the owner has the followers of the owner and of any board of the owner.
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

	// The region of the owner does not say which boards a reader follows. The region of the board
	// does. It need not be scanned if the first scan has found no reader who follows only boards.
	if err != nil || !scan.foundBoardRelation || ev.Backfill {
		return err
	}
	return scan.eachConcerned(graph.BoardRegionPrefix(nil, ev.User, ev.Board), func(r graph.RegionRow) {
		inboxes.DeliverToInbox(&pin, r.Key)
	})
}

// dropInboxesForMovedPin drops the inboxes of readers who follow the board to which a pin is moved.
// The pin cannot be delivered to them, because its sort key begins with the time when the pin was
// created, which the event does not have. Inboxes of explicit followers of the owner have the pin
// already.
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

// dropInbox drops the inbox of a reader, who is given by the key encoding of the id. The reader's
// next page begins a new one.
func (f *Inbox) dropInbox(reader []byte) {
	if inboxes := f.cacheWithInboxes(); inboxes != nil {
		inboxes.DropInbox(reader, f.batch.Version())
	}
}
