package service

import (
	"os"
	"runtime"
)

// minProcs is the least value of GOMAXPROCS, the number of threads that may run Go code at the same
// time, even on a machine with fewer cores. With one thread, a call waits behind a fold or a
// compaction until the runtime preempts that after 10 ms, or behind a system call until the runtime
// notices that the call blocks. With more threads, the kernel divides the core among them.
// docs/decisions/0032-processors.md has measurements.
const minProcs = 4

// RaiseMaxProcs raises GOMAXPROCS to minProcs if it is lower, unless the environment variable
// GOMAXPROCS sets it.
func RaiseMaxProcs() {
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		runtime.GOMAXPROCS(minProcs)
	}
}
