package apierror

import (
	"fmt"
	"testing"
)

func TestInvalidNamesTheFirstFieldAndCountsTheOthers(t *testing.T) {
	var violations []Violation
	for i := range 100 {
		violations = append(violations, InvalidField(fmt.Sprintf("f[%d]", i), "is bad"))
	}

	f := Invalid(violations...)
	if got, want := f.Error(), "f[0] is bad (and 99 more)"; got != want {
		t.Errorf("text: got %q, want %q", got, want)
	}
	if got := len(f.Fields); got != MaxViolations {
		t.Errorf("fields: got %d, want %d", got, MaxViolations)
	}
}
