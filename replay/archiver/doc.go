// Package archiver copies envelopes of the log from the stream into the archive, and later deletes
// them from the stream (trims them). The stream is in NATS JetStream. The archive is a list of
// files, the segments, and a manifest that names them and the archived end, which is the sequence
// of the last archived envelope.
//
//	hub ──► envelopes ──► archive.Writer ── 64 MiB of stream or an hour ──► Seal: written, read back, compared
//	                                                                           │
//	stream: [ first ……………………… trimmed up to here | ……………… archived end …… head ]   ▼
//	                                                                     manifest: archived end
//
// Of the processes that share a log, only the holder of a lease archives and trims
// ([Archiver.Run]). The others reload the manifest from time to time, and so learn of new and of
// merged segments.
//
// # Trimming
//
// An envelope is trimmed from the stream when all of this is true:
//
//   - It is in a segment that was read back from the archive and compared with what was written.
//   - It is older than the retention of the stream.
//   - No reader that starts at the archived end, or at the cursor of a store of this process, needs
//     it to know the event ids of the horizon (see [events.Horizon]). Stores of other processes
//     that are further behind read the archive.
//
// So each acknowledged envelope is always in the stream, in the archive, or in both (invariant I2
// in docs/invariants.md). After a crash before the manifest was written, the archiver writes the
// segment again, from the archived end on. After a crash between sealing and trimming, the next run
// trims.
//
// # Merging
//
// Segments that were sealed because of their age are small. So the holder of the lease also merges
// neighboring segments, slowly, while it seals new ones ([archive.Archive.Merge]). It deletes the
// old files an hour after the merge, because other processes may still have the manifest that names
// them. A scrub, which reads the archive to check it, and a merge exclude each other.
package archiver
