//go:build unix

package main

import "syscall"

// keepPrivate has all that the process makes be its user's alone: log, stores, archive, snapshots, files of imports and exports hold what
// users did. A stricter mask stays.
func keepPrivate() { syscall.Umask(syscall.Umask(0o077) | 0o077) }
