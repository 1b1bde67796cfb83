// Package graph is the projection that knows who follows whom: users, boards, exclusions, blocks and mutes, with
// since-times, lists newest first and counts.
//
// # The loop
//
//	event ──► facts of an edge ──► what holds ──► rows and counts
//	          (facts.go)           (derived)      (pair.go: the difference before/after)
//
// An edge (A, B) keeps the latest fact of each kind that A has stated about B: the live ones and the backfilled ones
// apart, since all history comes before all live facts, in whatever order it arrives. A board edge (A, B, b) does
// the same for one board. What holds is a pure function of these facts: [edge.explicit], [boardEdge.relation].
//
// An event changes facts only. [txn.write] then compares what held before with what holds now and moves the rows
// of the lists and the counts by the difference. There is one such place, so a list, its mirror on the other side
// and its count cannot come apart (I7), and a late piece of history needs no code of its own.
//
// # What an event costs
//
// An event reads its edge, at most two counts, and the board relations that hold between the two users, if any. It
// never walks a user's followers or exclusions; a list that is no longer short, or is again, is written or
// removed once (short.go). Only the end of a board or user does, in steps (erase.go).
//
// Who follows the owner of a board is not written down for each of the owner's boards: the list of those for whom
// a board appears is merged on reading from the owner's followers and the board's own, less the excluders, and its
// count is a sum of three.
//
// # Where things are
//
//	keys.go    the rows, in one table
//	facts.go   the values of edges and boards, and what is derived from them
//	pair.go    from facts to rows
//	graph.go   the projection; users.go, boards.go, erase.go: one group of events each
//	short.go   lists that are sorted when they are read; counts.go
//	read.go    point queries; list.go: lists
//
// A new index goes into keys.go as a tag, into [txn.write] or [txn.writeChange] beside the rows that change with it,
// and into [Queries.sources] as a list.
//
// # Readings
//
// Where the design leaves a choice, model and fold share one: the default board of a user always exists and is not
// listed; a board's time is that of the fact that began its present life; its title is that of the latest creation
// in that life; a deletion counts also for a board that was never mentioned; blocks and mutes have since-times by
// the rule of follows; who follows both a board and its owner is reported as following the board.
package graph
