// Package pushed keeps inboxes in memory: the sort keys of the pins that were pushed to readers, beside the rows of an open store.
//
//	fold ── Deliver ──► inbox of a reader: the newest sort keys, down to a floor ◄── Read ── page
//	                                                  ▲                                        │
//	                                                  └── Learn ── what the page has merged ───┘
//
// An inbox begins with the first page of its reader, which merges outboxes, and learns what the page has merged. What comes later is
// delivered. Nothing is on disk: after a start each reader's first page costs what it would without an inbox.
//
// # What an inbox holds (I8)
//
// Sort keys compare less when they are newer. Invariant: to a view of version v >= learned, an inbox has every sort key below its
// floor that outboxes have for its reader and no pull row leads to. It may have others: the page decides whether the reader sees a pin.
//
//   - Learn is given the sort keys that outboxes have in a range, at a view of version v. They extend the inbox if the range begins at
//     or before the floor, and if v >= missed: nothing that views up to v show was missed. Missed is the version of the first views that
//     show the last sort key that the inbox has dropped, was not given, or that came before there was an inbox.
//   - Deliver is called by the fold before there is a view with the pin. It adds the sort key if it is below the floor; another one
//     is missed. While nothing is learned, all are added.
//   - Where there are no inboxes at all, as during an import before the first reader, the fold only notes the version (None), and walks
//     over no followers.
//   - An older view may show a pin that was gone before the inbox learned of it. So pages of views below learned do without.
//   - Whoever begins to follow needs what outboxes had before, so the inbox is dropped, and no view from before teaches another.
//   - A repair changes rows without an event, so all inboxes are dropped, and no view from before teaches one.
//
// # What is kept
//
// There are two generations of inboxes, young and old. A page brings its inbox into the young one. When both take their part of the
// bound, the young one becomes old, and what was old is dropped: inboxes that no page has read since the last turn. A sort key stands
// once in a generation, however many inboxes have it, and goes with it; an entry takes four bytes.
package pushed
