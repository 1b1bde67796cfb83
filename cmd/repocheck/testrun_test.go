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
	t.Setenv("GOFLAGS", "")
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

// runHere runs `repocheck test` over all packages of the current module. It returns what the command
// printed, and what it wrote to the file of failures.
func runHere(t *testing.T, results string) (printed, failures string, err error) {
	t.Helper()
	var out strings.Builder
	err = run(t.Context(), []string{"test", "-results", results, "./..."}, &out)
	text, readErr := os.ReadFile(filepath.Join(results, failuresFile))
	if readErr != nil {
		t.Fatal(readErr)
	}
	return out.String(), string(text), err
}

func TestPassingPackagesAreReportedAndTimed(t *testing.T) {
	results := t.TempDir()
	writeModule(t, map[string]string{
		"a/a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Log(\"quiet\") }\n",
		"b/b_test.go": "package b\n\nimport \"testing\"\n\nfunc TestB(t *testing.T) { t.Run(\"sub\", func(*testing.T) {}) }\n",
	})
	printed, failures, err := runHere(t, results)
	if err != nil || failures != "" {
		t.Fatalf("got error %v, failures %q, output:\n%s", err, failures, printed)
	}
	if !strings.Contains(printed, "ok  \texample.com/m/a\t") || strings.Contains(printed, "quiet") {
		t.Errorf("want only the results of packages, got:\n%s", printed)
	}

	var table strings.Builder
	if err := run(t.Context(), []string{"slowest", "-results", results}, &table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"example.com/m/a\n", "example.com/m/a TestA\n", "example.com/m/b TestB\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, table.String())
		}
	}
	if strings.Contains(table.String(), "TestB/sub") {
		t.Errorf("a subtest is listed in addition to its test:\n%s", table.String())
	}
}

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
	_, failures, err := runHere(t, t.TempDir())
	if err == nil {
		t.Fatal("want an error")
	}
	if strings.Count(failures, "FAILED: ") != 1 || !strings.Contains(failures, "FAILED: example.com/m/a TestA/sub\n") {
		t.Errorf("want one failure, of TestA/sub, got:\n%s", failures)
	}
	if !strings.Contains(failures, "line 99\n") || strings.Contains(failures, "line 10\n") {
		t.Errorf("want the last %d lines, got:\n%s", tailLines, failures)
	}
}

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
			_, failures, err := runHere(t, t.TempDir())
			if err == nil || !strings.Contains(failures, test.want) || strings.Count(failures, "FAILED: ") != 1 {
				t.Errorf("got error %v, want one failure with %q, got:\n%s", err, test.want, failures)
			}
		})
	}
}

func TestRunWithoutTestsFails(t *testing.T) {
	writeModule(t, map[string]string{"a/a.go": "package a\n"})
	if printed, _, err := runHere(t, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no test ran") {
		t.Errorf("got error %v, output:\n%s", err, printed)
	}
}

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
