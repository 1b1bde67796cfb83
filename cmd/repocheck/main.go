// Repocheck is a tool for people who work on skein. It runs tests for the merge gate, breaks the
// code on purpose, and counts code:
//
//	repocheck test [-C DIR] [-label NAME] [-results DIR] [--] ARGUMENTS OF go test
//	repocheck slowest [-results DIR] [-n 10]
//	repocheck mutants [-only REGEXP] [-gate] [-v]
//	repocheck tokens [COMMIT | BASE_DIR HEAD_DIR]
//	repocheck style [DIR]
//
// "test" runs go test and prints one line for each package, as go test does. It appends the
// durations of packages and tests to DIR/durations.tsv, and what failed to DIR/failures.txt.
// "slowest" prints the packages and the tests that took longest in all runs that used DIR. "tokens"
// prints the number of Go tokens of each package, and compares the numbers with those of a commit
// or of another folder. Comments, blank lines and line breaks do not change them. "style" prints
// figures of each package that are symptoms of code that is hard to read.
//
// "mutants" proves that each test can fail. A mutant is a small change of the source that breaks an
// invariant of docs/invariants.md, together with the test that must fail because of it. A mutant
// that its test does not notice has survived, and the command fails. Each invariant has at least
// one mutant.
//
// A mutant is a text file testdata/mutants/NAME.mutant in the package that it changes:
//
//	# invariant: I3
//	# test: ./projections/store -run ^TestPowerCut$ -short
//	# The position is committed apart from the rows.
//	--- projections/store/commit.go
//		return b.Commit(sync)
//	+++
//		return errors.Join(b.CommitRows(sync), b.CommitPosition(sync))
//
// Lines that begin with # come first. The lines "invariant:" and "test:" name the invariants that
// the mutant breaks (as in I3, I6) and the test that must notice; the others say how the mutant
// breaks the code. One or more changes follow: "---" and the path of a file from the root of the
// repository, the lines to replace, "+++", and the new lines (none to delete lines). The lines to
// replace must occur exactly once in the file, as whole lines, so that a mutant that no longer fits
// the source is an error.
//
// The source files are not touched: the changed files are written to a temporary folder and given
// to the compiler as an overlay. Each named test first runs without any change and must pass. With
// the change, the test binary must compile, and the test must fail or exceed its time limit. A
// mutant that does not compile proves nothing and is an error.
//
// The tests of this package check the repository itself: invariants and the tests that documents
// name, figures in documents, phrases that were replaced once, and lists of event kinds outside the
// table of kinds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

// defaultResults is where results are kept if no folder is named. Git ignores it.
const defaultResults = ".cache/test-results"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()

	if err != nil {
		fmt.Fprintln(os.Stderr, "repocheck:", err)
		os.Exit(1)
	}
}

// run runs the command that the first argument names.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want a command: test, slowest, mutants, tokens or style")
	}

	command := args[0]
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	results := flags.String("results", defaultResults, "folder in which results are kept")
	switch command {
	case "test":
		label := flags.String("label", "test", "name of this run in the table of durations")
		dir := flags.String("C", ".", "folder in which go test runs; results stay relative to the current folder")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		//nolint:gosec // whoever runs the gate names the folder
		if err := os.MkdirAll(*results, 0o755); err != nil {
			return err
		}
		return runTests(ctx, *dir, flags.Args(), *label, *results, out)

	case "slowest":
		n := flags.Int("n", 10, "how many packages and how many tests are printed")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return printSlowest(filepath.Join(*results, durationsFile), *n, out)

	case "mutants":
		return runMutants(ctx, flags, args[1:], out)

	case "tokens":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return compareTokens(ctx, flags.Args(), out)

	case "style":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return printStyle(flags.Args(), out)

	default:
		return fmt.Errorf("unknown command %q: want test, slowest, mutants, tokens or style", command)
	}
}
