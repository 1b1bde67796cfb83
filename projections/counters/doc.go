// Package counters is the projection that counts, and that ranks what is counted by heat.
//
// # What is counted
//
// Pins of users and boards, plays, likes and re-pins of items, plays of users. Relations are counted by the graph.
//
//	              ┌──► at the owner's home: pins ──► pins of users and boards, what each owner shows ─┐
//	              │    (pins.go)                                                                     ▼
//	event ──Apply─┤                                                                       pages (trending.go)
//	              └──► at the item's home: plays, likes, re-pins, who named it                       ▲
//	                   (plays.go, likes.go, candidates.go)                                           │
//	                              └──► heat ──► versions of scores in lists by heat ─────────────────┘
//	                                   (heat.go)   │ everybody's, an owner's (lists.go)
//	                                               ▼
//	                                   those that ended: dropped after an hour (versions.go)
//
// At a position every count is exact. The facts behind a count are kept for as long as late history may need them: facts
// come in any order, and all history is before all live facts (docs/semantics.md). An event that ends many things, the
// deletion of a board or user, is folded in steps, between which rows and counts agree.
//
// # Homes
//
// Every row has one home (I13). A pin is its owner's: the owner's home alone knows whether it lives, on which board, and what
// it shows. Plays, likes, re-pins and heat are the item's; so is the sort key of a like in the list of its user. The item's home
// gets the creation of a pin, and never its end: it records that the owner has named the item once. Whether a list shows the item is
// looked up with the owner when a page is read. Every store has the users and boards that were deleted (gone.go).
//
// # Lists by heat
//
// Scores are those of the home feed (package heat): sums that are never decayed, of which a page reads the logarithm. A list
// is rows in its order, as a database with several versions of each row has them:
//
//	0x01 ^score item ^from → to
//
// A change of a score ends one version and begins another. A page reads, in the order of keys, the versions that hold at the
// position where its session began: plays in the meantime do not move them. Membership in the list is as of now (I9). The
// reasoning is in lists.go.
//
// A list of up to 256 pins is computed from the pins when it is read, and no score changes a row of it. The home of an item
// does not know how many pins an owner has. It knows how many of them named items of its own partition: while these are few,
// the owner's list has the items by their names, without scores; when they are more, by their scores. So a score that changes
// costs the two rows of everybody's list, and two for each owner of very many items who named it, of at most 64 such owners.
// A board has no rows of its own: its list is its owner's, of which the page shows what is on the board.
//
// # Where things are
//
//	counters.go       settings, what is read, the dispatch; route.go: to which homes
//	keys.go           the rows, in one table; rows.go: many of them
//	pins.go           from what is kept of a pin (package pinfacts) to rows; candidates.go: what named an item
//	likes.go, plays.go, counts.go: tallies
//	heat.go           heat and its changes; versions.go: versions, and their end; lists.go: in which lists
//	erase.go          the end of a user; gone.go: what is known of it afterwards
//	query.go          the questions; trending.go: pages of lists; trending_walk.go: of long ones; page_cursor.go: where they continue
//	inspect.go        rows in words
package counters
