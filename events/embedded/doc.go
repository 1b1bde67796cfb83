// Package embedded runs the NATS server inside the process, for a log that no other process uses.
//
//	Start ──► lock the directory ──► write through ──► repair ──► server ──► in-process connections
//	                                      ▲                          │
//	                                      └─ Restart, after a disk error: the server accepts nothing more
//
// # Guarantees
//
// Everything that the server delivers is on disk (I2). The server syncs every write before it
// acknowledges it. A kill or a failed fsync may leave data that is only in the memory of the
// kernel; that data is written to the disk before the server starts (writethrough.go).
//
// A damaged message costs no other message (I1, I11). The server would cut off everything after a
// damaged message, so the message is turned into a deleted one before the server reads the file
// (blocks.go). Package eventlog finds what is missing and stops in front of it.
//
// A kill while the configuration of the stream is replaced does not lose the stream (I1). The
// server would not open the stream, because a checksum is missing, so the checksum is written
// (streammeta.go).
package embedded
