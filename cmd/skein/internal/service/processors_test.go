package service

import (
	"runtime"
	"testing"
)

// TestRaiseProcs has the environment win, and otherwise no fewer processors than the least.
func TestRaiseProcs(t *testing.T) { //nolint:paralleltest // it changes the process
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	t.Setenv("GOMAXPROCS", "1")
	if RaiseProcs(); runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("GOMAXPROCS=1 is raised to %d", runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	if RaiseProcs(); runtime.GOMAXPROCS(0) != leastProcs {
		t.Errorf("one processor is raised to %d, want %d", runtime.GOMAXPROCS(0), leastProcs)
	}
	runtime.GOMAXPROCS(leastProcs + 1)
	if RaiseProcs(); runtime.GOMAXPROCS(0) != leastProcs+1 {
		t.Errorf("%d processors became %d", leastProcs+1, runtime.GOMAXPROCS(0))
	}
}
