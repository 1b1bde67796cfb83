// Package replay has the operations on projections that need the log: rebuild, verification, repair, snapshots, audits and erasure. It
// also archives the log, imports history from other systems into it, and exports it.
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
// Stores are built by projections/build, in a process of its own (worker). Each other folder is one tool. No tool writes a row that is not
// a fold of the log (I1).
package replay
