// Package operation keeps the operations of a process, its long-running tasks: each is started, watched and cancelled by its id, and its
// outcome can still be asked later, also after a restart.
//
//	Start ──► PENDING ──► RUNNING ──► SUCCEEDED   its function returned
//	             │           ├──────► FAILED      its function returned an error, or a restart interrupted it
//	             └───────────┴──────► CANCELLED   an operator cancelled it
//
// Every operation is one small file, replaced atomically when its state changes: it is there before [Manager.Start] returns,
// so no operation that a caller knows of is lost. An operation that stopping the process interrupts stays RUNNING in its file. The
// next process continues it, if its kind has said how ([Manager.OnRestart]), or else marks it FAILED.
//
// [Manager.Run] owns the goroutines of all operations. An operation that conflicts with another one is refused when it is started, and the
// error names the other one. There is no queue, so no operation begins when its operator has left.
//
// A running operation reports a [replay.PhaseProgress], its phase and how much of it is done. The manager takes a sample every second, and
// estimates the rate and the remaining time.
package operation
