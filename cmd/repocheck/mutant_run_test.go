package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMutantsGetTheirVerdicts runs the tool over a module of its own, with a mutant for every
// verdict.
func TestMutantsGetTheirVerdicts(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	// The module has two functions, of which only one is tested, and a test that always fails.
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("p/p.go", "package p\n\nfunc Add(a, b int) int {\n\treturn a + b\n}\n\nfunc Zero() int {\n\treturn 0\n}\n")
	write("p/p_test.go", "package p\n\nimport \"testing\"\n\n"+
		"func TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal(\"wrong sum\")\n\t}\n}\n\n"+
		"func TestBroken(t *testing.T) {\n\tt.Fatal(\"always\")\n}\n")
	write("docs/invariants.md", "## I1 One\n\n- Mutant: `killed`, `hangs`\n")

	mutate := func(name, invariant, test, from, to string) {
		t.Helper()
		write("p/testdata/mutants/"+name+".mutant",
			"# invariant: "+invariant+"\n# test: ./p -run "+test+"\n--- p/p.go\n"+from+"\n+++\n"+to+"\n")
	}
	mutate("killed", "I1", "^TestAdd$", "\treturn a + b", "\treturn a - b")
	mutate("hangs", "I1", "^TestAdd$", "\treturn a + b", "\tselect {}")
	mutate("survives", "I2", "^TestAdd$", "\treturn 0", "\treturn 1")
	mutate("nocompile", "I3", "^TestAdd$", "\treturn a + b", "\treturn a + c")
	mutate("nofit", "I4", "^TestAdd$", "\treturn a * b", "\treturn a + b")
	mutate("fails", "I5", "^TestBroken$", "\treturn 0", "\treturn 1")
	mutate("notest", "I6", "^TestAbsent$", "\treturn 0", "\treturn 1")

	// A test without any change is built once per run of the tool, so a run tries several mutants.
	for _, test := range []struct {
		args       string
		wantOutput []string // patterns that match parts of the output
		wantErr    string
	}{
		{"-gate", []string{`killed +I1 .*/killed\.mutant`, `all 1 mutants were killed`}, ""},
		{"-only hangs -timeout 1s", []string{`all 1 mutants were killed`}, ""},
		{
			"-only (killed|survives)",
			[]string{`killed +I1 .*/killed\.mutant`, `SURVIVED +I2 .*/survives\.mutant`},
			"1 of 2 mutants were not killed: p/testdata/mutants/survives.mutant",
		},
		{
			"-only (nocompile|nofit|fails|notest)",
			[]string{
				`ERROR +I3 .*/nocompile\.mutant .*\ndoes not build.*\n.*\n.*undefined: c\n`,
				`ERROR +I4 .*/nofit\.mutant .*\n.* occur 0 times`,
				`ERROR +I5 .*/fails\.mutant .*\n.* fails without any change`,
				`ERROR +I6 .*/notest\.mutant .*\n.* ran no test\n`,
			},
			"4 of 4 mutants were not killed: p/testdata/mutants/fails.mutant, p/testdata/mutants/nocompile.mutant, " +
				"p/testdata/mutants/nofit.mutant, p/testdata/mutants/notest.mutant",
		},
		{"-only nothing", nil, "no mutants"},
		{"-gate -only hangs", nil, "docs/invariants.md names 1 first mutants, and 0 files have their names"},
	} {
		t.Run(test.args, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), append([]string{"mutants", "-root", root}, strings.Fields(test.args)...), &out)
			gotErr := ""
			if err != nil {
				gotErr = err.Error()
			}
			if gotErr != test.wantErr {
				t.Errorf("run: got error %q, want %q", gotErr, test.wantErr)
			}
			for _, want := range test.wantOutput {
				if !regexp.MustCompile(want).MatchString(out.String()) {
					t.Errorf("output: got\n%s\nwant a match of %q in it", &out, want)
				}
			}
		})
	}
}
