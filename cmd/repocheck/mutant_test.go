package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// validMutant is the text of a mutant without an error. validChanges is the part after its head.
const validMutant = `# invariant: I3, I12
# test: ./a/b -run ^TestX$ -short
# Half a commit.
` + validChanges

const validChanges = `
--- a/b/x.go
	one()
	two()
+++
	one()
--- c/y.go
	three()
+++
`

// TestParseMutantReadsHeadAndEdits parses a mutant with two invariants and edits of two files.
func TestParseMutantReadsHeadAndEdits(t *testing.T) {
	got, err := parseMutant("a/testdata/mutants/m.mutant", validMutant)
	if err != nil {
		t.Fatal(err)
	}

	want := mutant{
		name:       "a/testdata/mutants/m.mutant",
		invariants: []string{"I3", "I12"},
		test:       test{pkg: "./a/b", run: "^TestX$", flags: "-short"},
		edits: []edit{
			{file: "a/b/x.go", old: "\tone()\n\ttwo()\n", new: "\tone()\n"},
			{file: "c/y.go", old: "\tthree()\n"},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mutant{}, test{}, edit{})); diff != "" {
		t.Errorf("mutant (-want +got):\n%s", diff)
	}
}

// TestParseMutantRejectsMalformedFiles changes one text of a valid mutant in each case.
func TestParseMutantRejectsMalformedFiles(t *testing.T) {
	for name, tc := range map[string]struct{ from, to, wantErr string }{
		"no invariant":                  {"# invariant: I3, I12\n", "", "no line # invariant:"},
		"bad invariant":                 {"I3", "3", `x:1: "3" is not an invariant`},
		"a list that ends with a comma": {"I12\n", "\n", `x:1: "" is not an invariant`},
		"two lists":                     {"I12\n", "I12\n# invariant: I4\n", "x:2: a second line # invariant"},
		"no test":                       {"# test: ./a/b -run ^TestX$ -short\n", "", "no line # test:"},
		"two tests":                     {"# Half a commit.", "# test: ./a -run T", "a second line # test"},
		"test without run":              {"-run ^TestX$ ", "", "./PACKAGE -run REGEXP"},
		"foreign package":               {"./a/b -run", "example.com/a -run", "./PACKAGE -run REGEXP"},
		"bad regexp":                    {"^TestX$", "(", "missing closing )"},
		"text before ---":               {"--- a/b/x.go", "a/b/x.go", "x:5: want --- and a file"},
		"file outside":                  {"a/b/x.go", "../x.go", "is not the path of a Go file"},
		"absolute file":                 {"a/b/x.go", "/x.go", "is not the path of a Go file"},
		"not Go":                        {"a/b/x.go", "go.mod", "is not the path of a Go file"},
		"no +++":                        {"three()\n+++\n", "three()\n", "no +++ after ---"},
		"nothing old":                   {"\tthree()\n", "\n", "are empty, or equal"},
		"nothing new":                   {"\ttwo()\n", "", "are empty, or equal"},
		"no change":                     {validChanges, "", "no change"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(validMutant, tc.from, tc.to, 1)
			if text == validMutant {
				t.Fatalf("text of the mutant: got it without a change, want %q replaced by %q", tc.from, tc.to)
			}
			if _, err := parseMutant("x", text); err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("parseMutant: got error %v, want one with %q", err, tc.wantErr)
			}
		})
	}
}

// TestApplyNeedsLinesThatOccurOnce applies edits to a file of four lines.
func TestApplyNeedsLinesThatOccurOnce(t *testing.T) {
	root := fstest.MapFS{"x.go": {Data: []byte("first\nab\nb\nlast\n")}}
	for name, tc := range map[string]struct {
		edits    []edit
		wantText string
		wantErr  string // a part of the error
	}{
		"first line":      {[]edit{{"x.go", "first\n", "1\n2\n"}}, "1\n2\nab\nb\nlast\n", ""},
		"last line":       {[]edit{{"x.go", "last\n", ""}}, "first\nab\nb\n", ""},
		"whole line only": {[]edit{{"x.go", "b\n", "c\n"}}, "first\nab\nc\nlast\n", ""},
		"two edits":       {[]edit{{"x.go", "ab\n", "c\n"}, {"x.go", "c\nb\n", "2\n"}}, "first\n2\nlast\n", ""},
		"absent":          {[]edit{{"x.go", "c\n", ""}}, "", "occur 0 times"},
		"twice":           {[]edit{{"x.go", "ab\n", "b\n"}, {"x.go", "b\n", ""}}, "", "occur 2 times"},
		"no file":         {[]edit{{"y.go", "c\n", ""}}, "", "not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			changed, err := mutant{edits: tc.edits}.apply(root)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("apply: got error %v, want one with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := changed["x.go"]; got != tc.wantText {
				t.Errorf("text after the edits: got %q, want %q", got, tc.wantText)
			}
		})
	}
}

// TestMutantsFitTheSource checks that all mutants of the repository fit its source and name a test
// that exists. It does not run them.
func TestMutantsFitTheSource(t *testing.T) {
	root := os.DirFS("../..")
	found, err := findMutants(root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Fatal("mutants of the repository: got none, want some")
	}
	for _, m := range found {
		if _, err := m.apply(root); err != nil {
			t.Error(err)
		}
		if !testExists(t, m.test) {
			t.Errorf("test of %s: got none in %s that %q matches, want one", m.name, m.test.pkg, m.test.run)
		}
	}
}

// testExists reports whether the package has a test that the regular expression names.
func testExists(t *testing.T, wanted test) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", wanted.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}

	// The part behind the slash names subtests, which do not occur as functions in the source.
	topLevel, _, _ := strings.Cut(wanted.run, "/")
	topLevelRun := regexp.MustCompile(topLevel)
	testFunc := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range testFunc.FindAllSubmatch(text, -1) {
			if topLevelRun.Match(found[1]) {
				return true
			}
		}
	}
	return false
}

// TestFindMutantsSkipsForeignFolders checks that findMutants finds the mutants whose names match,
// and only in folders of mutants.
func TestFindMutantsSkipsForeignFolders(t *testing.T) {
	file := &fstest.MapFile{Data: []byte(validMutant)}
	root := fstest.MapFS{
		"a/testdata/mutants/one.mutant":   file,
		"b/c/testdata/mutants/two.mutant": file,
		"b/c/testdata/mutants/README":     file,
		"b/testdata/three.mutant":         file,
		".git/testdata/mutants/no.mutant": file,
	}
	for only, want := range map[string]string{"": "one two", "two": "two", "^a/": "one", "three": ""} {
		t.Run("only "+only, func(t *testing.T) {
			found, err := findMutants(root, regexp.MustCompile(only))
			if err != nil {
				t.Fatal(err)
			}

			names := make([]string, len(found))
			for i, m := range found {
				names[i] = mutantBaseName(m.name)
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("mutants: got %q, want %q", got, want)
			}
		})
	}
}
