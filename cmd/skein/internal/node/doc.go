// Package node is the life of a node of a cluster. It tells the other nodes what this one serves, and makes the stores of the process hold
// the partitions that the table of the cluster (package placement) gives to the node. The package service wires it; the gateway asks it
// for the other nodes, and it asks the gateway to carry rows between nodes.
//
// Two tables say what happens. They are pure, and tests walk them completely: nodeTransitions (state.go) and changeTransitions (change.go).
// The effects are methods of [Node] and of changer, each with one Run, and nothing else changes the states. What remains of a state in the
// process that starts next is only what is in the bucket and on the disk.
//
// # The states of a node
//
//	   start
//	     │
//	     ▼
//	┌─────────┐  every store has been at the head of the log, or has failed;
//	│ Joining │  and the node reads back what it announced after that
//	└────┬────┘
//	     │ report that the process is ready
//	     ▼
//	┌─────────┐  every 2 s, and when partitions have changed:
//	│ Serving │  announce what the stores hold and the node wants
//	└────┬────┘
//	     │ the process is to stop (also from Joining):
//	     │ withdraw all partitions
//	     ▼
//	┌─────────┐
//	│ Leaving │  until the process ends, nothing is announced but how far the stores are
//	└─────────┘
//
// A node announces partitions only while all of its stores work and have been at the head of the log, in whichever state it is. A store that
// fails later withdraws them until it is healed, without a change of the state: the node still takes calls, and passes them on.
//
//   - Joining → Serving: what the others know of this node is what its stores hold, so a call that it takes finds every partition that
//     some node serves. Nothing is announced before the stores are folds of the log up to where it was at the start (I1).
//   - → Leaving: the others are told before the stores stop, so calls go to other copies. Leaving is final: an announcement of partitions
//     after it would send calls to stores that are closed.
//   - A process that is killed withdraws nothing. The others expire it, or a new process of its name takes its key, begins with Joining, and
//     announces nothing until its stores have caught up. No state is on disk, so none can disagree with the stores.
//
// A drain is no state of a node. It is a key of the bucket, by which the table gives the node nothing: the node gives its partitions up as
// any others, and stays Serving.
//
// # What to change
//
// When the table or the members have changed, the first line that applies counts (situation.decide):
//
//	a user was erased                               build the stores anew
//	a store lacks what is wanted, or stores differ  change to what is served and what is wanted
//	something is held and not wanted for 10 s       change to what is wanted
//	something is held and not wanted                announce that it is not served, and wait
//	nothing of that                                 wait
//
// A node wants what the table gives it, and what it serves until every node to which the table gives it serves it. So a partition is
// dropped only after as many nodes as the table says have announced it, and ten seconds after this node has withdrawn it.
//
// # The states of a change of partitions
//
// One change of a node is at most one change of each store. The stores go through the states independently, each with a next generation
// (package live), and calls go by the partitions that all stores hold.
//
//	another set is to be held
//	           │
//	           ▼
//	      ┌─────────┐      fails: the next generation is deleted
//	      │ Copying ├──────────────────────────────────────────▶ Unchanged
//	      └────┬────┘                                               ▲
//	           │ the next generation has all rows of the set        │
//	           ▼                                                    │
//	    ┌────────────┐     fails: the next generation is deleted    │
//	    │ CatchingUp ├──────────────────────────────────────────────┘
//	    └──────┬─────┘
//	           │ it shows what the old one has shown, and serves
//	           ▼
//	      ┌─────────┐      fails: the generation from before stays,
//	      │ CutOver │      and the next change deletes it
//	      └────┬────┘
//	           │ the generation from before is deleted
//	           ▼
//	      ┌─────────┐
//	      │ Dropped │
//	      └─────────┘
//
// From Unchanged, Dropped and a CutOver that has failed, another change begins with Copying. What each transition keeps:
//
//   - Unchanged → Copying: nobody else builds generations of the stores meanwhile, such as an erasure or a rebuild does (I12, I15).
//   - Copying → CatchingUp: the next generation holds the rows of its partitions and no others (I13), as they are at one position, whether
//     they were in the store before, copied from other nodes, or built from the log (I3). The generation that serves is not touched.
//   - CatchingUp → CutOver: the fold continues at the position of the copy, so that no event is left out (I14). The next generation shows
//     what the old one has shown, so positions do not go back for a reader (I9), and its rows are on disk before the file of generations
//     names it (I3). A crash leaves the old set before that file is written, and the new set after.
//   - CutOver → Dropped: a generation is closed when its views are, so no row is deleted that a view could still read.
//   - After a failure, decide looks again in five seconds, at what each store holds. It does the same after a restart: the start removes a
//     generation that was not cut over to, so the store holds the old set, and a store that was in CutOver holds the new one. The second
//     line of the list above then brings stores that differ to one set.
//
// A change goes on while the node is Leaving, until the end of the process interrupts it as a crash would.
package node
