// Package inbox is the projection that knows what is new for whom: pins, outboxes, home feeds.
//
// # What a feed is
//
// feed(A) is all living pins on the boards that A follows, less those of whom A mutes or a block separates from A, newest
// first. Whether a pin was pushed to an inbox when it came, or is pulled from an outbox when it is read, or both, is a
// physical choice that never changes an answer (I8):
//
//	pin ──► facts of the pin ──► outbox of its owner, outbox of its board
//	    (package pinfacts)           │
//	                                 │ push: followers who are active, unless there are too many of them
//	                                 ▼
//	           ┌──────────── inbox of A ────────────┐ floor
//	  top ─────┤ pins of pushing owners and boards  ├──────────────────────────── end
//	           │ + outboxes that A pulls            │ all outboxes that A follows
//	           └────────────────────────────────────┘
//
// An inbox holds every pin above its floor of what A follows and is pushed. It may hold more: pins that are gone, of whom A
// does not follow any more, twice what another source has. A place in an inbox or outbox is a candidate; whether A sees the
// pin is decided when it is read, by the pin and the relation as they are. So a deletion, an unfollow, a mute, an exclusion
// write nothing to inboxes, and what ends there is seen on the next page.
//
//   - A reader gets an inbox by a reader_active event, with the floor at that event: nothing is copied. A reader who has
//     not come for [Settings.Active] loses it when a pin would be pushed next.
//   - Who begins to follow gets what the outbox has above the floor.
//   - An inbox that has grown beyond [Settings.Keep] is trimmed, which raises its floor.
//   - A user or board with more followers than [Settings.Threshold] is pulled: its followers get a row that names its
//     outbox, once, and its posts cost the same whoever follows. Back below half of it, it is pushed again; the rows stay
//     until the floor has risen past the time when it was pulled.
//
// All this follows from the log: two builds are equal row for row (I4). The graph is folded into the same store (package
// graph, [graph.Graph.Observe]), because a fold may read no other store.
//
// # Pins and history
//
// A pin lives from its creation to its deletion, or that of its board. Since history may arrive after live facts, and comes
// before them in the order of facts, a pin keeps its live facts until no history can matter. What is true of a pin
// follows from them by one function (package pinfacts).
//
// # Heat
//
// Plays, likes and scores are folded by counters alone, which keeps what each score was during the last hour of log time. A feed by heat
// ranks its newest pins, as many as [Feed.Ranked], and reads all pages of a session by the scores at the position where it began
// ([Heat]).
//
// # Where things are
//
//	keys.go      the rows, in one table
//	pins.go      from what is kept of a pin (package pinfacts) to rows
//	push.go      deliveries, floors, thresholds, copies; readers.go: who has an inbox
//	erase.go     the end of a user
//	query.go     the questions; feed.go: the walk over a feed; merge.go: under it; newest.go, hot.go: the two orders
//	tops.go      the newest pins of outboxes in memory, exact at every position
//	keylist.go   keys that a fold walks over before it writes
package inbox
