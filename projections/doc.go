// Package projections is the runtime of the stores that answer queries: pure folds of the log into Pebble.
//
// # The loop
//
//	            Run: one goroutine a store
//	log ──► Subscription.Next ──► Fold ──────────────────────────────► commit ──► publish
//	        envelopes, decoded    for each event that the projection   one Pebble batch:   a new snapshot:
//	        once for all          reads: accept backfill, Apply        rows + checkpoint   what views see
//	                                        │     ▲
//	                                   writes│     │reads, its own writes included
//	                                        ▼     │
//	                                       Batch (overlay) ── over ── Pebble
//
// A [Store] is one generation of one [Projection]: its directory, its rows, and the position that they reflect. The
// projection's Apply sees an event and a [Batch] and nothing else; all that this package adds happens around it, alike
// for every projection: which backfills count, what is kept of malformed events, when rows are committed, flushed and
// shown.
//
// # What holds
//
// Rows and position are one commit (I3). Pebble's own write-ahead log is off, since the log is one: after a crash the
// store is at the end of some commit, and continues from the position in it. An event too large for one commit is cut at
// [Batch.Step]; the checkpoint then also says how far that event is, and no query sees it in parts.
//
// A rebuild does not ask a store for its rows one after the other: it folds each partition in memory (memory.go, package build).
//
// Folds are pure (I4). What Apply may depend on is in the log or in the fingerprint, with which every store begins and
// which is compared at every start.
//
// Queries read a [View]: a snapshot at one whole position, shared by all who ask at that position. [Store.WaitFor]
// waits for a position without polling. Under load a fold rests between commits while no caller waits (package storestate).
//
// Backfills carry offsets that rise (I6); the highest of each source and kind is a row of the store. Malformed events
// are counted and the last of them kept (I11). An error of Apply or of the disk is ours: it stops this store, loudly,
// and no other.
package projections
