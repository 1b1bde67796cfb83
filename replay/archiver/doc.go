// Package archiver moves the log into its archive, and trims from the stream what is safely
// archived.
//
//	hub ──► envelopes ──► archive.Writer ── 64 MiB of stream or an hour ──► Seal: written, read back, compared
//	                                                                           │
//	stream: [ first ………………………………… | one horizon | archived end …… head ]        │
//	           └── Trim ◄── archived, a horizon below every cursor of a store, older than the retention
//
// Of the processes that share a log, only one does this: the holder of the lease. The others reload
// the manifest from time to time and then see what was sealed ([Archiver.Run]).
//
// Segments that are sealed by their age are small. So the holder of the lease also merges
// neighboring segments, at a slow pace, while it seals new ones. It removes the files that were
// merged an hour later. A scrub waits for a merge that is under way, and no merge begins during a
// scrub ([archive.Archive.Merge]).
//
// # Invariants
//
// An envelope is trimmed only after the segment that contains it was read back from the archive and
// compared (I2: whatever was acknowledged is on disk, in the stream, in the archive or in both).
// After a crash between sealing and trimming, trimming happens later. After a crash before sealing,
// the archiver seals again from the end that the manifest names.
package archiver
