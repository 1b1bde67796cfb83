package service

import (
	"os"
	"runtime"
)

// leastProcs is how many goroutines may run at a time, even on a machine or in a container with fewer cores. With one, a call waits
// behind a fold or a compaction until the runtime preempts it, after 10 ms, and behind a system call until the runtime notices
// that it blocks. With more, the kernel shares the core among threads, in slices of 3 ms and less, and a thread that wakes up runs
// first. docs/decisions/0032-processors.md has the figures.
const leastProcs = 4

// RaiseProcs lets at least leastProcs goroutines run at a time, unless GOMAXPROCS in the environment says how many.
func RaiseProcs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < leastProcs {
		runtime.GOMAXPROCS(leastProcs)
	}
}
