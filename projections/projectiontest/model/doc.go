// Package model is the oracle of all projections: what the log says about follows, boards, blocks, mutes, pins, reactions, plays
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
//	pins and feeds     pins.go: the life of every pin, told anew; heats.go: reactions, and the scores of items
//	plays and serves   seen.go: what a user has seen; counts.go: tallies, and items by score
//
// The rules, and the readings where they leave a choice, are docs/semantics.md.
package model
