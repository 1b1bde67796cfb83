// Package audit compares what graph, inbox and counters have derived from the log each in its own way, and looks after them
// all the time.
//
// A shadow replay (package verify) runs the same fold as the store, and so the same bugs. These stores are different
// derivations of one log, and at one common position they must agree:
//
//	counts   every count is the length of the list that another store has (I7)
//	mirrors  every follow is seen from both sides, since the same time
//	feeds    every inbox gives what the follows of the graph and the outboxes give by the definition of a feed (I8)
//	items    an owner's pins show the items, on the boards, that counters says
//
// An [Audit] is one common position. An [Auditor] takes one after the other:
//
//	log ──► queue of entities, each once ─┐
//	                                      ├─► audit ─► again at another position ─► repair of the stores
//	round over all partitions ────────────┘
//	round over all projections ──────────────► shadow replay, and repair (package verify)
//
// What is found twice and is gone after the repair was damage. What a repair does not change is a fold that is wrong: it is
// said loudly, and left to people.
package audit
