package service

import (
	"runtime"
	"testing"
)

// TestRaiseMaxProcs: GOMAXPROCS is raised to minProcs if it is lower, unless the environment
// variable sets it.
func TestRaiseMaxProcs(t *testing.T) { //nolint:paralleltest // it changes the process
	atStart := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(atStart)

	for _, c := range []struct {
		name         string
		variable     string // the value of the environment variable; empty means that it is not set
		before, want int
	}{
		{"set by the environment", "1", 1, 1},
		{"one processor", "", 1, minProcs},
		{"more than enough processors", "", minProcs + 1, minProcs + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("GOMAXPROCS", c.variable)
			runtime.GOMAXPROCS(c.before)
			RaiseMaxProcs()
			if got := runtime.GOMAXPROCS(0); got != c.want {
				t.Errorf("GOMAXPROCS: got %d, want %d", got, c.want)
			}
		})
	}
}
