// Package archiver copies envelopes of the log from the stream into the archive, and later deletes
// them from the stream (trims them). The log is the archive together with the stream, which is in
// NATS JetStream. The archive is a list of files, the segments, and a manifest. The manifest lists
// the segments and records the archived end, which is the sequence of the last archived envelope.
//
//	stream: [ first ……………… archived end | ……………… head ]
//	                                       │ envelopes after the archived end
//	                                       ▼
//	                                 archive.Writer, until 64 MiB of envelopes or an hour
//	                                       │
//	                                       ▼
//	                                 sealing: write the segment, read it back and compare,
//	                                       │  then write the manifest with the new archived end
//	                                       ▼
//	                                 trimming: delete old envelopes from the stream
//
// Of the processes that share a log, only one archives and trims: the holder of a lease, which is in
// the same NATS. All processes call [Archiver.Run]. Without the lease, it reloads the manifest every
// minute, and so learns which segments are new and which were merged.
//
// # Trimming
//
// The holder trims the envelopes of the stream up to the last one for which all of this is true:
//
//   - It is in a segment that the manifest lists. A segment is listed only after it was read back
//     and compared with what was written.
//   - It is older than the retention, which is a setting of skein. NATS itself deletes nothing: a
//     stream that is full refuses new envelopes.
//   - It is before the horizon of the archived end, and of the cursor of every store of this process
//     ([events.Horizon]). A reader that continues at a position needs the event ids of the 15
//     minutes of log time before that position, to recognize events that are published again.
//
// Stores of other processes may be further behind. They find in the archive what the stream lacks.
//
// So each acknowledged envelope is in the stream, in the archive, or in both (invariant I2 in
// docs/invariants.md). If the process ends before the manifest is written, the next holder archives
// the envelopes after the archived end again. If it ends before it has trimmed, the next holder
// trims.
//
// # Merging
//
// Segments that were sealed after an hour can be small. So the holder of the lease also merges
// neighboring segments ([archive.Archive.Merge]), at a low rate, so that it does not delay sealing.
// A merged segment is read back and compared, too. The holder deletes the files of the merged
// segments an hour later, because other processes may still use the manifest that lists them. A
// merge and an erasure, which rewrites segments ([archive.Archive.Scrub]), exclude each other.
package archiver
