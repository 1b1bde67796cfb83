// Package build makes a new store of a projection by reading a log once.
//
//	scatter                           fold                                  write
//
//	log ──► Sequencer ──► Route ──► events ──► one partition at a time, ──► rows in ──► tables ──► a store with
//	         │ accepts,   by         in memory, without a database, order      │          its position
//	         │ rejects    partition  on all processors                         ▼
//	         ▼            (a file)                                regions, merged from sorted runs
//	        rows of the store
//	        as a whole
//
// With several workers, events are encoded for their partitions while the next ones are being read.
//
// A live fold reads its rows from a store that is larger than the caches, and writes each row as
// often as it changes. A build avoids both. The rows of a partition depend only on the events that
// are delivered to it (I13). So each partition is folded by itself, by the same Apply, in memory
// that fits the caches better, and each row is written once.
//
// Rows whose keys begin with the shard of their home go straight into tables, because all such rows
// of one partition sort before those of the next. All other rows belong to regions or begin with a
// month, so those of several partitions interleave. They are collected in sorted runs. At the end
// the runs are merged, in pieces of the key space, on all processors. The tables of both kinds
// become a new store, together with its position (I3): no reader sees the store without a position.
//
// # Files
//
//	build.go    [Builder]: the three phases
//	sample.go   [Sample]: does the second and third phase for some events, to measure how long they will take
//	handover.go [Handover]: lets another process do the second and third phase
//	save.go     lets an interrupted build continue, in any phase
//	scatter.go  the file of events by partition
//	tables.go   writes rows into tables, and those that are not in place into sorted runs
package build
