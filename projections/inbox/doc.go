// Package inbox is the projection of pins, outboxes and home feeds: it knows what is new for whom.
//
// # What a feed is
//
// The feed of a reader A has all living pins on the boards that A follows, newest first. It leaves
// out the pins of owners whom A mutes or who are separated from A by a block, and the re-pins of
// owners for whom A has set hide_repins. A pin reaches the feed in one of two ways: it is pushed to
// the inbox of A when it is created, or pulled from an outbox when A reads. Both can happen. The
// choice only affects cost and never an answer (I8):
//
//	pin ──► facts of the pin ──► outbox of its owner, outbox of its board
//	    (package pinstore)           │
//	                                 │ push: in each partition, to followers, unless there are too many
//	                                 ▼
//	           ┌──── inbox of A, in memory ─────────┐ floor
//	  top ─────┤ pins that were pushed              ├──────────────────────────── end
//	           │ + outboxes that pull rows name     │ all outboxes that A follows
//	           └────────────────────────────────────┘
//
// An inbox has every pin above its floor that A sees, unless a pull row leads to the pin. It may
// have more: deleted pins, pins of owners whom A no longer follows, pins that an outbox has too. An
// entry of an inbox or outbox is only a candidate. Whether A sees the pin is decided when A reads,
// by the pin and the relation to its owner at that position. So a deletion, an edit, an unfollow, a
// mute, settings of a follow or an excluded board change no inbox, and take effect on the next
// page.
//
//   - Inboxes are in memory and are made from outboxes. The first page of a reader merges outboxes, and the inbox learns what the page has merged
//     (package inboxcache). From then on pins are pushed to the inbox, for as long as its reader comes back now and then.
//   - When a reader begins to follow, the reader's inbox is dropped, because it lacks older pins. It is also dropped when a pin is moved to a board
//     that the reader follows, and when history about the pins of a followed owner arrives. The next page begins a new one.
//   - An inbox that has grown beyond [Settings.Keep] by a quarter is trimmed, which raises its floor.
//   - An owner who has more than [Settings.Threshold] followers in a partition is pulled there. Each of these followers gets a pull row once, and
//     from then on a post costs the same for any number of followers. When only half as many are left, pins are pushed again (regions.go,
//     pulls.go).
//
// The rows follow from the log alone: two builds have the same rows (I4). No row says what is in
// memory.
//
// # Partitions
//
// Pins and outboxes are in the partition of their owner. Read markers, inboxes and pull rows are in
// the partition of the reader. So are the relations of the reader to owners: a fold may read no
// other store, so the inbox folds the out-half of the graph into its own ([graph.NewOutEnds]).
//
// A post is delivered to all partitions. In each, the regions of its owner and board list the
// followers. It is pushed by what the event says, because the facts about the pin are in another
// partition. If the event repeats a pin that lives already, this leaves a candidate that no page
// shows. An event of history drops the inboxes of all who have a relation to its owner, because it
// may put the pin on any board, and at another time than its own. Each partition decides by itself
// (I13).
//
// # Pins and history
//
// A pin lives from its creation to its deletion, or to the deletion of its board. History may
// arrive after live facts, although it comes before them in the order of facts. So a pin keeps its
// live facts until no history can matter any more. One function derives the state of a pin from its
// facts (package pinstore).
//
// # Heat
//
// Plays, likes and scores are folded by counters alone, which remembers every score of the last
// hour of log time. A feed in the order Trending ranks its newest [Feed.MaxRanked] pins. All pages
// of a session use the scores at the position where the session began ([Heat]).
//
// # Where things are
//
//	keys.go      all rows, in one table
//	pins.go      changes the facts of a pin and the rows that follow from them
//	push.go      delivers events to inboxes
//	regions.go   finds the users whom a post concerns, and decides which owners are pulled
//	pulls.go     pull rows: the outboxes that are merged with an inbox
//	readmarker.go  how far a reader has read
//	erase.go     the deletion of a user
//	query.go     the questions and their types
//	feed.go      iterates over the pins of a feed; merge.go merges inbox and outboxes for it
//	newest.go, trending.go  pages in the two orders; page_cursor.go encodes where they continue
//	absence.go   decides whether a reader sees a pin
//	explain.go   reports why a pin is in a feed, or why not
//	region_users.go  users of a region that a fold reads before it writes
//	package inboxcache: inboxes, and the newest pins of outboxes, in memory
package inbox
