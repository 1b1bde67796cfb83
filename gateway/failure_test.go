package gateway

import (
	"fmt"
	"testing"
)

func TestInvalidNamesManyFieldsOnce(t *testing.T) {
	var many []violation
	for i := range 100 {
		many = append(many, invalidField(fmt.Sprintf("f[%d]", i), "is bad"))
	}
	f := invalid(many...)
	if f.Error() != "f[0] is bad (and 99 more)" || len(f.fields) != maxViolations {
		t.Errorf("%s, %d fields", f, len(f.fields))
	}
}
