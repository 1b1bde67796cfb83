// Package node makes a process a node of a cluster. The node announces to the other nodes which
// partitions they may ask it for. It also changes the partitions that the stores of the process
// hold, so that they become those that the table of the cluster gives to the node. Announcements
// and the table are in a bucket of NATS (package placement). Package service wires the node. The
// gateway gets the list of the other nodes from the node, and the node uses the gateway to copy
// rows from them.
//
// Two tables of state transitions define the behavior: nodeTransitions (state.go) and
// changeTransitions (change.go). They are pure data, and tests go through all of their rows. The
// actions are methods of [Node] and of changer. No state is stored: a process that starts decides
// by what is in the bucket and on the disk.
//
// # The states of a node
//
//	   start
//	     │
//	     ▼
//	┌─────────┐  every store has been at the head of the log, or has failed;
//	│ Joining │  and the node has read back what it announced after that
//	└────┬────┘
//	     │ report that the process is ready
//	     ▼
//	┌─────────┐  every 2 s, and when partitions have changed:
//	│ Serving │  announce the partitions that the stores hold and the node wants
//	└────┬────┘
//	     │ the process is to stop (also from Joining):
//	     │ withdraw all partitions
//	     ▼
//	┌─────────┐
//	│ Leaving │  until the process ends: announce no partitions, only the position of the stores
//	└─────────┘
//
// In every state, a node announces partitions only while all of its stores work and have once been
// at the head of the log. If a store fails later, the node withdraws all partitions until the store
// works again. The state does not change: the node still takes calls and asks other nodes for the
// rows.
//
//   - Joining → Serving: the other nodes know what the stores of this one hold. The node announces
//     no partitions before the stores have folded the log up to its head at the start (I1).
//   - → Leaving: the other nodes learn that this one leaves before its stores stop, so that they
//     ask other copies. The stores stop when the bucket has the withdrawal, or after ten seconds.
//     No state follows Leaving, because an announcement of partitions would send calls to stores
//     that are closed.
//   - A process that is killed withdraws nothing. The other nodes stop asking it when it has been
//     silent for too long. If a new process with the same name starts, it replaces the announcement
//     of the old one, and announces no partitions until its stores have caught up.
//
// A drained node stays in Serving. A key of the bucket marks it as drained, so the table gives it
// no partitions, and the node gives up its partitions as it would give up any other.
//
// # What to change
//
// When the table or the announcements of nodes have changed, the node does what the first line that
// applies says (situation.decide). A partition is served if all stores hold it.
//
//	a user was erased                                            rebuild the stores
//	a store lacks a wanted partition, or the stores differ       change to the served and the wanted partitions
//	a served partition has not been announced for 10 s           change to the wanted partitions
//	a served partition is not wanted                             no longer announce it, and wait
//	otherwise                                                    wait
//
// A node wants the partitions that the table gives it. It also wants a partition that it serves and
// that the table gives to other nodes, until all of these announce it. So a node drops a partition
// only after all nodes that the table names for it have announced it, and ten seconds after the
// node itself has stopped announcing it.
//
// # The states of a change of partitions
//
// A change of the node's partitions changes each store that does not hold the new set yet. The
// stores go through the states independently. Each builds a next generation (package live) that
// holds the new set. Meanwhile, calls are answered from the partitions that all stores hold.
//
//	the store is to hold another set
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
//	           │ it has caught up with the old generation, and serves
//	           ▼
//	      ┌─────────┐      fails: the previous generation stays,
//	      │ CutOver │      and the next change deletes it
//	      └────┬────┘
//	           │ the previous generation is deleted
//	           ▼
//	      ┌─────────┐
//	      │ Dropped │
//	      └─────────┘
//
// Another change begins with Copying: from Unchanged, from Dropped, and from a CutOver that has
// failed. What each transition guarantees:
//
//   - → Copying: nothing else builds generations of the stores at the same time, such as an erasure
//     or a rebuild (I12, I15). If the node had to wait for that, and what it decided by has changed
//     in the meantime, it decides again instead.
//   - Copying → CatchingUp: the next generation holds the rows of its partitions and no others
//     (I13), all at one position. The rows were in the store before, were copied from other nodes,
//     or were built from the log (I3). The generation that serves is not changed.
//   - CatchingUp → CutOver: the fold continues at the position of the copy, so no event is left out
//     (I14). The next generation has reached the position of the old one, so positions do not go
//     back for a reader (I9). Its rows are on disk before the file of generations names it (I3):
//     after a crash, the store holds the old set or the new set, and nothing in between.
//   - CutOver → Dropped: the previous generation is closed only after all of its views, so no row
//     is deleted that a view can still read.
//   - After a failure, the node waits five seconds and decides again by what each store holds.
//     After a restart the node does the same: the start removes a next generation that had not cut
//     over, so its store holds the old set; a store that was in CutOver holds the new set. If the
//     stores differ, the second line of the list above makes them equal.
//
// A change continues while the node is Leaving. When the process ends, the change is interrupted as
// by a crash.
package node
