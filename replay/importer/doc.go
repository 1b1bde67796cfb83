// Package importer publishes history from delimited text files to the log: follows, boards, pins, plays, likes, unfollows, blocks, mutes
// and hidden re-pins of an older system. It reads a file in passes over the same bytes:
//
//	measure   once for each delimiter that the file may have: fields, times, absent values, quotes of all records
//	decide    the shape of the file from the measurements, or an error that says what is not certain
//	check     every record becomes events, which are validated and counted, but not published
//	publish   file ── unpack ── lines ── records ── events ── calls of 1000 ── publish ── rejects, then state
//	                                       │                                  │
//	                                       └ bad records: beside the file     └ one call in flight, the same again until it is taken
//
// What must stay true:
//
//   - Nothing is published before the whole file was read, and nothing if it can be read in two ways or has more bad records than may
//     be. An import cannot be undone.
//   - Text within a field never becomes a record, whatever it contains: users wrote it.
//   - Every event is a backfill with a source, the time of its record (or the import's recorded start, where the file
//     has no times) and an offset: the number of its record, from 1. So history never undoes live events, and readers of the log ignore
//     records that it has already: an import may be interrupted, repeated and run twice.
//   - One call is in flight at a time. A reader of the log ignores a backfill whose offset is not above the highest that
//     it saw of the same source and kind. If call 8 overtook call 7, everything in call 7 would be ignored.
//   - The state file never runs ahead of the log: it names a record only when the log has acknowledged that record and all
//     before it, and when the rejects up to it are in their file. It may lag behind, because a record that is sent again is ignored.
//   - A record is accepted or rejected as a whole, with its number and a reason. A bad record does not stop the import.
//
// The default source names the file and its content. So the next export under the same name is another source, and its records are not
// ignored as repeats.
package importer
