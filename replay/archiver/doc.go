// Package archiver moves the log into its archive, and trims from the stream what is safe there.
//
//	hub ──► envelopes ──► archive.Writer ── 64 MiB of stream or an hour ──► Seal: written, read back, compared
//	                                                                           │
//	stream: [ first ………………………………… | one horizon | archived end …… head ]        │
//	           └── Trim ◄── archived, a horizon below every cursor of a store, older than the retention
//
// One process of those that share a log does this: the holder of the lease. The others see what it has sealed when they next
// look ([Archiver.Run] reloads the manifest for them).
//
// What is sealed by the hour is small: the holder of the lease also merges neighboring segments, beside sealing and at a slow
// pace, and removes the files that were merged an hour later. A scrub waits for the merge that is under way, and none begins
// during it ([archive.Archive.Merge]).
//
// # What holds
//
// An envelope is trimmed only after the archive that has it was read back and compared (I2: what was acknowledged is on disk,
// in the stream or in the archive or in both). A crash between sealing and trimming trims later; one before sealing seals
// again from the end that the manifest names.
package archiver
