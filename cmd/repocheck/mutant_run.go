package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// survivalRuns is how often a test must pass with a mutant before the mutant counts as survived.
const survivalRuns = 3

// maxOutputBytes is how much of the end of a test's output is kept. Failures are at the end.
const maxOutputBytes = 4000

// runner runs tests of the module at root, with and without mutants.
type runner struct {
	root    string        // absolute
	tmp     string        // absolute; no other runner uses this folder
	timeout time.Duration // of one run of one test with a mutant

	// unmutated has the outcome of each test without any change, and binaries the path of the
	// compiled tests of each package.
	unmutated map[test]error
	binaries  map[string]string

	fileCount int // how many files were made so far, for their names
}

// verdict is the outcome of one mutant.
type verdict struct {
	mutant mutant
	killed bool // the test failed because of the mutant
	// err says why the mutant proves nothing: it does not fit the source, it does not compile, or
	// its test fails without it.
	err     error
	output  string // of the last run of the test
	elapsed time.Duration
}

// String returns the verdict as the report prints it.
func (v verdict) String() string {
	switch {
	case v.err != nil:
		return "ERROR"
	case v.killed:
		return "killed"
	default:
		return "SURVIVED"
	}
}

// tryMutant runs the test of a mutant with the mutant.
func (r *runner) tryMutant(ctx context.Context, m mutant) verdict {
	start := time.Now()
	v := verdict{mutant: m}
	v.killed, v.output, v.err = r.runWithMutant(ctx, m)
	v.elapsed = time.Since(start)
	return v
}

// runWithMutant runs the test of a mutant with the mutant, and reports whether the test failed.
// output is what the last run printed.
func (r *runner) runWithMutant(ctx context.Context, m mutant) (killed bool, output string, err error) {
	overlay, err := r.writeOverlay(m)
	if err != nil {
		return false, "", err
	}
	if err := r.checkUnmutated(ctx, m.test); err != nil {
		return false, "", err
	}

	binary, err := r.buildTests(ctx, m.test, overlay)
	if err != nil {
		return false, "", err
	}
	defer os.Remove(binary)

	// A test over random histories may miss the mutant in one run and notice it in the next.
	for range survivalRuns {
		var passed bool
		passed, output, err = r.runTest(ctx, m.test, binary, overlay, r.timeout)
		if err != nil || !passed {
			return err == nil, output, err
		}
	}
	return false, output, nil
}

// checkUnmutated returns an error if a test fails without any change, because such a test proves
// nothing. It runs each test once.
func (r *runner) checkUnmutated(ctx context.Context, t test) error {
	if _, done := r.unmutated[t]; !done {
		r.unmutated[t] = r.runUnmutated(ctx, t)
	}
	return r.unmutated[t]
}

// runUnmutated returns an error unless a test passes without any change.
func (r *runner) runUnmutated(ctx context.Context, t test) error {
	binary, built := r.binaries[t.pkg]
	if !built {
		var err error
		if binary, err = r.buildTests(ctx, t, ""); err != nil {
			return err
		}
		r.binaries[t.pkg] = binary
	}

	// On a busy machine, the limit for mutants may be too short for a test that passes.
	passed, output, err := r.runTest(ctx, t, binary, "", max(r.timeout, defaultTimeout))
	switch {
	case err != nil:
		return err
	case !passed:
		return fmt.Errorf("%s fails without any change:\n%s", t, output)
	case !strings.Contains(output, "--- PASS: "):
		return fmt.Errorf("%s ran no test", t)
	}
	return nil
}

// writeOverlay writes the changed files of a mutant and a file that names them for the go command,
// whose path it returns.
func (r *runner) writeOverlay(m mutant) (string, error) {
	changed, err := m.apply(os.DirFS(r.root))
	if err != nil {
		return "", err
	}
	r.fileCount++
	dir := filepath.Join(r.tmp, fmt.Sprintf("mutant%d", r.fileCount))

	// The go command reads each file on the right in place of the one on the left.
	replace := make(map[string]string)
	for file, text := range changed {
		to := filepath.Join(dir, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(r.root, filepath.FromSlash(file))] = to
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, data, 0o600)
}

// buildTests compiles the tests of t's package and returns the path of the binary.
func (r *runner) buildTests(ctx context.Context, t test, overlay string) (string, error) {
	r.fileCount++
	binary := filepath.Join(r.tmp, fmt.Sprintf("binary%d.test", r.fileCount))
	if err := os.MkdirAll(r.tmp, 0o755); err != nil {
		return "", err
	}

	// Without the tables for debuggers (-s -w), linking takes half the time.
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	//nolint:gosec // whoever tries mutants wrote them
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir = r.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("does not build: %w\n%s", err, out)
	}
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s has no tests", t.pkg)
	}
	return binary, nil
}

// runTest runs t from binary and reports whether it passed, with the end of what it printed.
func (r *runner) runTest(ctx context.Context, t test, binary, overlay string, timeout time.Duration) (passed bool, output string, err error) {
	// At its own limit, the test prints where it hangs. The limit of ctx is longer, for a process
	// that does not stop at its own.
	ctx, cancel := context.WithTimeout(ctx, timeout+10*time.Second)
	defer cancel()
	args := []string{"-test.v", "-test.short=false", "-test.run", t.run, "-test.timeout", timeout.String()}
	for flag := range strings.FieldsSeq(t.flags) {
		if flag == "-short" {
			flag = "-test.short"
		}
		args = append(args, flag)
	}

	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(r.root, filepath.FromSlash(t.pkg))
	cmd.WaitDelay = 5 * time.Second
	if overlay != "" {
		// Some tests build a program of this repository, which must have the mutant, too.
		cmd.Env = append(os.Environ(), strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out
	err = cmd.Run()
	text := out.String()
	if len(text) > maxOutputBytes {
		text = "…" + text[len(text)-maxOutputBytes:]
	}

	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, text, nil
	case errors.As(err, &exit): // the test has failed
		return false, text, nil
	default: // the test did not run
		return false, text, err
	}
}
