package replaycmd

import (
	"errors"
	"strings"
	"testing"
)

// TestErasureNeedsTheIDAgain: an erasure is confirmed only by typing the id of the user, or the
// number of several users.
func TestErasureNeedsTheIDAgain(t *testing.T) {
	one := []string{"ann"}
	three := []string{"ann", "bob", "cid"}

	for _, c := range []struct {
		name  string
		users []string
		typed string
		asks  string // in the question
		want  error
	}{
		{"the same id", one, "ann\n", "erases the user ann for good", nil},
		{"the same id on Windows", one, "ann\r\n", "erases the user ann for good", nil},
		{"another id", one, "anne\n", "erases the user ann for good", errNotConfirmed},
		{"yes", one, "y\n", "erases the user ann for good", errNotConfirmed},
		{"an empty line", one, "\n", "erases the user ann for good", errNotConfirmed},
		{"no line", one, "", "erases the user ann for good", errNotConfirmed},
		{"the number of users", three, "3\n", "erases 3 users for good", nil},
		{"the first of several users", three, "ann\n", "erases 3 users for good", errNotConfirmed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var question strings.Builder
			if err := confirmErasure(c.users, strings.NewReader(c.typed), &question); !errors.Is(err, c.want) {
				t.Errorf("expected %v, got %v", c.want, err)
			}
			if !strings.Contains(question.String(), c.asks) {
				t.Errorf("expected a question that contains %q, got %q", c.asks, question.String())
			}
		})
	}
}
