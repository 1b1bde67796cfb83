package replaycmd

import (
	"errors"
	"strings"
	"testing"
)

// TestErasureNeedsTheIDAgain: an erasure is confirmed only by typing the id of the user.
func TestErasureNeedsTheIDAgain(t *testing.T) {
	for _, c := range []struct {
		name, typed string
		want        error
	}{
		{"the same id", "ann\n", nil},
		{"the same id on Windows", "ann\r\n", nil},
		{"another id", "anne\n", errNotConfirmed},
		{"y for yes", "y\n", errNotConfirmed},
		{"an empty line", "\n", errNotConfirmed},
		{"no line", "", errNotConfirmed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var question strings.Builder
			if err := confirmErasure("ann", strings.NewReader(c.typed), &question); !errors.Is(err, c.want) {
				t.Errorf("expected %v, got %v", c.want, err)
			}
			if want := "erases the user ann for good"; !strings.Contains(question.String(), want) {
				t.Errorf("expected a question that contains %q, got %q", want, question.String())
			}
		})
	}
}
