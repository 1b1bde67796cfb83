// Package inboxcache is what an open inbox store keeps in memory beside its rows, for the pages of feeds: inboxes, the newest sort keys of
// outboxes, and the relations of readers. A page from memory is that of the rows of the same view. Nothing of it is on disk: after a start
// each reader's first page costs what it would without a cache.
//
//	                        Cache, one for each open store
//	      ┌────────────────────────────┼──────────────────────────────┐
//	inbox of a reader           newest sort keys of an outbox    relations of a reader
//	delivered to by the fold    invalidated by the fold          invalidated by the fold (package graph)
//	learned by a page           learned by a page                learned by a query
//
// # Inboxes (I8)
//
//	fold ── DeliverToInbox ──► inbox of a reader: the newest sort keys, down to a floor ◄── ReadInbox ── page
//	                                                  ▲                                              │
//	                                                  └── LearnInbox ── what the page has merged ────┘
//
// An inbox begins with the first page of its reader, which merges outboxes, and learns what the page has merged. What comes later is
// delivered. Sort keys compare less when they are newer. Invariant: to a view of version v >= learned, an inbox has every sort key below
// its floor that outboxes have for its reader and no pull row leads to. It may have others: the page decides whether the reader sees a pin.
//
//   - LearnInbox is given the sort keys that outboxes have in a range, at a view of version v. They extend the inbox if the range begins at
//     or before the floor, and if v >= missed: nothing that views up to v show was missed. Missed is the version of the first views that
//     show the last sort key that the inbox has dropped, was not given, or that came before there was an inbox.
//   - DeliverToInbox is called by the fold before there is a view with the pin. It adds the sort key if it is below the floor; another one
//     is missed. While nothing is learned, all are added.
//   - Where there are no inboxes at all, as during an import before the first reader, the fold only notes the version (HasNoInboxes), and
//     walks over no followers.
//   - An older view may show a pin that was gone before the inbox learned of it. So pages of views below learned do without.
//   - Whoever begins to follow needs what outboxes had before, so the inbox is dropped, and no view from before teaches another.
//   - A repair changes rows without an event, so all inboxes are dropped, and no view from before teaches one.
//
// # Outboxes
//
// Pages merge the outboxes of owners who are pulled, and of all followees below a floor. Most give a page few pins, so the newest are
// cached. The fold does not deliver to them: it names each owner whose outboxes it changes, and what was read before answers for older
// views alone (package querycache). That takes no lock, of which a page that merges a thousand outboxes would take a thousand.
//
// # What is kept
//
// All counts against the bound of one [querycache.Cache], which stores share. Inboxes take half of it at most. There are two generations
// of inboxes, young and old. A page brings its inbox into the young one. When both take their part of the bound, the young one becomes old,
// and what was old is dropped: inboxes that no page has read since the last turn. A sort key stands once in a generation, however many
// inboxes have it, and goes with it; an entry takes four bytes. The rest makes room by the clock of package querycache.
package inboxcache
