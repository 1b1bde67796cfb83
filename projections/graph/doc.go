// Package graph is the projection that knows who follows whom: users, boards, exclusions, blocks, mutes and hidden re-pins, with
// since-times, lists newest first and counts.
//
// # Two ends
//
//	                 A follows B
//	home A: out-end                      home B: in-end
//	A B → facts                          part(B) A B → facts
//	    │                                    │
//	lists of A: follows, boards,         lists of B: followers; of its boards:
//	exclusions, blocks, mutes            followers, excluders
//	counts of A                          counts of B and of its boards
//
// An edge is kept twice: at the home of A, who follows, and at the home of B, who is followed, each time with all facts: the
// follows and unfollows, the blocks in both directions, the same of each board of B. So either end finds what holds by itself,
// by the same function, and no fold reads the rows of another home (I13). An event is delivered to both homes; a store that
// holds one of them does its half. A block changes the edges in both directions: up to four halves. Mutes and hidden re-pins are
// known to the out-end alone.
//
// A user who is deleted must be found from the other end. An out-end has a row in the region of B (B part(A) A), so that the end of B
// finds all out-ends in one walk, whatever partitions a store holds. An in-end is its own index: its key has A first, behind the
// partition of B, so that the end of A finds it with a seek a partition. In-ends that no list of B shows have a row that leads to
// them. All this holds for board edges, too.
//
// What decides at every home which events are void, every store has: tombstones of users, and the boards that were ever deleted,
// with whether they live again. Both are keyed hashes.
//
// # The loop
//
//	event ──► facts of an edge ──► what holds ──► rows and counts
//	          (facts.go)           (derived)      (half.go: the difference before/after)
//
// An edge (A, B) keeps the latest fact of each kind that A has stated about B: the live ones and the backfilled ones
// apart, since all history comes before all live facts, in whatever order it arrives. A board edge (A, B, b) does
// the same for one board. The relation is a pure function of these facts: [edge.explicit], [boardEdge.relation].
//
// An event changes facts only. [txn.write] then compares what held before with what holds now, at one end, and moves the rows
// of the lists and the counts by the difference. There is one such place, so a list and its count cannot come apart (I7), and a
// late piece of history needs no code of its own. That the lists of the two ends agree is held by the model (TestModel), and in
// service by the auditor.
//
// # What an event costs
//
// An event reads the edge at each end and at most two counts; if the two users have board edges, those, too, where the event
// may change more than one of them. It never walks a user's followers or exclusions; a list that is no longer short, or is again,
// is written or removed once (short.go). Only the end of a board or user does, in steps (erase.go).
//
// A follow of a user is not written for each of the user's boards: the list of those for whom
// a board appears is merged on reading from the owner's followers and the board's own, less the excluders, and its
// count is a sum of three.
//
// # What a question asks
//
// Rows of A answer which users A follows, blocks or mutes, how A follows B, and what is between A and B. Rows of B answer who follows B or
// a board of B, for whom a board appears, and whether A follows B as B sees it. How A follows a board of B takes both, since only B
// knows whether the board exists; so do the followers of B whom A follows.
//
// # Where things are
//
//	keys.go    the rows, in one table
//	facts.go   the values of edges and boards, and what is derived from them
//	half.go    from facts to rows, at either end; outend.go, inend.go: what only one of them has
//	graph.go   the projection; users.go, boards.go, erase.go: one group of events each
//	short.go   lists that are sorted when they are read; counts.go
//	read.go    point queries; list.go: lists
//	out.go     the out-ends alone, for a projection that folds them into its own store; embed.go
//
// A new index goes into keys.go as a tag, into [txn.writeOut], [txn.writeIn] or their like for boards beside the rows that change
// with it, and into [Queries.iterators] as a list.
//
// # Readings
//
// Where docs/semantics.md leaves a choice, the model and the fold make the same one: the default board of a user always exists and is not
// listed; a board's time is that of the fact that began its present life; its title is that of the latest creation
// in that life; a deletion counts also for a board that was never mentioned, and removes all facts about the board;
// blocks and mutes have since-times by the rule of follows; who follows both a board and its owner is reported as
// following the board.
package graph
