package main

import (
	"cmp"
	"math"
	"syscall"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

const (
	// defaultConnections is the number of connections without --max-connections, if the limit of open files allows it.
	defaultConnections = 10_000
	// storeFiles is how many files the stores may have open: 1000 of each of the four that serve, and of one that is being built.
	storeFiles = 5 * 1000
	// otherFiles is for everything else: the log, archive and snapshots, calls to other nodes, the worker, and files of access control.
	otherFiles = 500
)

// openFileLimit returns how many files the process may have open, connections included; 0 means that it is not known. It is the hard
// limit, because Go raises the soft one to it when a program starts.
func openFileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // the types differ from system to system
}

// connectionLimit returns how many connections the process may have open, given the value of --max-connections and the limit of open files;
// a value of 0 stands for the default. The stores get at most half of the files: with a low limit they seldom have many tables, and a
// process without connections would be of no use.
func connectionLimit(given int, files uint64) (int, error) {
	if files == 0 {
		return cmp.Or(given, defaultConnections), nil
	}

	reserved := min(storeFiles+otherFiles, files/2)
	most := int(max(1, min(files-reserved, math.MaxInt32)))
	if given > most {
		return 0, command.Usagef("--max-connections must be at most %d, is %d: this process may have %d files open (ulimit -n), "+
			"of which %d are for its stores, its log and other files", most, given, files, reserved)
	}
	return cmp.Or(given, min(defaultConnections, most)), nil
}
