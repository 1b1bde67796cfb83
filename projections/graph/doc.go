// Package graph is the projection that knows who follows whom. It folds users, boards, exclusions,
// blocks, mutes and settings of follows, and answers with the times since when they hold, with
// lists that begin with the newest entry, and with counts.
//
// # Words
//
// An edge holds all facts of one user about another: follows, blocks, mutes. The first user is
// called the follower and the second the followee, or A and B in drawings, even where the edge
// holds a block and no follow. A board edge holds the facts of the follower about one board of the
// followee. A fact is what one event said, with its place in the order of facts; what holds now,
// such as "A follows B since noon", is derived from the facts. A follow is explicit if A follows B,
// and implicit if A follows only boards of B. An exclusion is a board that A unfollowed while
// following its owner.
//
// # Two ends
//
//	                 A follows B
//	home of A: out-end                   home of B: in-end
//	A B → facts                          A B → facts
//	    │                                    │
//	lists of A: follows, boards,         lists of B: followers; of its boards:
//	exclusions, blocks, mutes            followers, excluders
//	counts of A                          counts of B and of its boards
//
// An edge is stored twice: at the home of A (the out-end) and at the home of B (the in-end). Both
// ends have all facts: the follows and unfollows, the blocks in both directions, and the same for
// each board of B. Each end therefore derives what holds on its own, with the same functions, and
// no fold reads rows of another home (I13). An event is delivered to both homes, and a store that
// holds one of them updates that end. A block changes the edges in both directions, which is up to
// four ends. Mutes and settings of follows are stored at the out-end only, because they change
// nothing for B.
//
// When a user is deleted, the fold must find all edges from the other end. For each out-end there
// is a row under the region of B (B part(A) A). A region is a group of rows that are sorted by one
// user and belong to the homes of others, so one walk over the region of B finds every out-end that
// points to B, whatever partitions the store holds. In-ends need no such rows: they are in the
// first shard of the partition of B, and their keys begin with A, so one seek in each partition
// finds those of A. The lists of B lead to the in-ends at the home of B, and in-ends that no list
// of B shows have a row of their own that leads to them. The same holds for board edges.
//
// Which events are void must be decided alike at every home. Every store therefore has the
// tombstones of deleted users, and a row for each board that was ever deleted, which says whether
// the board was created again. Both are stored under keyed hashes.
//
// # The loop
//
//	event ──► facts of an edge ──► what holds ──► rows and counts
//	          (facts.go)           (derived)      (edge_end.go: the difference before/after)
//
// An edge (A, B) keeps the latest fact of each kind that A has stated about B. Live and backfilled
// facts are kept apart, because all history comes before all live facts, in whatever order it
// arrives. A board edge (A, B, b) does the same for one board. What holds is a pure function of
// these facts: [edge.explicitSince] and [boardEdge.relation].
//
// An event changes facts only. [eventFold.writeEnd] then compares what held before with what holds
// now, at one end, and changes list rows and counts by the difference. This is the only place that
// does so, so a list and its count always agree (I7), and history that arrives late needs no code
// of its own. That the lists of the two ends agree with each other is checked by the model
// (TestQueriesAgreeWithModel), and in production by the auditor.
//
// # What an event costs
//
// An event reads the edge at each end and at most two rows of counts. It also reads the board edges
// of the two users if they have any and the event may change more than one of them. It never walks
// over the followers or exclusions of a user. The list of a user's follows is written or removed as
// a whole when the number of edges crosses a threshold (following_list.go). Only the deletion of a
// board or user walks over many rows, and it does so in steps (erase.go).
//
// A follow of a user does not write rows for each of the user's boards. The list of users for whom
// a board appears is merged when it is read: the owner's followers and the board's own, without the
// excluders. Its count is a sum of three counts.
//
// # Which rows a query reads
//
// Rows of A answer which users A follows, blocks or mutes, how A follows B, and what holds between
// A and B. Rows of B answer who follows B or a board of B, for whom a board appears, and whether A
// follows B as B sees it. How A follows a board of B takes rows of both, since only B knows whether
// the board exists. So does the list of B's followers whom A follows.
//
// # Files
//
//	keys.go            all rows in one table, and their keys
//	facts.go           the values of edges and boards, and what is derived from them
//	edge_end.go        from facts to rows, at either end
//	out_end.go         rows that only the out-end has
//	in_end.go          rows that only the in-end has
//	graph.go           the projection; users.go, boards.go, erase.go: one group of events each
//	following_list.go  the list of a user's follows, which is stored only while it is long
//	counts.go          counts of users and boards
//	read.go            point queries; list.go: lists
//	out_graph.go       a graph of out-ends only, for a projection that needs follows in its own store; embed.go: its use
//	cached*.go         decoded edges in memory
//
// To add an index: add a tag and its key to keys.go; write its rows in [eventFold.writeOutEnd] or
// [eventFold.writeInEnd] (for board edges in [eventFold.writeOutBoardEdge] or
// [eventFold.writeInBoardEdge]), beside the rows that change with them; and open it as a list in
// [Queries.listIterators].
//
// # Where the semantics leave a choice
//
// Where docs/semantics.md leaves a choice, the model and the fold choose the same. The default
// board of a user always exists and is not listed. A board's time is that of the fact that began
// its present life, and its title is that of the latest creation since then. A deletion counts also
// for a board that was never mentioned, and removes all facts about the board. Blocks and mutes
// have since-times by the rule for follows. A user who follows a board and its owner is reported as
// following the board.
package graph
