// Package embedded runs the NATS server inside the process, for a log that no other process uses.
//
//	Start ──► lock the directory ──► write through ──► repair ──► server ──► in-process connections
//	                                      ▲                          │
//	                                      └───── Restart: its disk failed and it takes nothing more
//
// # What holds
//
// What the server shows is on disk (I2): it syncs every write before it acknowledges, and what a kill or a failed fsync has left in
// the memory of the kernel alone is written through before it starts (writethrough.go).
//
// One damaged message costs that message and no other (I1, I11): it is made a deleted one before the server reads the file, which
// would cut off all behind it (blocks.go). Package eventlog finds what is missing, and stops in front of it.
package embedded
