// Package build makes the rows of a projection anew, from a log that is read once.
//
//  1. scatter                        2. fold                               3. write
//     log ──► Sequencer ──► Route ──► events ──► one partition at a time, ──► rows in ──► tables ──► a store with
//     │ accepts, rejects      by         in memory, over nothing,     order       │          its position
//     ▼                       partition  on all processors                        ▼
//     rows of the store       (a file)                               regions, merged of sorted runs
//     as a whole
//
// A live fold asks a store that is larger than the caches for one row after the other, and writes each row as often as it changes.
// A build needs neither: by the law of partitions (I13) the rows of a partition are a fold of the events that are delivered to it. So
// each partition is folded by itself, by the same Apply, in memory that the processor's caches help with, and each row is written once.
//
// Rows whose keys begin with the shard of their home go into tables as they come: those of one partition stand before those of the
// next. All others, which are rows of regions and rows that begin with a month, are sorted runs of each partition, which are merged at
// the end. Both kinds become tables of a store of their own, together with the position (I3). Nobody sees the store before it has
// that.
//
// # Where things are
//
//	build.go    [Builder]: the three phases
//	sample.go   [Sample]: how long the second and third phase will take
//	audience.go which partitions a pin need not go to
//	handover.go another process does the second and third phase
//	scatter.go  the file of events by partition
//	tables.go   rows into tables; sorted runs, and several of them into one
package build
