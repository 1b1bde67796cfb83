// Package model is the oracle for all projections. It answers the same questions about a history of
// events, computed in the simplest way.
//
// The model keeps no state between events. [New] reads a whole history, removes the events that do
// not count, and sorts the rest once. Each question is then answered by reading the definitions
// below over the sorted list. This is slow, and meant to be obviously right. The folds that answer
// real queries are tested against it. They share with it only the type of an event and the
// arithmetic of heat.
//
//	history, in log order
//	  │  accept.go     remove: repeated or closed imports, and what a deletion or a block makes void
//	  ▼
//	facts, in the order of facts
//	  │  facts.go      all backfills by (time, removals last, larger bytes last), then live facts by log order
//	  ▼
//	relations          relations.go: the definitions, one function each
//	  ▼
//	lists and counts   lists.go: newest first, equal times by id
//	pins and feeds     pins.go: whether each pin lives; heats.go: reactions, and the scores of items
//	plays and serves   seen.go: what a user has seen; counts.go: tallies, and items by score
//
// docs/semantics.md has the rules, and says how they are read where they leave a choice. Its words:
// a live fact is an event without a source; a backfill is history from an import; the order of
// facts has all backfills before all live facts.
package model
