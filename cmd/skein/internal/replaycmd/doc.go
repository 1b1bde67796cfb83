// Package replaycmd is the command `skein replay`. Most of its commands start or show operations of
// a running service: rebuild, verify, repair, rollback, erase. `skein replay prepare` builds stores
// for another version beside a running service. `skein replay archive` reads and checks the archive
// of the log, and restores a lost log from it.
package replaycmd
