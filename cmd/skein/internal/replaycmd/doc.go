// Package replaycmd is the command `skein replay`. Most of its commands start operations of a running service: rebuild, verify, repair,
// roll back, erase. The others work on the log of a stopped service: its archive, its restoration.
package replaycmd
