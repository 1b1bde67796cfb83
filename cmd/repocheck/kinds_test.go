package main

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// TestKindsAreDescribedOnce checks that only a few packages of the repository name several kinds of
// events.
func TestKindsAreDescribedOnce(t *testing.T) {
	problems, err := checkKinds(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// TestListsOfKindsAreFound checks that code that names several kinds of events is a problem, and
// that other code is none.
func TestListsOfKindsAreFound(t *testing.T) {
	const head = "package a\n\nimport (\n\t\"github.com/skein-feed/skein/events\"\n\tskeinv1 \"github.com/skein-feed/skein/proto/skein/v1\"\n)\n\n"
	for _, test := range []struct {
		name, file, code string
		wantProblem      string // the beginning of the problem, or empty if there must be none
	}{
		{"switch", "a/a.go", "func f(k events.Kind) {\n\tswitch k {\n\tcase events.Reacted:\n\t}\n}", "a/a.go:9:2 has a switch over kinds"},
		{
			"switch over messages", "a/a.go", "func f(m *skeinv1.Event) {\n\tswitch m.GetKind().(type) {\n\tcase *skeinv1.Event_Reacted:\n\t}\n}",
			"a/a.go:9:2 has a switch over kinds",
		},
		{"switch without a value", "a/a.go", "func f(k events.Kind) bool {\n\treturn k == events.Reacted || k == events.Played\n}", "a/a.go:9:9 lists kinds"},
		{"set", "a/a.go", "const set = 1<<events.Reacted | 1<<events.Played", "a/a.go:8:13 lists kinds"},
		{"call", "a/a.go", "var set = events.Kinds(events.Reacted, events.Played)", "a/a.go:8:11 lists kinds"},
		{"table", "a/a.go", "var names = map[events.Kind]string{events.Reacted: \"x\", events.Played: \"y\"}", "a/a.go:8:13 lists kinds"},
		{"table of structs", "a/a.go", "var rows = []row{{1, events.Reacted}, {2, events.Played}}", "a/a.go:8:12 lists kinds"},

		{"one kind", "a/a.go", "var set = events.Kinds(events.Reacted)", ""},
		{"messages", "a/a.go", "var msgs = []*skeinv1.Event{{Kind: &skeinv1.Event_Reacted{}}, {Kind: &skeinv1.Event_Played{}}}", ""},
		{"other constants", "a/a.go", "var set = events.KindsAbout(events.TopicSeen, events.TopicItems)", ""},
		{"test", "a/a_test.go", "var set = events.Kinds(events.Reacted, events.Played)", ""},
		{"fold", "projections/seen/a.go", "var set = events.Kinds(events.Reacted, events.Played)", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			problems, err := checkKinds(fstest.MapFS{
				"events/kind.go": {Data: []byte("package events\n\nconst (\n\tReacted Kind = 25\n\tPlayed Kind = 27\n)\n")},
				test.file:        {Data: []byte(head + test.code + "\n")},
			})
			if err != nil {
				t.Fatal(err)
			}
			if test.wantProblem == "" {
				if len(problems) > 0 {
					t.Errorf("problems: got %q, want none", problems)
				}
				return
			}
			if len(problems) != 1 || !strings.HasPrefix(problems[0], test.wantProblem) {
				t.Errorf("problems: got %q, want one that begins with %q", problems, test.wantProblem)
			}
		})
	}
}
