// Package store keeps the rows of one generation of one projection in Pebble, and folds the log
// into them.
//
// # The loop
//
//	               Store.Run: one goroutine per store
//	log ──► Subscription.Next ──► Store.Fold ──────────────► commit ─────────────► publish
//	        envelopes, decoded    for each event that the    one Pebble batch:     a new position,
//	        once for all stores   projection reads: check    rows and checkpoint   which new views show
//	                              backfills, then Apply
//	                                  │         ▲
//	                           writes │         │ reads, its own writes included
//	                                  ▼         │
//	                              projections.Batch ──► Pebble
//
// [Store.Run] reads the log from the position of the store on, and passes envelopes to
// [Store.Fold]. Fold calls Apply of the projection with each event and a [projections.Batch], which
// collects the rows that Apply writes. It commits them once there are enough of them, and at the
// end of the envelopes, and then publishes the position. Between two calls of Fold, Run starts a
// flush when one is due, and it rests while no caller waits for a position (package storestate).
//
// # Commit and recovery
//
// A commit is one Pebble batch with the rows and their position in the log (I3). Pebble's own
// write-ahead log is off, because the log of events takes its place: a crash loses the latest
// commits, those that were not flushed yet. The next [Open] finds the store at the end of an
// earlier commit, and Run continues from the position in it.
//
// A fold divides an event that is too large for one commit by calling [projections.Batch.Step]. The
// checkpoint then also records how far the event is folded, and no view shows a part of it.
//
// A new store first writes the fingerprint of the projection that builds it (I4). Open compares it
// with the fingerprint of the program, and fails with [projections.ErrFingerprint] if the fold or
// its settings have changed.
//
// # Views
//
// [Store.View] returns a view at the last whole position, and [Store.ViewAt] a view at a given
// position. All views of one position share a Pebble snapshot, which the last of them closes.
// [Store.WaitFor] blocks until a position is visible.
//
// # What the store adds to a fold
//
// The store ignores a backfilled event whose offset is not higher than all offsets of its source
// and kind before, so an import may safely run twice. The highest offsets are rows (I6,
// backfill.go). The store counts malformed events and keeps the last [MaxStoredRejects] of them
// (I11, rejects.go). An error of Apply or of the disk is not the fault of an event. It stops this
// store and no other, and [Store.Status] returns the reason.
//
// # Copies and builds
//
// [Store.Checkpoint] copies the files of a store while it folds (filecopy.go). [ResizeCopy],
// [ExportRows] and [ImportRows] change which partitions a copy holds, and move rows between
// processes (partitions.go). A build folds each partition in memory with a [MemoryFold]
// (memory.go), writes its rows into tables, and makes a store of them with [CreateStore]
// (tables.go); package build does that.
//
// The store knows nothing of other generations: package live opens and replaces stores. A
// [Listener] receives what metrics are made of.
package store
