// Package archive stores the older part of the log in a bucket, as compressed and checksummed files
// that are called segments. A segment holds the events of one class within a range of sequences.
// Once a segment is verified, its envelopes may be trimmed from the stream: archive and stream
// together are the log.
//
//	events.Envelope ──► Writer ── blocks of columns ──► Seal ──► archive/facts-…     every kind but those of activity,
//	                                                     │                          all rejects, envelopes with repeats
//	                                                     ├─────► archive/activity-… played, served, reacted, …
//	                                                     │       read back, decoded, compared
//	                                                     └─────► archive/MANIFEST   replaced: now they are archived
//
//	Read(from, kinds) ◄── merge by (sequence, slot) ◄── blocks of both classes, or of facts alone, a few ahead
//
// The manifest alone defines which segments belong to the archive. It is replaced as a whole, and
// only after the objects that it names were read back and compared. So a crash at any point leaves
// the previous manifest valid. Objects that the manifest does not name are garbage, which
// [Archive.Sweep] removes.
//
// Sealing every hour leaves small segments. [Archive.Merge] joins neighboring ranges that together
// hold at least eight times as many events as the largest of them. It joins the files of all
// classes at once, so that the ranges in the manifest still follow each other, and replaces the
// manifest in one step. A reader that finds that a file was removed reads the manifest again and
// continues in the merged file, up to the end at which the archive was when reading began. A merge
// never runs during a scrub, and a scrub also removes the files that merges have replaced.
//
// A segment consists of a header, blocks and a footer. A block holds up to 65536 events in columns:
// sorted dictionaries of the ids that occur in the block, with a compact form for numbers and
// UUIDs; references into the dictionaries; slots, times, and the fields that only some kinds have.
// A column is split into planes, one for each byte of its width, and each plane is compressed on
// its own if that makes it smaller. Header, blocks and footer have checksums, so a flipped bit is
// reported as [ErrDamaged] and never read as another event.
//
// An archived event equals the event that the reader of the stream returned, except that it has no
// event id. An envelope keeps its sequence, its last log time, its size and the number of its
// repeats. Cursors before the end of the archive have no checksum and no sequence from which to
// warm up.
package archive
