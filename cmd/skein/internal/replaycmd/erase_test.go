package replaycmd

import (
	"errors"
	"strings"
	"testing"
)

// TestErasureNeedsTheIDAgain: an erasure is confirmed only by typing the id of the user, or the
// number of several users.
func TestErasureNeedsTheIDAgain(t *testing.T) {
	oneUser := []string{"ann"}
	threeUsers := []string{"ann", "bob", "cid"}

	for _, c := range []struct {
		name         string
		users        []string
		input        string
		wantQuestion string // a part of it
		wantErr      error
	}{
		{"the same id", oneUser, "ann\n", "erases the user ann for good", nil},
		{"the same id on Windows", oneUser, "ann\r\n", "erases the user ann for good", nil},
		{"another id", oneUser, "anne\n", "erases the user ann for good", errNotConfirmed},
		{"yes", oneUser, "y\n", "erases the user ann for good", errNotConfirmed},
		{"an empty line", oneUser, "\n", "erases the user ann for good", errNotConfirmed},
		{"no line", oneUser, "", "erases the user ann for good", errNotConfirmed},
		{"the number of users", threeUsers, "3\n", "erases 3 users for good", nil},
		{"the first of several users", threeUsers, "ann\n", "erases 3 users for good", errNotConfirmed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var question strings.Builder
			err := confirmErasure(c.users, strings.NewReader(c.input), &question)
			if !errors.Is(err, c.wantErr) {
				t.Errorf("input %q: got %v, want %v", c.input, err, c.wantErr)
			}
			if !strings.Contains(question.String(), c.wantQuestion) {
				t.Errorf("question: got %q, want it to contain %q", question.String(), c.wantQuestion)
			}
		})
	}
}
