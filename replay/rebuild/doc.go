// Package rebuild builds a projection again from the log while its present generation serves, and
// cuts over to the new generation.
//
//	           ┌────────────────────► live generation ──► queries
//	log ───────┤                            │
//	 │ archive,│then stream                 ▼ CutOver: at a position that both have reached
//	 └─────────┴──► Rebuild: generation N+1, built by partition, throttled
//
// Package build folds one partition after the other in memory, up to the head of the log as of the
// start. From there, the fold of the new generation continues event by event. If the process
// crashes or stops, the next Rebuild starts from the beginning.
//
// A node of a cluster holds some of the partitions, and a rebuild keeps to those. [Resize] makes
// the projection hold other partitions in the same way: the next generation starts as a copy of the
// one that serves. The partitions that it lacks are copied from nodes that have them, or built from
// the log.
//
// The previous generation stays on disk. [Rollback] goes back to it in the same way: it folds what
// the previous generation has missed and cuts over to it. So I1 and I3 hold for every generation,
// and queries do not notice the change.
package rebuild
