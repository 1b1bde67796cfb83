// Package importer brings history from delimited text files into the log: who followed whom in an older system, its
// boards and pins, and what was played and liked. It is the loop
//
//	file ── unpack ── lines ── records ── events ── calls of 1000 ── publish ── rejects, then state
//	                             │                                  │
//	                             └ bad records: beside the file        └ one call in flight, the same again until it is taken
//
// What must stay true:
//
//   - Every event is a backfill with a source, the time of its record (or the import's recorded start, where the file
//     has no times) and an offset: the number of its record, from 1. So history never undoes what happened live, and what
//     the log has already taken it ignores: an import may be interrupted, repeated and run twice.
//   - One call is in flight at a time. A reader of the log ignores a backfill whose offset is not above the highest that
//     it saw of the same source and kind. If call 8 overtook call 7, everything in call 7 would be ignored.
//   - The state file never runs ahead of the log: it names a record only when the log has acknowledged that record and all
//     before it, and when the rejects up to it are in their file. Behind it may be: what is sent again is ignored.
//   - A record is taken whole or rejected whole, with its number and a reason, and a bad record stops nobody.
//
// The default source names the file and its content, so that the next export under the same name is not taken for the
// one that the log already has.
package importer
