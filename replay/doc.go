// Package replay and its subpackages implement the operations on projections that read the log:
// rebuild, verification, repair, snapshots, audits and erasure. They also archive the log, import
// history from other systems into it, and export it.
//
//	events.Log ─┬─ archiver ──► bucket: segments of the log        (directory or S3)
//	            │                  │ what is archived may be trimmed from the stream
//	            ▼                  ▼
//	          log read from the archive, then the stream, as one
//	            │
//	            ├─► rebuild   a new generation beside the live one ──► cut over ──► the previous one, for rollback
//	            ├─► verify    a shadow, folded to a position that the live store has, and compared ──► repair
//	            ├─► snapshot  a store with its position ──► bucket ──► restore, and replay the tail
//	            ├─► audit     graph, inbox and counters compared at one position, all the time ──► repair
//	            ├─► export    rows or events ──► NDJSON, Parquet
//	            └─► erase     a user: a scrubbed archive, a new epoch, stores built anew
//
// The package projections/build builds stores. Package worker lets it do so in a process of its
// own. Each of the other folders is one tool. No tool writes a row that is not a fold of the log
// (I1).
package replay
