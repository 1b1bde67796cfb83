// Package operation keeps the long work of a process: it is started, watched and cancelled by its id, and what became of
// it can still be asked later, also after a restart.
//
//	Do ──► PENDING ──► RUNNING ──► SUCCEEDED   the work returned
//	          │           ├──────► FAILED      the work returned an error, or was interrupted by a restart
//	          └───────────┴──────► CANCELLED   somebody asked for it
//
// Every operation is one small file, replaced atomically when its state changes: it is there before [Manager.Do] returns,
// so no operation that a caller knows of is lost. Work that stopping the process interrupts stays RUNNING in its file. The
// next process continues with it, if its kind has said how ([Manager.OnRestart]), or else marks it FAILED.
//
// [Manager.Run] owns the goroutines of all work. What stands in each other's way is refused when it is started, naming
// what is in the way: there is no queue of operations that begin when nobody looks.
package operation
