// Repocheck is a tool for people who work on skein. It runs tests for the merge gate, and counts code:
//
//	repocheck test [-C DIR] [-label NAME] [-results DIR] [--] ARGUMENTS OF go test
//	repocheck slowest [-results DIR] [-n 10]
//	repocheck tokens [COMMIT | BASE_DIR HEAD_DIR]
//
// The first runs go test and prints one line for each package, as go test does. It adds the durations of packages and
// tests to DIR/durations.tsv, and writes what failed to DIR/failures.txt. The second prints the packages and the tests that
// took longest, of all runs that used DIR. The third prints the number of Go tokens of each package, which comments, blank lines and line
// breaks do not change, and compares them with those of a commit or of another folder.
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

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want a command: test, slowest or tokens")
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

	case "tokens":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return compareTokens(ctx, flags.Args(), out)

	default:
		return fmt.Errorf("unknown command %q: want test, slowest or tokens", command)
	}
}
