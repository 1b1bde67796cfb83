// Package rebuild builds a projection again from the log, beside the generation that serves, and cuts over to it.
//
//	           ┌────────────────────► live generation ──► queries
//	log ───────┤                            │
//	 │ archive,│then stream                 ▼ CutOver: at a position that both show
//	 └─────────┴──► Rebuild: generation N+1, built by partition, throttled
//
// A generation is built by partition, in memory (package build), up to the head as of the start, and its fold continues from there.
// After a crash or a stop the next Rebuild begins anew.
//
// A node of a cluster holds some partitions. A rebuild keeps to them. [Resize] has the projection hold others, by the same way: the next
// generation begins as a copy of the one that serves. Partitions that this one lacks are copied from nodes that have them, or built.
//
// The previous generation stays, and [Rollback] goes back to it the same way: it folds what it has missed and is cut over to. So I1 and
// I3 hold for every generation, and queries see nothing of it.
package rebuild
