package bench

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
)

// TestGroupsThatTakeLongMustBeNamed checks which groups of rows are measured for a list of names.
func TestGroupsThatTakeLongMustBeNamed(t *testing.T) {
	groupNames := func(chosen []rowGroup) (names []string) {
		for _, group := range chosen {
			names = append(names, group.name)
		}
		return names
	}

	t.Run("no names", func(t *testing.T) {
		var want []string
		for _, group := range groups {
			if !group.onlyIfNamed {
				want = append(want, group.name)
			}
		}
		if len(want) == 0 || len(want) == len(groups) {
			t.Fatalf("groups that need not be named: got %d of %d, want some but not all", len(want), len(groups))
		}
		got, err := chooseGroups(nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, groupNames(got)); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
	})

	t.Run("two names", func(t *testing.T) {
		want := []string{"disk", "reads"}
		got, err := chooseGroups(want)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, groupNames(got)); diff != "" {
			t.Errorf("groups (-want +got):\n%s", diff)
		}
	})

	t.Run("an unknown name", func(t *testing.T) {
		if got, err := chooseGroups([]string{"nope"}); err == nil {
			t.Errorf("chooseGroups: got %v, want an error", groupNames(got))
		}
	})
}

func TestRunWithoutToolsFails(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const want = "not installed"
	if _, err := Run(t.Context(), measure.Options{Only: []string{"reads"}}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Run: got error %v, want one with %q", err, want)
	}
}
