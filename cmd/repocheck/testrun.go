package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Files in the folder of results.
const (
	durationsFile = "durations.tsv" // columns: label, package, test (empty for the package itself), seconds
	failuresFile  = "failures.txt"
)

// tailLines is how many lines of the output of a failed test are kept.
const tailLines = 40

// testEvent is one line that go test -json prints. See go doc cmd/test2json.
type testEvent struct {
	Action     string
	Package    string
	ImportPath string // of build events, instead of Package
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// testID names a test, or a package as a whole if test is empty.
type testID struct{ pkg, test string }

// testReport collects what go test -json prints.
type testReport struct {
	out io.Writer

	// tails holds the last lines of the output of each test that still runs or has failed.
	tails     map[testID][]string
	durations []duration
	failed    []testID
}

// duration is how long a test took, or a whole package if test is empty.
type duration struct {
	label   string
	id      testID
	seconds float64
}

// runTests runs go test with the arguments in dir. It returns an error if a test fails, if the
// packages do not build, or if no test ran.
func runTests(ctx context.Context, dir string, args []string, label, results string, out io.Writer) error {
	//nolint:gosec // whoever runs the gate says which tests
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Dir = dir
	cmd.Stderr = out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}

	report := &testReport{out: out, tails: map[testID][]string{}}
	readErr := report.readEvents(stdout)
	testErr := cmd.Wait()

	// Write the results also if tests have failed, because the results say which.
	writeErr := errors.Join(
		report.appendDurations(filepath.Join(results, durationsFile), label),
		report.appendFailures(filepath.Join(results, failuresFile)),
	)
	switch {
	case readErr != nil || testErr != nil || writeErr != nil:
		return errors.Join(readErr, testErr, writeErr)
	case !slices.ContainsFunc(report.durations, func(d duration) bool { return d.id.test != "" }):
		return errors.New("no test ran: check the packages and the -run expression")
	default:
		return nil
	}
}

// readEvents reads events until the end of the stream.
func (r *testReport) readEvents(stream io.Reader) error {
	lines := bufio.NewReader(stream)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var event testEvent
			// go test prints some errors, such as a broken go.mod, as plain text between the
			// events.
			if json.Unmarshal(line, &event) != nil {
				event = testEvent{Action: "build-output", Output: string(line)}
			}
			if err := r.addEvent(event); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// addEvent adds one event to the report, and prints the output that go test without -json would
// print.
func (r *testReport) addEvent(event testEvent) error {
	id := testID{event.Package, event.Test}
	switch event.Action {
	case "output":
		r.keepTail(id, event.Output)
		// Of the output of a package as a whole, go test without -json prints only the result.
		if event.Test == "" && isPackageResult(event.Output) {
			_, err := io.WriteString(r.out, event.Output)
			return err
		}

	case "build-output":
		r.keepTail(testID{pkg: event.ImportPath}, event.Output)
		_, err := io.WriteString(r.out, event.Output)
		return err

	case "build-fail":
		r.failed = append(r.failed, testID{pkg: event.ImportPath})

	case "pass", "skip", "fail":
		r.durations = append(r.durations, duration{id: id, seconds: event.Elapsed})
		if event.Action == "fail" {
			r.addFailure(id)
		} else {
			delete(r.tails, id)
		}
	}
	return nil
}

// isPackageResult reports whether a line of output is the result of a package, and not of a test.
func isPackageResult(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t")
}

// keepTail adds a line to the output of a test, and drops the oldest if there are too many.
func (r *testReport) keepTail(id testID, output string) {
	r.tails[id] = append(r.tails[id], output)
	if len(r.tails[id]) > tailLines {
		r.tails[id] = r.tails[id][1:]
	}
}

// addFailure records that a test, or a package, has failed. It does not record a test whose subtest
// has failed, nor a package whose test or whose build has failed, because only the output of the
// innermost failure says what is wrong. Events of inner failures come before those of outer ones.
func (r *testReport) addFailure(id testID) {
	isInside := func(other testID) bool {
		if id.test == "" {
			// The import path of a build that failed may have the suffix " [PACKAGE.test]".
			return other.pkg == id.pkg || strings.HasPrefix(other.pkg, id.pkg+" [") || strings.HasPrefix(other.pkg, id.pkg+"_test [")
		}
		return other.pkg == id.pkg && strings.HasPrefix(other.test, id.test+"/")
	}
	if !slices.ContainsFunc(r.failed, isInside) {
		r.failed = append(r.failed, id)
	}
}

// appendDurations appends the durations of this run to a file.
func (r *testReport) appendDurations(path, label string) error {
	var text strings.Builder
	for _, d := range r.durations {
		fmt.Fprintf(&text, "%s\t%s\t%s\t%.2f\n", label, d.id.pkg, d.id.test, d.seconds)
	}
	return appendFile(path, text.String())
}

// appendFailures appends the name of each test that failed, and the end of its output, to a file.
func (r *testReport) appendFailures(path string) error {
	var text strings.Builder
	for _, id := range r.failed {
		fmt.Fprintf(&text, "\nFAILED: %s %s\n%s", id.pkg, id.test, strings.Join(r.tails[id], ""))
	}
	return appendFile(path, text.String())
}

// appendFile appends a text to a file, or creates the file.
func appendFile(path, text string) error {
	//nolint:gosec // whoever runs the gate names the folder
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
