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

// runs is how often a test must pass with a mutant before the mutant has survived.
const runs = 3

// runner runs tests of the module at root, with and without mutants.
type runner struct {
	root    string         // absolute
	tmp     string         // absolute, ours alone
	timeout time.Duration  // of one run of one test with a mutant
	plain   map[test]error // what became of each test without any change
	// binaries are the tests of packages without any change.
	binaries map[string]string
	count    int // of files made
}

// verdict is what became of one mutant.
type verdict struct {
	mutant  mutant
	killed  bool
	err     error // the mutant proves nothing: it does not fit, does not compile, or its test fails anyway
	output  string
	elapsed time.Duration
}

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

// try runs the test of m with m.
func (r *runner) try(ctx context.Context, m mutant) verdict {
	start := time.Now()
	v := verdict{mutant: m}
	v.killed, v.output, v.err = r.kill(ctx, m)
	v.elapsed = time.Since(start)
	return v
}

func (r *runner) kill(ctx context.Context, m mutant) (killed bool, output string, err error) {
	overlay, err := r.overlay(m)
	if err != nil {
		return false, "", err
	}
	if err := r.baseline(ctx, m.test); err != nil {
		return false, "", err
	}
	binary, err := r.build(ctx, m.test, overlay)
	if err != nil {
		return false, "", err
	}
	defer os.Remove(binary)
	// Over random histories even a test that sees the mutant may miss it once.
	for range runs {
		var passed bool
		if passed, output, err = r.run(ctx, m.test, binary, overlay, r.timeout); err != nil || !passed {
			return err == nil, output, err
		}
	}
	return false, output, nil
}

// baseline runs a test without any change, once; a test that fails anyway proves nothing.
func (r *runner) baseline(ctx context.Context, t test) error {
	if _, done := r.plain[t]; !done {
		r.plain[t] = r.runPlain(ctx, t)
	}
	return r.plain[t]
}

func (r *runner) runPlain(ctx context.Context, t test) error {
	binary, built := r.binaries[t.pkg]
	if !built {
		var err error
		if binary, err = r.build(ctx, t, ""); err != nil {
			return err
		}
		r.binaries[t.pkg] = binary
	}
	// Whether a test passes must not depend on how short the limit for mutants is, nor on how busy the machine is.
	passed, output, err := r.run(ctx, t, binary, "", max(r.timeout, defaultTimeout))
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

// overlay writes the changed files of m and the file that names them, whose path it returns.
func (r *runner) overlay(m mutant) (string, error) {
	changed, err := m.apply(os.DirFS(r.root))
	if err != nil {
		return "", err
	}
	r.count++
	dir := filepath.Join(r.tmp, fmt.Sprintf("mutant%d", r.count))
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

// build compiles the tests of t's package and returns the path of the binary.
func (r *runner) build(ctx context.Context, t test, overlay string) (string, error) {
	r.count++
	binary := filepath.Join(r.tmp, fmt.Sprintf("binary%d.test", r.count))
	if err := os.MkdirAll(r.tmp, 0o755); err != nil {
		return "", err
	}
	// Without what only debuggers read, linking takes half the time.
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

// run runs t from binary and reports whether it passed, with the end of what it printed.
func (r *runner) run(ctx context.Context, t test, binary, overlay string, timeout time.Duration) (passed bool, output string, err error) {
	// The limit in the test prints where it hangs; ours comes later, for a process that does not react.
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
		// For tests that build a program of ours themselves.
		cmd.Env = append(os.Environ(), strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	text := out.String()
	if len(text) > 4000 {
		text = "…" + text[len(text)-4000:]
	}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return true, text, nil
	case errors.As(err, &exit):
		return false, text, nil
	default:
		return false, text, err
	}
}
