// Package audit compares graph, inbox and counters with each other, continuously while a service runs.
//
// A shadow replay (package verify) runs the same fold as the store, and so has the same bugs. These three stores derive overlapping facts
// from one log in different ways. At a common position they must agree:
//
//	counts   every count is the length of the list that another store has (I7)
//	mirrors  every follow is in the lists of both sides, with the same time
//	feeds    every reader gets the feed that follows from the graph and the outboxes by the definition of a feed (I8)
//	items    an owner's pins show exactly the items, on the boards, that counters has
//
// Stores of some partitions are audited as far as they go: the users who are held, and of what is between two users what both ends have,
// if both are held. Followers and feeds are compared without the users who are not.
//
// An [Audit] works at one common position. An [Auditor] makes one after the other:
//
//	log ──► queue of entities, each once ─┐
//	                                      ├─► audit ─► again at another position ─► repair of the stores
//	round over all partitions ────────────┘
//	round over all projections ──────────────► shadow replay, and repair (package verify)
//
// A finding that is confirmed, and gone after the repair, was damage. A finding that remains after the repair means that a fold is
// wrong: the auditor logs an error, and leaves it to people.
package audit
