// Package operation manages the operations of a process, its long-running tasks. Each operation is
// started, watched and cancelled by its id. Its outcome can still be read later, even after a
// restart.
//
//	Start ──► PENDING ──► RUNNING ──► SUCCEEDED   its function returned
//	             │           ├──────► FAILED      its function returned an error, or a restart interrupted it
//	             └───────────┴──────► CANCELLED   an operator cancelled it
//
// Every operation is stored as one small file, which is replaced atomically when the state of the
// operation changes. The file exists before [Manager.Start] returns, so no operation that a caller
// knows of is lost. If the process stops while an operation runs, the file still says RUNNING. The
// next process continues the operation if [Manager.OnRestart] has set a function for its kind, and
// marks it FAILED otherwise.
//
// [Manager.Run] owns the goroutines of all operations. Start rejects an operation that conflicts
// with one that has not ended, with an error that names the other one. Conflicting operations are
// not queued: a queued operation might begin after the operator who started it has left.
//
// A running operation reports its phase and how much of the phase is done as a
// [replay.PhaseProgress]. The manager samples it every second and estimates the rate and the
// remaining time.
package operation
