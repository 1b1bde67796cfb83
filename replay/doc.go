// Package replay looks after projections by the log: it builds them again, proves them equal to it, repairs them, keeps
// copies of them, archives the log, and brings old systems into it.
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
// Stores are built by package build of projections, in a process of its own (worker). Each other folder is one tool. They never write
// rows that are not a fold of the log (I1).
package replay
