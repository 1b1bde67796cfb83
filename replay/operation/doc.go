// Package operation keeps the long work of a process: it is started, watched and cancelled by its id, and what became of
// it can still be asked later, also after a restart.
//
//	Do ──► PENDING ──► RUNNING ──► SUCCEEDED   the work returned
//	          │           ├──────► FAILED      the work returned an error, or was interrupted by a restart
//	          └───────────┴──────► CANCELLED   an operator cancelled it
//
// Every operation is one small file, replaced atomically when its state changes: it is there before [Manager.Do] returns,
// so no operation that a caller knows of is lost. Work that stopping the process interrupts stays RUNNING in its file. The
// next process continues with it, if its kind has said how ([Manager.OnRestart]), or else marks it FAILED.
//
// [Manager.Run] owns the goroutines of all work. An operation that conflicts with another one is refused when it is started, and the
// error names the other one. There is no queue, so no operation begins when its operator has left.
package operation
