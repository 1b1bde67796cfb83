package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// writeModule writes a small module of its own, in which go test runs.
func writeModule(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/m\n\ngo 1.26\n"
	writeFiles(t, dir, files)
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-vet=off") // go vet takes longer than the tests of the module
}

// writeFiles writes files, and the folders that they need, into dir.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// runTestsOfModule runs `repocheck test` over all packages of the current module. It returns what
// the command printed, and what it wrote to the file of failures.
func runTestsOfModule(t *testing.T, results string) (printed, failures string, err error) {
	t.Helper()
	var out strings.Builder
	runErr := run(t.Context(), []string{"test", "-results", results, "./..."}, &out)

	// The command writes the file of failures also if it fails, and if there are none.
	text, err := os.ReadFile(filepath.Join(results, failuresFile))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), string(text), runErr
}

// TestPassingPackagesAreReportedAndTimed checks that a run prints a line per package, without what
// its tests log, and that slowest lists the packages and their tests.
func TestPassingPackagesAreReportedAndTimed(t *testing.T) {
	results := t.TempDir()
	writeModule(t, map[string]string{
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Log(\"quiet\") }\n",
		"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { t.Run(\"sub\", func(*testing.T) {}) }\n",
	})

	printed, failures, err := runTestsOfModule(t, results)
	if err != nil {
		t.Fatalf("run: got error %v, want none; output:\n%s", err, printed)
	}
	if failures != "" {
		t.Errorf("failures: got %q, want none", failures)
	}
	if want := "ok  \texample.com/m/a\t"; !strings.Contains(printed, want) {
		t.Errorf("output: got\n%s\nwant %q in it", printed, want)
	}
	if strings.Contains(printed, "quiet") {
		t.Errorf("output: got\n%s\nwant nothing that a test logs", printed)
	}

	var table strings.Builder
	if err := run(t.Context(), []string{"slowest", "-results", results}, &table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"example.com/m/a\n", "example.com/m/a TestA\n", "example.com/m/b TestB\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("table: got\n%s\nwant %q in it", table.String(), want)
		}
	}
	if strings.Contains(table.String(), "TestB/sub") {
		t.Errorf("table: got\n%s\nwant no subtest in addition to its test", table.String())
	}
}

// TestFailureShowsTheEndOfTheInnermostTest checks that the file of failures names the subtest that
// has failed, once, with the last lines of its output.
func TestFailureShowsTheEndOfTheInnermostTest(t *testing.T) {
	writeModule(t, map[string]string{
		"a/a_test.go": `package a

import "testing"

func TestA(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		for i := range 100 {
			t.Logf("line %d", i)
		}
		t.Fail()
	})
}
`,
	})

	printed, failures, err := runTestsOfModule(t, t.TempDir())
	if err == nil {
		t.Fatalf("run with a failing test: got no error, want one; output:\n%s", printed)
	}
	if got := strings.Count(failures, "FAILED: "); got != 1 {
		t.Errorf("failures: got %d, want 1:\n%s", got, failures)
	}
	if want := "FAILED: example.com/m/a TestA/sub\n"; !strings.Contains(failures, want) {
		t.Errorf("failures: got\n%s\nwant %q in them", failures, want)
	}
	if !strings.Contains(failures, "line 99\n") || strings.Contains(failures, "line 10\n") {
		t.Errorf("failures: got\n%s\nwant the last %d lines with line 99 and without line 10", failures, tailLines)
	}
}

// TestFailureWithoutATestIsShown checks failures that no test reports itself.
func TestFailureWithoutATestIsShown(t *testing.T) {
	for name, test := range map[string]struct{ source, want string }{
		"a package that does not build": {
			"package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { undefinedName() }\n",
			"undefined: undefinedName",
		},
		"a TestMain that fails after its tests": {
			"package a\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) {\n\tm.Run()\n" +
				"\tfmt.Println(\"leaked\")\n\tos.Exit(3)\n}\n\nfunc TestA(*testing.T) {}\n",
			"leaked",
		},
		"a panic": {
			"package a\n\nimport \"testing\"\n\nfunc TestA(*testing.T) { panic(\"on purpose\") }\n",
			"on purpose",
		},
	} {
		t.Run(name, func(t *testing.T) {
			writeModule(t, map[string]string{"a/a_test.go": test.source})
			printed, failures, err := runTestsOfModule(t, t.TempDir())
			if err == nil {
				t.Errorf("run: got no error, want one; output:\n%s", printed)
			}
			if got := strings.Count(failures, "FAILED: "); got != 1 {
				t.Errorf("failures: got %d, want 1:\n%s", got, failures)
			}
			if !strings.Contains(failures, test.want) {
				t.Errorf("failures: got\n%s\nwant %q in them", failures, test.want)
			}
		})
	}
}

// TestRunWithoutTestsFails runs a module that has no test.
func TestRunWithoutTestsFails(t *testing.T) {
	writeModule(t, map[string]string{"a/a.go": "package a\n"})
	const want = "no test ran"
	if printed, _, err := runTestsOfModule(t, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("run: got error %v, want one with %q; output:\n%s", err, want, printed)
	}
}

// TestSlowestComeFirst checks that slowest lists the slowest packages and tests, and no subtests.
func TestSlowestComeFirst(t *testing.T) {
	dir := t.TempDir()
	text := "test\tp\t\t1.00\nrace\tq\t\t30.00\ntest\tp\tTestA\t0.50\ntest\tp\tTestA/sub\t9.00\ntest\tp\tTestB\t0.70\n"
	if err := os.WriteFile(filepath.Join(dir, durationsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	var got strings.Builder
	if err := run(t.Context(), []string{"slowest", "-results", dir, "-n", "1"}, &got); err != nil {
		t.Fatal(err)
	}
	want := "\nslowest packages, in seconds\n    30.0  race    q\n\nslowest tests, in seconds\n     0.7  test    p TestB\n"
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
