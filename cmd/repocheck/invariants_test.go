package main

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// TestInvariantsHaveTestsAndMutants checks that docs/invariants.md names a test and a mutant for
// each invariant, that these exist, and that every number that is cited is defined.
func TestInvariantsHaveTestsAndMutants(t *testing.T) {
	problems, err := checkInvariants(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// TestCheckInvariantsFindsEachKindOfProblem checks a page and a repository with all kinds of
// problems.
func TestCheckInvariantsFindsEachKindOfProblem(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	repo := fstest.MapFS{
		invariantsPage: file("# Invariants\n\n## I1 One\n\n- Test: `TestOne`, `TestGone`\n- Mutant: `one`\n\n" +
			"## I2 Two\n\n- Test: `TestOne`\n- Mutant: `gone`\n\n## I2 Again\n\n## I4 Four\n"),
		"a/a.go":                        file("// Held (I1, I3).\n"),
		"a/a_test.go":                   file("func TestOne(t *testing.T) {}\n"),
		"a/testdata/mutants/m.mutant":   file("# invariant: I5\n"),
		"a/testdata/mutants/one.mutant": file("# invariant: I1\n"),
		".cache/x.md":                   file("I9\n"),
	}
	got, err := checkInvariants(repo)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a/a.go cites I3, which docs/invariants.md does not define",
		"a/testdata/mutants/m.mutant cites I5, which docs/invariants.md does not define",
		"docs/invariants.md: I1 names the test TestGone, which does not exist",
		"docs/invariants.md: I2 is defined twice",
		"docs/invariants.md: I2 names the mutant gone, which does not exist",
		"docs/invariants.md: I4 names no mutant",
		"docs/invariants.md: I4 names no test",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
