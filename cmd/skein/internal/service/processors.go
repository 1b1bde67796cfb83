package service

import (
	"os"
	"runtime"
)

// leastProcs is the number of goroutines that may run at a time, even with fewer cores. With one, a call waits behind a fold or a
// compaction until the runtime preempts that, after 10 ms, or behind a system call until the runtime notices that it blocks. With
// more, the kernel shares the core among threads. docs/decisions/0032-processors.md has the figures.
const minProcs = 4

// RaiseProcs lets at least leastProcs goroutines run at a time, unless GOMAXPROCS in the environment says how many.
func RaiseMaxProcs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		runtime.GOMAXPROCS(minProcs)
	}
}
