// Package worker finishes builds of stores in a separate process, which runs the same program.
//
//	serving process                                         worker
//	reads the log, scatters its events ──► files ──────────► folds partitions, writes tables
//	          │                                               ▲        │
//	          └── operation: where the files are, settings ───┘        │
//	progress, free disk ◄── messages: phase, done and total ◄──────────┘
//
// Apart from its files, a build takes memory and processor time. The worker has a memory limit of
// its own, and the operating system gives it less processor time than the serving process (nice). A
// worker ends with the serving process: when that process dies, the pipe that the worker reads is
// closed.
//
//	command.go  [Command]: the side of the serving process
//	serve.go    [Serve]: the worker
//	pace.go     [Throttled]: rests and progress of a build, in either process
package worker
