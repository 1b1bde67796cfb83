// Package inbox is the projection that knows what is new for whom: pins, outboxes, home feeds.
//
// # What a feed is
//
// feed(A) is all living pins on the boards that A follows, less those of whom A mutes or a block separates from A, and less the re-pins of
// whom A hides them, newest first. Whether a pin was pushed to an inbox when it came, or is pulled from an outbox when it is read, or both,
// is a physical choice that never changes an answer (I8):
//
//	pin ──► facts of the pin ──► outbox of its owner, outbox of its board
//	    (package pinfacts)           │
//	                                 │ push: in each partition, to followers, unless there are too many
//	                                 ▼
//	           ┌──── inbox of A, in memory ─────────┐ floor
//	  top ─────┤ pins that were pushed              ├──────────────────────────── end
//	           │ + outboxes that pull rows name     │ all outboxes that A follows
//	           └────────────────────────────────────┘
//
// An inbox holds every pin above its floor that A sees, unless a pull row leads to it. It may hold more: pins that are gone, of whom A
// does not follow any more, twice what an outbox has. An entry of an inbox or outbox is a candidate; whether A sees the
// pin is decided when it is read, by the pin and the relation as they are. So a deletion, an unfollow, a mute, hidden re-pins, an exclusion
// change no inbox, and what ends there is seen on the next page.
//
//   - Inboxes are in memory, and made of outboxes: the first page of a reader merges them, and the inbox learns what it has merged
//     (package inboxcache). Then pins are pushed to it for as long as it is read now and then.
//   - Who begins to follow loses the inbox, which lacks what is older. So does who follows a board to which a pin is moved, or an owner of
//     whose pins history tells. The next page begins another.
//   - An inbox that has grown beyond [Settings.Keep] is trimmed, which raises its floor.
//   - A user with more followers than [Settings.Threshold] in a partition is pulled there: each of them gets a pull row, once, and posts
//     cost the same for any number of followers. Back at half of it, pins are pushed again (regions.go, pulls.go).
//
// The rows follow from the log: two builds are equal row for row (I4). No row says what is in memory.
//
// # Partitions
//
// Pins and outboxes stand with their owners; read markers, inboxes and pull rows with the reader, and so do the relations to those whom the
// reader follows, which the out-half of the graph folds into this store ([graph.NewOut]), because a fold may read no other store. A
// post is delivered to all partitions, and found there by the regions of its owner and board. It is pushed by what the event says
// alone, since the facts about the pin stand elsewhere: a repeat of a living pin leaves a candidate that no read shows. History drops
// the inboxes of all with a relation to its owner, because it may have the pin stand on any board, at another time than its own. Each
// partition decides alone (I13).
//
// # Pins and history
//
// A pin lives from its creation to its deletion, or that of its board. Since history may arrive after live facts, and comes
// before them in the order of facts, a pin keeps its live facts until no history can matter. One function derives the state of a pin
// from them (package pinfacts).
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
//	push.go      deliveries to inboxes; readmarker.go: what was read
//	regions.go   whom a post concerns, and who is pulled; pulls.go: outboxes beside the inbox
//	erase.go     the end of a user
//	query.go     the questions; feed.go: the walk over a feed; merge.go: under it; newest.go, trending.go: the two orders
//	explain.go   why a pin is in a feed, or not
//	package inboxcache: inboxes, and the newest pins of outboxes, in memory
//	keylist.go   keys that a fold walks over before it writes
package inbox
