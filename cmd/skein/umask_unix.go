//go:build unix

package main

import "syscall"

// restrictUmask makes all files that the process creates accessible to its user alone, because the
// log, the stores, the archive, snapshots, imports and exports have personal data. A mask that
// forbids even more stays.
func restrictUmask() { syscall.Umask(syscall.Umask(0o077) | 0o077) }
