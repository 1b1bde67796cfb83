// Package graph is the projection that knows who follows whom. It folds events about follows,
// boards, blocks, mutes and settings of follows. It answers whether a relation holds and since
// when, with lists that begin with the newest entry, and with counts.
//
// # Words
//
//   - A fact is what one event states, such as "A followed B at noon". Facts are live or backfilled
//     (imported history).
//   - The order of a fact is its place among all facts: backfilled facts come first, in the order
//     of their times, then live facts, in the order of the log. A later fact overrides an earlier
//     one.
//   - A fact or event is void if it changes nothing, because a block, a deletion or a tombstone
//     says so. A repeat is a live fact that states what already holds; it does not change since
//     when that holds.
//   - An edge has all facts of one user about another. The first user is called the follower and
//     the second the followee, or A and B in drawings, even if the edge has a block and no follow.
//   - A board edge has all facts of the follower about one board of the followee. The followee is
//     then also called the owner.
//   - A relation is what holds now, such as "A has followed B since noon". It is derived from
//     facts.
//   - A follow is explicit if A follows B, and implicit if A follows only boards of B. An exclusion
//     is the relation to a board that A unfollowed while following its owner.
//   - The home of a user is the partition that has the rows of the user. A store holds some
//     partitions, or all of them.
//   - A list of rows has a row for each entry, sorted by time. A list that a query returns is one
//     list of rows, or a merge of two.
//   - A mention of a board is an event that names the board. The first mention creates it.
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
// ends have all facts about follows and blocks, in both directions for blocks, and about boards. So
// each end derives the relations on its own, with the same functions, and no fold reads rows of
// another home (I13). An event is delivered to both homes, and a store that holds one of them
// updates that end. A block changes the edges in both directions, which is up to four ends. Mutes
// and settings of follows are stored at the out-end only, because they change nothing for B.
//
// When user B is deleted, the fold must find all edges from and to B:
//
//   - Out-ends of edges to B are at the homes of others. For each there is a row in the region of
//     B. A region is a group of rows that are in the shard of one user but belong to the homes of
//     others, so one walk over the region of B finds them, whatever partitions the store holds.
//   - In-ends of edges from B are at the homes of others, too. They are in the first shard of a
//     partition, and their keys begin with B, so one seek in each partition finds them.
//   - In-ends of edges to B are found by the lists of B's followers. An edge that is in none of
//     them, such as one with only a block, is unlisted, and has a row of its own for this purpose.
//   - Out-ends of edges from B begin with B.
//
// The same holds for board edges when a board is deleted.
//
// Which events are void must be decided alike at every home. So every store has the tombstones of
// deleted users, and a row for each board that was ever deleted, which says whether the board was
// created again. Both are stored under keyed hashes, which do not reveal ids.
//
// # The fold of an event
//
//	event ──► facts of an edge ──► relations ──► rows and counts
//	          (facts.go)           (facts.go)    (edge_end.go: the difference before/after)
//
// An edge (A, B) has the latest fact of each kind that A has stated about B. Live and backfilled
// facts are stored apart, because all history comes before all live facts, in whatever order it
// arrives. A board edge (A, B, b) does the same for one board. The relations are pure functions of
// these facts: [edge.explicitSince] and [boardEdge.relation].
//
// An event changes facts only. [eventFold.writeEnd] then compares the relations before the event
// with those after it, at one end, and changes list rows and counts by the difference. No other
// function does so, so a list and its count always agree (I7), and history that arrives late needs
// no code of its own. That the lists of the two ends agree with each other is checked by the model
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
//	facts.go           facts of edges, board edges and boards, and the relations derived from them
//	row_encoding.go    how these facts are stored as the values of rows
//	graph.go           the projection: which function folds which event
//	users.go           the events about two users: follow, block, mute, settings
//	boards.go          the events that create and follow boards
//	board_deletion.go  the deletion of a board
//	erase.go           the deletion of a user
//	edge_end.go        from changed facts to rows, at either end of an edge
//	out_end.go         rows that only the out-end has
//	in_end.go          rows that only the in-end has
//	counts.go          counts of users and boards
//	following_list.go  the list of a user's follows, which is stored only while it is long
//	timed_mutes.go     the list of mutes that have an end
//	sorted_rows.go     rows of a list that are not stored but sorted in memory
//	read.go            queries about two users, a user and a board, and counts
//	list.go            queries for pages of lists
//	cached*.go         decoded edges in memory, for queries
//	out_graph.go       a graph of out-ends only
//	embed.go           use of a graph by a projection that needs follows in its own store
//	route.go           which partitions an event concerns
//	audit.go           walks and lookups for the auditor, which compares rows with each other
//	inspect.go         descriptions of rows for people
//
// # Adding an index
//
// An index is a new list of rows, such as the mutes of a user sorted in another way.
//
//   - keys.go: add a tag at the end, and its row in the table. List the tag in [Graph.IteratedTags]
//     if its rows are never read by Get.
//   - out_end.go or in_end.go: write the rows in [eventFold.writeOutLists] or
//     [eventFold.writeInEnd], next to the lists that change with it, and for board edges in
//     [eventFold.writeOutBoardEdge] or [eventFold.writeInBoardEdge]. Then deletions need no code of
//     their own, because they remove facts, and the rows follow. If the index has a count, add that
//     to counts.go.
//   - list.go: add a [ListKind], and open the rows in [Queries.listIterators].
//   - inspect.go: describe the rows in rowForms.
//   - graph.go: increase [Graph.Version], so that stores are rebuilt with the index.
//   - ../projectiontest/model: add the list to the model, and compare it in expectModelAnswers
//     (model_test.go).
//
// # Where the semantics leave a choice
//
// Where docs/semantics.md leaves a choice, the model and the fold choose the same. The default
// board of a user always exists and is not listed. A board exists since its first mention, or since
// it was created again after its latest deletion; its title is that of the latest creation since
// then. A deletion counts also for a board that was never mentioned, and removes all facts about
// the board. Since when a block or a mute holds is decided by the rule for follows. A user who
// follows a board and its owner is reported as following the board.
package graph
