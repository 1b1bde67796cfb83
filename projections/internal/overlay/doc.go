// Package overlay holds the rows that a fold has written since its last commit, over the rows of a Pebble database.
//
//	     Get ──► rows of the overlay ──► filters of what is unflushed ──► tables, memtables
//	                     ▲      │
//	Set, Delete, Merge ──┘      └──► Commit: one Pebble batch, in the order of keys
//
// A row is found by the hash of its key, and is kept once however often it is written (overlay.go). Rows with the same shard and
// tag are chained, and sorted when an iterator needs them (order.go, iter.go). Values that are merged into a row stay a list
// until the fold reads the row, or the commit (merge.go). Rows that were read stay in memory after the commit. A lookup of a row that no
// memtable can have searches the tables alone (unflushed.go).
//
// Readers of the store, to which the overlay is invisible, share a [Snapshot] (snapshot.go), and read it by a [Finder] and by [Scans]
// (scan.go), which the overlay reads the database with, too.
//
// # Invariant
//
// An overlay shows the same rows as the database would show if every write had gone to it at once. TestOverlayIsABatch compares it with
// an indexed batch of Pebble.
package overlay
