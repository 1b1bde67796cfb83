// Package archive keeps the past of the log in a bucket: sealed, checksummed, compressed segments, one file per class and
// range of sequences. Envelopes whose segment is verified may be trimmed from the stream: archive and stream together are the log.
//
//	events.Envelope ──► Writer ── blocks of columns ──► Seal ──► archive/facts-…     every kind but those of activity,
//	                                                     │                          all rejects, envelopes with repeats
//	                                                     ├─────► archive/activity-… played, served, liked, …
//	                                                     │       read back, decoded, compared
//	                                                     └─────► archive/MANIFEST   replaced: now they are archived
//
//	Read(from, kinds) ◄── merge by (sequence, slot) ◄── blocks of both classes, or of facts alone, a few ahead
//
// The manifest is the truth about which segments there are. It is replaced as a whole, and only after what it names was
// read back and found equal: a crash at any point leaves the previous one valid, and objects that it does not name are
// garbage ([Archive.Sweep]).
//
// Sealing by the hour leaves small segments. [Archive.Merge] makes one range of neighbors that together hold at least eight
// times what the largest of them does, in all classes at once, so that the ranges of the manifest continue following each other.
// The manifest exchanges them in one step. A reader that finds a file gone reads the manifest again and continues in what took
// its place, up to the end that it began with. A merge never runs beside a scrub, and a scrub removes what was merged, too.
//
// A segment is a header, blocks and a footer. A block holds up to 65536 events in columns: dictionaries of the ids that
// occur in it, sorted, numbers and UUIDs compact; references into them; slots, times and what else a kind has. A column
// is cut into planes, one for each byte of its width, and each plane is compressed on its own where that helps. Header,
// blocks and footer have checksums: a flipped bit is [ErrDamaged], never another event.
//
// An archived event is the event that the reader of the stream gave, but for its event id. An envelope keeps its
// sequence, last time given, size and the number of its repeats; cursors in the middle of the archive have no checksum
// and nothing to warm up from.
package archive
