// Package audit compares the stores of graph, inbox and counters with each other, continuously
// while a service runs.
//
// A shadow (package verify) runs the same fold as the store, and so it has the same bugs. These
// three stores derive overlapping facts from one log in different ways. At a common position they
// must agree:
//
//	counts   every count is the length of the list that another store has (I7)
//	mirrors  every follow is in the lists of both users, with the same time
//	feeds    every reader gets the feed that follows from the graph and the outboxes by the definition of a feed (I8)
//	items    an owner's pins in inbox show exactly the items, on the boards, that counters has
//
// If the stores hold only some of the partitions, only the users in those are audited. Relations
// between two users are compared only if both are held. Followers and feeds are compared without
// the users who are not held.
//
// An [Audit] works at one common position at a time. An [Auditor] runs audits one after the other:
//
//	log ──► queue of written users and boards ─┐
//	                                           ├─► audit ─► audit again at another position ─► repair of the stores
//	rounds over all partitions ────────────────┘
//	rounds over all projections ─────────────────► shadow, comparison and repair (package verify)
//
// If a second audit confirms a finding and the finding is gone after the repair, a store was
// damaged. If it remains after the repair, a fold is wrong: the auditor logs an error and leaves it
// to people.
package audit
