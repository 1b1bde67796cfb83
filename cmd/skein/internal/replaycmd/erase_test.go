package replaycmd

import (
	"errors"
	"strings"
	"testing"
)

func TestErasureNeedsTheIDTwice(t *testing.T) {
	for _, c := range []struct {
		name, typed string
		want        error
	}{
		{"the same id", "ann\n", nil},
		{"the same id on Windows", "ann\r\n", nil},
		{"another id", "anne\n", errNotConfirmed},
		{"yes", "y\n", errNotConfirmed},
		{"an empty line", "\n", errNotConfirmed},
		{"no line", "", errNotConfirmed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked strings.Builder
			if err := confirmErasure("ann", strings.NewReader(c.typed), &asked); !errors.Is(err, c.want) {
				t.Errorf("expected %v, got %v", c.want, err)
			}
			if !strings.Contains(asked.String(), "erases the user ann for good") {
				t.Errorf("the question does not say what happens: %s", asked.String())
			}
		})
	}
}
