// Package overlay holds the rows that a fold has written since its last commit, over those of a Pebble database.
//
//	     Get ──► rows of the overlay ──► filters of what is unflushed ──► tables, memtables
//	                     ▲      │
//	Set, Delete, Merge ──┘      └──► Commit: one Pebble batch, in the order of keys
//
// A row is found by the hash of its key and stands in one place however often it is written (overlay.go). Rows with the same shard and
// tag are chained, and sorted when somebody walks over them (order.go, iter.go). What is merged into a row that nobody reads stays a list
// until the commit (merge.go). Rows that were asked for stay in memory after it. A lookup of a row that no memtable can have asks the
// tables alone (unflushed.go).
//
// # What holds
//
// What an overlay shows is what the database would show with everything written to it at once: TestOverlayIsABatch compares it with an
// indexed batch of Pebble.
package overlay
