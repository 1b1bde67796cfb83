// Package model is the oracle of all projections: what the log says about follows, boards, blocks, mutes, pins, likes, plays
// and serves, computed the naive way. It keeps no state between events. [New] takes the whole history again at every
// position, strikes out what does not count, sorts the rest once, and every question is then answered by reading the
// definitions below over that list. It is slow and meant to be obviously right; the folds that serve real queries are tested
// against it and share nothing with it but the type of an event, and the arithmetic of heat.
//
//	history, in log order
//	  │  accept.go     strike out: repeated or closed imports, what a deletion or a block makes void
//	  ▼
//	facts, in the order of facts
//	  │  facts.go      all backfills by (time, removals last, larger bytes last), then live facts by log order
//	  ▼
//	relations          relations.go: the definitions, one function each
//	  ▼
//	lists and counts   lists.go: newest first, equal times by id
//	pins and feeds     pins.go: the life of every pin, told anew; heats.go: likes, and the scores of items
//	plays and serves   seen.go: what a user has seen; counts.go: tallies, and items by score
//
// # The rules
//
// For a user A, a user B and a board b of B, let F and U be the latest follow and unfollow of B by A, f and u those of
// b by A, and D the latest deletion of b. A later fact is greater; a missing one is less than all.
//
//   - A follows B explicitly if F > U. Since: the first live follow after the last live unfollow; but if there is no
//     live unfollow and the backfills alone say followed, the latest backfilled follow.
//   - A follows b if f > u, f > U and f > D. Since: likewise, any of u, U, D ending it.
//   - A excludes b if u > f, u > U, u > F, u > D and A follows B explicitly. Since: u.
//   - A follows B implicitly if not explicitly and at least one board of B. Since: the earliest of those boards.
//   - b appears for A, who is then a follower of b, by a follow of b or by an explicit follow of B without exclusion.
//     Since: the later, if both.
//
// A repeat of what holds is not newer: F, f and u are the first live fact after the last live fact that ended the
// state, or the latest backfilled where there is no live one. A block by either counts as an unfollow of each by the
// other. While a live block stands, live follows between the two are void; while the latest block fact in either
// direction is a block, backfilled or not, no follow and no exclusion between the two holds. The first mention of a
// board creates it. On a deleted board live follows, unfollows and pins are void until it is created again. A deleted
// user starts afresh and is closed to backfills for ever.
//
// A pin lives from its creation, on the board and with the item and attributes given there, to its deletion, or to that of
// the board that it is on. A creation of a living pin and a move of one that does not live do nothing; a move keeps the
// time. All of this in the order of facts: of several backfilled creations the first counts, and a live deletion of a board
// ends what history created there, whenever the history arrives, unless a live move came before.
//
// The feed of A is the living pins on the boards that appear for A, less those of owners whom A mutes or a block separates
// from A; newest first, equal times by owner and pin. By heat: the highest score first, then newest; items without a score
// come last.
//
// A user likes an item if the latest fact about it is a like.
//
// Heat alone follows the order of the log. Every play adds to the item played; a like adds if it is no repeat; a pin_created
// that re-pins adds to the item that it names if the pin did not live before it arrived and does thereafter. What is not
// accepted or void adds nothing, and nothing subtracts. From an item_scored on the score is the one given last.
//
// A user has played an item in a window of W months if there is a play of it, not emptied, whose time is in the calendar month
// (UTC) of the position's log time or in one of the W − 1 before it. The user was served the 100 latest distinct items, each
// where it was served last. A seen_cleared or user_deleted of the user empties all plays and serves before it in the log, and
// all backfilled ones for ever: those that arrive after it are void.
//
// The plays of an item are all that count, ever, and those of a user all since the user was deleted last, if ever. The likes
// of an item are the users who like it now. Its re-pins are those that added to its heat. The list by heat of an owner, or
// of a board, is the items with a score that at least one living pin there shows; that of all is the items with a score.
// Highest score first, equal scores by id. Every other count is the length of a list.
//
// # Where the rules leave a choice
//
// These readings bind every fold as much as this model:
//
//  1. The default board (empty id) always exists. It is never listed or counted among a user's boards, but can be
//     followed and excluded, and has followers, excluders and counts.
//  2. Mentions of a board are board_followed, board_unfollowed, board_created, pin_created (its board) and pin_moved
//     (its target), whether or not the pin itself is accepted. What is void is no mention.
//  3. A board exists since the fact that began its present life. Never deleted: its earliest backfilled mention, or
//     without one its first live mention. After a deletion: the first live board_created after the latest deletion.
//     Deleting a board that does not exist makes it a deleted board all the same. Backfilled mentions of a board that
//     was deleted do nothing.
//  4. The title is that of the latest board_created of the present life; empty if there is none.
//  5. Blocks and mutes are since the first live one after the last live end; but if there is no live end and a
//     backfilled one exists, since the latest backfilled.
//  6. Live blocks end relations at their own time, backfilled ones at their occurred_at. Live unfollows are facts
//     also while a block stands.
//  7. The non-repeat rule of F, f and u knows live facts only: a live follow of what only backfills say is followed
//     is newer than an exclusion before it. That keeps the answer independent of when a backfill arrives.
//  8. Where live facts of a kind exist but all lie before the fact that ended them, they are still later than every
//     backfill: a board unfollowed live and never followed again stays unfollowed, whatever is imported.
//  9. The since of an exclusion is that of u even if backfills already said excluded: its first live fact, if any.
//  10. An owner has no relation to the own boards, and nobody to a board that does not exist.
//  11. In the list of those who follow a board itself, and in the list of followed boards, since is that of the board
//     follow; the later of both stands where the question is whether the board appears.
//  12. The deletion of a user takes along every relation of and towards the user and the user's boards, with their
//     deletions. Boards of others that only this user mentioned live on, with their times.
//  13. The highest offset of an import is that of all its backfills of the kind so far, also of those that a deleted
//     user or a seen_cleared made void.
//  14. The time of a play is its log time, of a backfilled one its occurred_at. The window ends with the month of the log
//     time of the position, which is that of the last slot of its envelope, whatever is in it: not with that of the user's
//     last play.
//  15. Retention is not modelled, because it cannot be seen: a window is no longer than the retention of R months, and log
//     time never runs back. So a play R months or more before the month in which it arrives, or before that of any
//     later position, is in no window from there on, and may be forgotten or never stored.
//  16. A seen_cleared empties what was seen, and nothing else: tallies, likes and heat stay, and count also the
//     backfilled plays that arrive after it. A backfilled play or serve hence says something about what its user has seen
//     only while the whole log has no seen_cleared and no user_deleted of this user.
//  17. Serves are in the order of facts, all backfilled ones before all live ones; the items of a serve are in the order
//     in which it names them, the first as the newest. Backfilled serves of one moment are as one: their items
//     stand by their places, then by id, whatever arrived first. An item that is named twice stands where it is newest. Serves
//     have no months.
//  18. Tallies count repeats: a user who plays an item twice has two plays, and so has the item. The deletion of a user
//     ends the user's own tally and likes; the plays and re-pins of items stay.
//  19. Of likes the tally follows the order of facts, unlike heat: a like that history brings after the live unlike of it adds
//     nothing here, and a like that was unliked does not count.
//  20. A re-pin counts for the item that its pin_created names and when it arrives, also where other history is what the pin
//     shows then or later.
//  21. A pin shows an item while it lives, with or without followers, on any board of its owner. Mutes and blocks hide
//     nothing from lists by heat. An item_scored gives a score to an item that was never played.
package model
