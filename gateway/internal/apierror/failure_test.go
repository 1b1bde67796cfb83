package apierror

import (
	"fmt"
	"testing"
)

func TestInvalidNamesTheFirstFieldAndCountsTheOthers(t *testing.T) {
	var many []Violation
	for i := range 100 {
		many = append(many, InvalidField(fmt.Sprintf("f[%d]", i), "is bad"))
	}
	f := Invalid(many...)
	if f.Error() != "f[0] is bad (and 99 more)" || len(f.Fields) != MaxViolations {
		t.Errorf("got %q with %d fields, expected f[0] and 99 more, with %d fields", f, len(f.Fields), MaxViolations)
	}
}
