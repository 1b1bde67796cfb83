// Package replaycmd is the command `skein replay`: what replay can do for a running service (rebuild, verify, repair, roll back, erase,
// and the operations that these are), and for the log of one that does not run (its archive, its restoration).
package replaycmd
