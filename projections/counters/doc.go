// Package counters is the projection that counts pins, plays, reactions and re-pins, and that ranks
// items by heat.
//
// # What is counted
//
// It counts pins of users and boards; plays, reactions and re-pins of items; and plays by users.
// The graph counts relations between users.
//
//	              ┌──► at the owner's home: pins ──► pins of users and boards, what each owner shows ─┐
//	              │    (pins.go)                                                                     ▼
//	event ──Apply─┤                                                                       pages (trending.go)
//	              └──► at the item's home: plays, reactions, re-pins, who named it                   ▲
//	                   (plays.go, reactions.go, candidates.go)                                       │
//	                              └──► heat ──► versions of scores in lists by heat ─────────────────┘
//	                                   (heat.go)   │ the global list, lists of owners (lists.go)
//	                                               ▼
//	                                   ended versions: dropped after an hour (versions.go)
//
// At a position of the log every count is exact. The facts behind a count are kept for as long as
// late history may need them: facts arrive in any order, and all history comes before all live
// facts (docs/semantics.md). An event that ends many things, such as the deletion of a board or
// user, is folded in steps, and rows and counts agree between the steps.
//
// # Homes
//
// Every row has one home (I13). A pin is at its owner's home, which alone knows whether the pin
// lives, on which board, and which item it shows. Plays, reactions, re-pins and heat are at the
// item's home, and so is the list of the items to which a user reacted. The item's home gets the
// creation of a pin, and never its move or end, because those events do not name the item. It
// therefore records only that the owner has named the item once; the owner's home decides whether a
// list shows the item, when a page is read. Every store has a row for each deleted user, and for
// each board that was ever deleted (deletions.go).
//
// # Lists by heat
//
// A list by heat orders items by their scores, which are those of the home feed (package heat):
// sums that never decay, of which a page reads the logarithm. There is a global list of all items
// with a score, and a list for each owner and board. The rows of a list are versions, as in a
// database that keeps several versions of each row:
//
//	0x01 ^score item ^from → to
//
// A change of a score ends one version and begins another. A session is the pages of one list that
// a caller reads one after the other. Its pages read, in the order of keys, the versions that hold
// at the position where the session began, so plays since then do not move items. Which items are
// in the list is decided as of now (I9). lists.go explains why this works.
//
// A list of up to 256 pins is computed from the pins when it is read, and a score that changes
// writes no row for it. The home of an item does not know how many pins an owner has, but it knows
// how many of them named items of its own partition. While these are few, the owner's list has the
// items by name, without scores; when they are more, by score. So a score that changes writes two
// rows for the global list, and two for each list of an owner with very many items, for at most 64
// owners. A board has no list rows of its own: its page reads the list of the owner and shows what
// is on the board.
//
// # Files
//
//	counters.go       settings, kinds of events, dispatch; route.go: to which homes an event goes
//	keys.go           all rows in one table, and their keys; rows.go: walks over many rows
//	pins.go           from the facts of a pin (package pinstore) to rows; candidates.go: which pins named an item
//	reactions.go, reaction_weights.go: reactions, and what each kind adds to heat
//	plays.go, counts.go: plays, and rows of counts
//	heat.go           heat and scores; versions.go: versions and their end; lists.go: which lists an item is in
//	erase.go          the end of a user; deletions.go: which users and boards were deleted
//	query.go          point queries; trending.go: pages of lists by heat; trending_walk.go: pages of long ones;
//	                  gather.go: pages from several nodes; page_cursor.go: where a list continues
//	inspect.go        descriptions of rows for people
package counters
