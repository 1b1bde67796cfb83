package service

import (
	"runtime"
	"testing"
)

// TestRaiseProcs has the environment win, and otherwise no fewer processors than the least.
func TestRaiseProcs(t *testing.T) { //nolint:paralleltest // it changes the process
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	t.Setenv("GOMAXPROCS", "1")
	if RaiseMaxProcs(); runtime.GOMAXPROCS(0) != 1 {
		t.Errorf("GOMAXPROCS=1 is raised to %d", runtime.GOMAXPROCS(0))
	}
	t.Setenv("GOMAXPROCS", "")
	if RaiseMaxProcs(); runtime.GOMAXPROCS(0) != minProcs {
		t.Errorf("one processor is raised to %d, want %d", runtime.GOMAXPROCS(0), minProcs)
	}
	runtime.GOMAXPROCS(minProcs + 1)
	if RaiseMaxProcs(); runtime.GOMAXPROCS(0) != minProcs+1 {
		t.Errorf("%d processors became %d", minProcs+1, runtime.GOMAXPROCS(0))
	}
}
