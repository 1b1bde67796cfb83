// Package inboxcache is what an open inbox store keeps in memory beside its rows, for the pages of
// feeds: inboxes, the newest sort keys of outboxes, and the relations of readers. A page that uses
// it is the same as one from the rows of the same view. Nothing of it is on disk: after a start,
// the first page of each reader costs what it would cost without a cache.
//
//	                        Cache, one per open store
//	      ┌────────────────────────────┼──────────────────────────────┐
//	inbox of a reader           newest sort keys of an outbox    relations of a reader
//	delivered to by the fold    invalidated by the fold          invalidated by the fold (package graph)
//	learned from a page         learned from a page              learned from a query
//
// # Inboxes (I8)
//
//	fold ── DeliverToInbox ──► inbox of a reader: the newest sort keys, down to a floor ◄── ReadInbox ── page
//	                                                  ▲                                              │
//	                                                  └── LearnInbox ── what the page has merged ────┘
//
// An inbox begins with the first page of its reader: the page merges outboxes, and the inbox learns
// the sort keys that were merged. From then on the fold delivers new sort keys to it. The sort keys
// of newer pins are smaller, so the floor is an upper bound.
//
// Invariant: for a view of version v >= minReadVersion, an inbox has every sort key smaller than
// its floor that outboxes have for its reader, except those that a pull row leads to. It may have
// others, because the page decides whether the reader sees a pin.
//
//   - LearnInbox is given the sort keys that outboxes have in a range, at a view of version v. They extend the inbox if the range begins at or before
//     the floor and v >= minLearnVersion. minLearnVersion is the lowest version of a view that shows every pin which was delivered but is not in the
//     inbox: because it was delivered before the inbox began, was not smaller than the floor, or was trimmed away.
//   - The fold calls DeliverToInbox before there is a view with the pin. The inbox stores a sort key that is smaller than the floor and skips others.
//     As long as the inbox has learned nothing, it stores all.
//   - If there are no inboxes at all, as during an import before the first reader, the fold only records the version (SkipDelivery) and does not
//     look for followers.
//   - A view that is older than minReadVersion may show a pin that was deleted before the inbox learned. So its pages do not use the inbox.
//   - A reader who begins to follow needs pins that outboxes have already, so the inbox is dropped. The next inbox does not learn from older views.
//   - A repair changes rows without an event, so all inboxes are dropped. The next inboxes do not learn from older views.
//
// # Hidden items
//
// An inbox also has the items that its reader hides, if these are at most [MaxHiddenItems], so that
// a page need not read a row for each pin. The fold names each reader whose hidden items it changes
// (ForgetHiddenItems), before there is a view with the change. What a page has read before answers
// neither for views with the change, nor is it learned any more.
//
// # Outboxes
//
// Pages merge the outboxes of owners who are pulled, and below the floor those of all followees.
// Most outboxes have few pins on a page, so their newest sort keys are cached. The fold does not
// deliver to them. It names each owner whose outboxes it changes, and what was read before answers
// for older views only (package querycache). That takes no lock: a page that merges a thousand
// outboxes would have to take a thousand locks.
//
// # Memory
//
// Everything counts against the limit of one [querycache.Cache], which all stores share. Inboxes
// take at most half of it. They are kept in two generations, young and old. A page moves its inbox
// into the young one. When the young generation has reached a quarter of the limit, it becomes the
// old one, and the inboxes of the previous old one are dropped: no page has read them since the
// last such change. A generation has each sort key once, however many inboxes have it, and an entry
// takes four bytes. The rest of the limit is managed by package querycache.
package inboxcache
