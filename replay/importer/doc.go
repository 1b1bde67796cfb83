// Package importer publishes the history of an older system from delimited text files to the log:
// follows, boards, pins, plays, reactions, unfollows, blocks, mutes and settings of follows. It
// reads a file in several passes over the same bytes:
//
//	measure   once per delimiter that the file may have: count the fields, times, absent values and quotes of all records
//	decide    choose the shape of the file from the measurements, or fail with an error that says what is not certain
//	check     turn every record into events, and validate and count them, but publish nothing
//	publish   file ── unpack ── lines ── records ── events ── calls of 1000 ── publish ── rejects, then state
//	                                       │                                  │
//	                                       └ bad records: to a file         └ one call at a time, the same again until it is answered
//
// # Invariants
//
//   - Nothing is published before the whole file was read. Nothing is published at all if the file can be read in two ways, or has more bad
//     records than are allowed. An import cannot be undone.
//   - Text within a field never becomes a record, whatever it contains: users wrote it.
//   - Every event is a backfill. It has a source, the time of its record (or the recorded start of the import, if the file has no times) and
//     an offset, which is the number of its record, from 1. So history never undoes live events, and readers of the log ignore records that
//     it has already: an import may be interrupted, repeated and run twice.
//   - Only one call is under way at a time. A reader of the log ignores a backfill whose offset is not above the highest that it has seen of
//     the same source and kind. If call 8 overtook call 7, everything in call 7 would be ignored.
//   - The state file is never ahead of the log. It names a record only when the log has acknowledged that record and all before it, and when
//     the rejects up to it are in their file. It may be behind, because a record that is sent again is ignored.
//   - A record is accepted or rejected as a whole, with its number and a reason. A bad record does not stop the import.
//
// The default source is made of the name and the content of the file. So the next export under the
// same name has another source, and its records are not ignored as repeats.
package importer
