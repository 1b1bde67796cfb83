package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

func TestPickGroups(t *testing.T) {
	apart := slices.ContainsFunc(rows, func(r rowGroup) bool { return r.apart })
	all, err := pick(nil)
	if err != nil || !apart || len(all) == 0 || slices.ContainsFunc(all, func(r rowGroup) bool { return r.apart }) {
		t.Errorf("without names: %v, %v", all, err)
	}
	if some, err := pick([]string{"disk", "reads"}); err != nil || len(some) != 2 || some[0].name != "disk" {
		t.Errorf("disk, reads: %v, %v", some, err)
	}
	if _, err := pick([]string{"nope"}); err == nil {
		t.Error("an unknown name was accepted")
	}
}

func TestRunWithoutTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Run(t.Context(), measure.Options{Only: []string{"reads"}}); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("without tools: %v", err)
	}
}
