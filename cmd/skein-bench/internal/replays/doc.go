// Package replays has the rows about stores that are built from the log, and about costs that
// depend on the number of follows. To fold is to apply events to a store; a rebuild folds the whole
// log into a new store.
//
//	replay.go     rebuilds from the archive and from the stream of the log, and a round of the auditor; replaylog.go: the logs;
//	              replayjob.go: one measurement, in a process of its own
//	growth.go     what more follows cost: disk, start, memory; growthlog.go: a log of any size, written into an archive;
//	              growthops.go: times of single operations
//	plays.go      builds from a large log of plays
//	archivewriter.go: writes a generated log into an archive
package replays
