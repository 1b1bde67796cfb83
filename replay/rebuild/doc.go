// Package rebuild builds a projection again from the log, beside the generation that serves, and cuts over to it.
//
//	           ┌────────────────────► live generation ──► queries
//	log ───────┤                            │
//	 │ archive,│then stream                 ▼ CutOver: at a position that both show
//	 └─────────┴──► Rebuild: generation N+1, throttled, larger batches
//
// The build is named in the file of generations before it begins and keeps its own position: after a crash, or when it was
// stopped, the next Rebuild goes on with it. The former generation stays, and [Rollback] goes back to it the same way: it
// folds what it has missed and is cut over to. So I1 and I3 hold for every generation, and queries see nothing of it.
package rebuild
