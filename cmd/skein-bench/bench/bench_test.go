package bench

import (
	"slices"
	"strings"
	"testing"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

func TestGroupsThatTakeLongMustBeNamed(t *testing.T) {
	onlyIfNamed := func(g rowGroup) bool { return g.onlyIfNamed }
	all, err := chooseGroups(nil)
	if err != nil || !slices.ContainsFunc(groups, onlyIfNamed) || len(all) == 0 || slices.ContainsFunc(all, onlyIfNamed) {
		t.Errorf("without names: expected the groups that need not be named, got %v, %v", all, err)
	}
	if some, err := chooseGroups([]string{"disk", "reads"}); err != nil || len(some) != 2 || some[0].name != "disk" {
		t.Errorf("expected disk and reads, got %v, %v", some, err)
	}
	if _, err := chooseGroups([]string{"nope"}); err == nil {
		t.Error("expected an error for an unknown name")
	}
}

func TestRunWithoutTools(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Run(t.Context(), measure.Options{Only: []string{"reads"}}); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("without tools: %v", err)
	}
}
