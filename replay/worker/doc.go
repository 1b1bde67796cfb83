// Package worker finishes builds in a process of its own, the same program started again.
//
//	process that serves                                     worker
//	reads the log, scatters its events ──► files ──────────► folds partitions, writes tables
//	          │                                               ▲        │
//	          └── operation: where the files are, settings ───┘        │
//	progress, free disk ◄── messages: phase, done and total ◄──────────┘
//
// What a build takes beyond its files is memory and processor time: the worker has a memory limit of its own, and the system runs it
// after the process that serves (nice). A worker ends with that process, whose kill closes the pipe that it reads.
//
//	command.go  [Command]: the side of the process that serves
//	serve.go    [Serve]: the worker
//	pace.go     [Paced]: rests and progress of a build, in either process
package worker
