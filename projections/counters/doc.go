// Package counters is the projection that counts, and that ranks what is counted by heat.
//
// # What is counted
//
// Counts of relations and pins are the lengths of lists that other projections keep (I7). Nothing is read from those: counters
// folds the same events on its own, by rules of its own where that is possible, so that the two audit each other. Plays, likes
// and re-pins of items are integers that nobody else has.
//
//	              ┌──► pairs, edges, boards ──► followers, followees, boards … of users and boards
//	              │    (relations.go)
//	event ──Apply─┼──► pins ───────────────────► pins of users and boards
//	              │    (pins.go)      │
//	              │                   ▼
//	              │      where each item is shown ──┐
//	              │      (placements.go)            ▼
//	              └──► plays, likes ──► heat ──► versions of scores in lists by heat ◄── pages (hot.go)
//	                   (plays.go,       (heat.go)   │ everybody's, an owner's, a board's
//	                    likes.go)                   ▼
//	                                    those that ended: dropped after an hour (versions.go)
//
// At a position every count is exact. What a count is derived from is kept as far as late history may still need it: facts come
// in any order, and all history is before all live facts (docs/semantics.md). An event that ends many things, the
// deletion of a board or user, is folded in steps, between which rows and counts agree.
//
// # Lists by heat
//
// Scores are those of the home feed (package heat): sums that are never decayed, of which a page reads the logarithm. A list is
// rows in its order, as a database with several versions of each row has them:
//
//	0x01 ^score item ^from → to
//
// A change of a score ends one version and begins another. A page reads, in the order of keys, the versions that hold at the
// position where its session began: they hold still whatever is played meanwhile. What is in the list is as of now (I9). The
// reasoning stands in placements.go.
//
// An item that is shown on very many boards would make a change of its score that many rows. Above [Settings.Widespread] its
// rows in the lists of owners and boards name it without a score, and a page of such a list looks the score up, for each
// widespread item in it. So a score that changes costs a bounded number of rows, and a page as many rows as it has items, more
// by the versions in between that do not hold and by the widespread items of the list.
//
// # Where things are
//
//	counters.go       settings, what is read, the dispatch
//	relation_keys.go  the rows of relations, in one table; item_keys.go: the rows of everything else
//	relations.go      users and boards that follow, exclude, block: relation_pairs.go, edges.go, boards.go
//	pins.go           from what is kept of a pin (package pinfacts) to rows; likes.go, plays.go, item_counts.go: tallies
//	heat.go           heat and its changes; versions.go: versions, and their end; placements.go: in which lists
//	erase_items.go    the end of a user; erase_relations.go
//	query.go          the questions; query_relations.go; hot.go: pages of lists; mark.go: where they go on
//	inspect.go        rows in words; relation_inspect.go
package counters
