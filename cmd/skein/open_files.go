package main

import (
	"cmp"
	"math"
	"syscall"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
)

const (
	// defaultConnections is the number of connections without --max-connections, if the limit of
	// open files allows it.
	defaultConnections = 10_000
	// storeFiles is how many files the stores may have open: 1000 each for the four that serve and
	// for one that is being built.
	storeFiles = 5 * 1000
	// otherFiles is how many files everything else may have open: the log, the archive, snapshots,
	// calls to other nodes, the worker process, and the files of access control.
	otherFiles = 500
)

// openFileLimit returns how many files the process may have open, connections included; 0 means
// that it is not known. It is the hard limit, because Go raises the soft one to it when a program
// starts.
func openFileLimit() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // the types differ from system to system
}

// connectionLimit returns how many connections the process may have open, given the value of
// --max-connections and the limit of open files. A value of 0 means the default. Half of the files
// are left for connections even if the stores may need more: on a machine with a low limit the
// stores are seldom large, and a process without connections would be of no use.
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
