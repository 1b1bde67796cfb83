// Package replays has the rows of stores that are built from the log, and of what the number of follows changes.
//
//	replay.go     rebuilds from archive and stream, a round of the auditor; replaylog.go: the logs and their archives;
//	              replayjob.go: one measurement, in a process of its own
//	growth.go     what the number of follows changes: bytes, start, memory; growthlog.go: an archive of any size;
//	              growthops.go: operations
package replays
