package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestBenchRefusesCgo demands that only programs that are built as released ones measure, and that each build says which it is.
func TestBenchRefusesCgo(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "skein", "bench", "--only", "nothing").CombinedOutput()
	refused := strings.Contains(string(out), "built with cgo")
	if static := version().Static; err == nil || refused == static {
		t.Errorf("without cgo: %v, %v: %s", static, err, out)
	}
}
