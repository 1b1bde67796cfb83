// Package overlay keeps the rows that a fold has written since its last commit in memory, above the
// rows of a Pebble database.
//
//	     Get ──► rows of the overlay ──► filters of unflushed keys ──► tables, memtables
//	                     ▲      │
//	Set, Delete, Merge ──┘      └──► Commit: one Pebble batch, in the order of keys
//
// A row is found by the hash of its key, and is in memory once, however often it is written
// (overlay.go). Rows with the same shard and tag are linked, and sorted when an iterator needs them
// (order.go, iter.go). Values that are merged into a row stay a list until the fold reads the row
// or commits (merge.go). Rows that the fold has read stay in memory after the commit. A lookup of a
// row that cannot be in a memtable searches only the tables (unflushed.go).
//
// Readers of the store do not see the overlay. They share a [Snapshot] (snapshot.go), and read it
// with a [Finder] and [Scans] (scan.go). The overlay itself also uses these to read the database.
//
// # Invariant
//
// An overlay shows the same rows as the database would show if every write went to it at once.
// TestOverlayShowsWhatBatchShows compares it with an indexed batch of Pebble.
package overlay
